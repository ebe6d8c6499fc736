// What: JSON of model files under limits: JsonHandler, the base of readers that take a text's
//   events one by one and never build it up, and ParseJsonObject for small files.
// Not here: what the keys mean; HTTP bodies (server/json_body.h). Included by .cc files only: it
//   brings nlohmann's header.
// Threads: pure functions; a handler belongs to one thread.
// Cost: one pass; memory of the open objects' keys, besides what a handler keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

namespace tandem {

struct JsonLimits {
  size_t max_depth = 0;   // open objects and lists
  size_t max_values = 0;  // scalars, objects and lists
};

using JsonScalar = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string_view>;
// "a string", "null", ...
std::string_view NameOf(const JsonScalar& scalar);

class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonHandler(JsonLimits limits) : limits_(limits) {}
  // DATA_LOSS for what is not JSON or not UTF-8 (says near which byte), a key that occurs twice in
  // an object and a number that a double cannot hold; OUT_OF_RANGE beyond a limit; or the first
  // failure of the functions below.
  Status Run(std::string_view text);

 protected:
  // Called in the text's order; a failure ends the reading. `depth()` counts the containers that
  // are open, including one that begins here and excluding one that has ended.
  virtual Status OnBegin(bool is_object) = 0;
  virtual Status OnEnd() = 0;
  virtual Status OnKey(std::string_view key) = 0;
  // A string lives until the function returns.
  virtual Status OnScalar(const JsonScalar& scalar) = 0;
  size_t depth() const { return keys_.size(); }

 private:
  bool Take(Status status);
  bool Count();
  bool Scalar(const JsonScalar& scalar) { return Count() && Take(OnScalar(scalar)); }
  bool Begin(bool is_object);
  bool End();

  bool null() final { return Scalar(nullptr); }
  bool boolean(bool value) final { return Scalar(value); }
  bool number_integer(number_integer_t value) final { return Scalar(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) final { return Scalar(uint64_t{value}); }
  bool number_float(number_float_t value, const string_t&) final { return Scalar(value); }
  bool string(string_t& value) final { return Scalar(std::string_view(value)); }
  bool binary(binary_t&) final { return false; }  // JSON text has none
  bool start_object(size_t) final { return Begin(true); }
  bool start_array(size_t) final { return Begin(false); }
  bool end_object() final { return End(); }
  bool end_array() final { return End(); }
  bool key(string_t& value) final;
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) final;

  const JsonLimits limits_;
  size_t num_values_ = 0;
  std::vector<std::set<std::string, std::less<>>> keys_;  // of every open container
  Status status_;
};

// A JSON object as a value, with JsonHandler's checks. INVALID_ARGUMENT when it is something else.
Result<nlohmann::json> ParseJsonObject(std::string_view text, JsonLimits limits);

}  // namespace tandem
