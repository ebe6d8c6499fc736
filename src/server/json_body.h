// What: the first steps with a JSON body: bytes to a value under limits, and typed reads that name
//   the field in their error.
// Not here: which fields there are (field_table.h). Included by the server's .cc files only: it
//   brings nlohmann's header.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/api_error.h"

namespace tandem {

// Keeps the order of keys: templates print tools as the client wrote them.
using Json = nlohmann::ordered_json;

// Numbers, strings, lists and objects in one body. A value takes up to a hundred bytes of memory
// for two of text, so their number is limited too; a prompt of token ids has some hundred thousand.
inline constexpr int64_t kJsonValuesMax = 500'000;
// Keys in one object: an ordered object is searched linearly. A thousand biases fit.
inline constexpr size_t kJsonKeysMax = 2000;
// Tool schemas nest about ten deep; more than this is an attack on recursive code.
inline constexpr int kJsonDepthMax = 64;

// An object, or the error: not UTF-8, not JSON, not an object, nested too deep, too many values or
// keys, a key twice, a number beyond the range of double.
ApiResult<Json> ParseJsonObject(std::string_view body, int depth_max = kJsonDepthMax);
// Compact; what is no UTF-8 is replaced.
std::string DumpJson(const Json& value);

// "a string", "a list", ...
std::string_view JsonTypeName(const Json& value);

ApiError TypeError(std::string_view param, std::string_view expected, const Json& got);
ApiError ValueError(std::string_view param, std::string_view message);
ApiError MissingError(std::string_view param);

ApiResult<bool> ReadBool(const Json& value, std::string_view param);
ApiResult<std::string> ReadString(const Json& value, std::string_view param);
// Accepts 3.0 for 3. Errors: not a whole number, outside [low, high].
ApiResult<int64_t> ReadInteger(const Json& value, std::string_view param,
                               int64_t low = std::numeric_limits<int64_t>::min(),
                               int64_t high = std::numeric_limits<int64_t>::max());
// Finite, in [low, high].
ApiResult<double> ReadNumber(const Json& value, std::string_view param, double low, double high);

// As a number of a body: to the microsecond.
double Milliseconds(TimeNs ns);

// A user's word for an error message: at most 64 bytes.
std::string Shorten(std::string_view text);

}  // namespace tandem
