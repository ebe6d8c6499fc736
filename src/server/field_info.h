// What: FieldInfo: what is known of one field of a request: what the server does with it, and the
//   JSON Schema of the values it takes.
// Not here: reading the field (field_table.h).
// Threads: values.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

enum class FieldUse {
  kHonoured,
  kIgnored,  // accepted, without effect on the answer
  kRefused,  // 400 unsupported_parameter, unless it has its neutral value
};
std::string_view NameOf(FieldUse use);

struct FieldInfo {
  std::string_view name;
  FieldUse use;
  std::string_view neutral;  // JSON: the value of a refused field that asks for nothing; or empty
  bool required = false;     // then null is no value of it
  std::string schema;        // JSON Schema of its values but null, from what reads them
};

}  // namespace tandem
