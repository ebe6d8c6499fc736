// What: ToolParameters: which types the parameters of a request's tools are declared to have, and
//   what a value is in JSON that a model wrote as bare text or as a Python literal.
// Not here: finding the values in an answer (tool_call_reader.h); whether they fit the schema.
// Threads: immutable.
// Cost: linear in the text of a value.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

class ToolParameters {
 public:
  // Of no tools: every parameter is undeclared.
  ToolParameters() = default;
  // `tools` as the API has them: [{"function": {"name": ..., "parameters": SCHEMA}}, ...]. What is
  // not of this shape declares nothing.
  explicit ToolParameters(const nlohmann::ordered_json& tools);

  // The JSON value that `text` stands for: itself where it is one of a declared type, and for a
  // parameter whose type is not declared (or by reference only) where it is one of any type but
  // string. Numbers are not told apart. Where no string is allowed, Python's literals count too.
  // Everything else is a string, every character of it.
  std::string ValueOf(std::string_view tool, std::string_view parameter,
                      std::string_view text) const;

 private:
  // By tool and parameter, a set of types.
  std::map<std::string, std::map<std::string, uint8_t, std::less<>>, std::less<>> types_;
};

// `text` as a JSON string.
std::string JsonQuoted(std::string_view text);

// A Python literal (numbers, strings, True, False, None, lists, tuples, dicts by strings; JSON's
// words too) as JSON; nothing for any other text, and for one that nests deeper than 64.
std::optional<std::string> PythonToJson(std::string_view text);

}  // namespace tandem
