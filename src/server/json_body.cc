#include "server/json_body.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <vector>

#include "text/unicode.h"

namespace tandem {
namespace {

// Of a user's word in an error message.
constexpr size_t kShownBytesMax = 64;

ApiError BodyError(std::string message) {
  ApiError error;
  error.code = "invalid_json";
  error.message = std::move(message);
  return error;
}

// Watches nlohmann's parser; refuses by throwing an ApiError, which ParseJsonObject catches.
class Watcher {
 public:
  explicit Watcher(int depth_max) : depth_max_(depth_max) {}

  bool operator()(int, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        CountValue();
        if (static_cast<int>(keys_.size()) >= depth_max_) {
          throw BodyError(fmt::format("The body is nested deeper than {} levels.", depth_max_));
        }
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end: keys_.pop_back(); break;
      case Json::parse_event_t::key: OnKey(parsed.get_ref<const std::string&>()); break;
      case Json::parse_event_t::value: CountValue(); break;
    }
    return true;
  }

  const std::string& last_field() const { return last_field_; }

 private:
  void CountValue() {
    if (++values_ <= kJsonValuesMax) return;
    throw BodyError(fmt::format("The body has more than {} values.", kJsonValuesMax));
  }

  void OnKey(const std::string& key) {
    if (keys_.size() == 1) last_field_ = key;
    if (keys_.back().size() >= kJsonKeysMax) {
      throw BodyError(fmt::format("An object has more than {} keys.", kJsonKeysMax));
    }
    if (keys_.back().insert(key).second) return;
    ApiError error = BodyError(fmt::format("The key '{}' appears twice.", Shorten(key)));
    if (keys_.size() == 1) error.param = Shorten(key);
    throw error;
  }

  const int depth_max_;
  std::vector<std::set<std::string>> keys_;  // of every open container
  std::string last_field_;
  int64_t values_ = 0;
};

}  // namespace

ApiResult<Json> ParseJsonObject(std::string_view body, int depth_max) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return BodyError("The body is empty: it must be a JSON object.");
  }
  if (!IsValidUtf8(body)) return BodyError("The body is not valid UTF-8.");
  Watcher watcher(depth_max);
  try {
    Json value = Json::parse(body.begin(), body.end(), std::ref(watcher));
    if (!value.is_object()) {
      return BodyError(fmt::format("The body must be a JSON object, not {}.", JsonTypeName(value)));
    }
    return value;
  } catch (const ApiError& error) {
    return error;
  } catch (const Json::parse_error& error) {
    return BodyError(fmt::format("The body is not valid JSON (near byte {}).", error.byte));
  } catch (const Json::out_of_range&) {
    return ValueError(Shorten(watcher.last_field()), "a number is too large");
  } catch (const Json::exception&) {
    return BodyError("The body is not valid JSON.");
  }
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view JsonTypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number";
    default: return "a value";
  }
}

ApiError TypeError(std::string_view param, std::string_view expected, const Json& got) {
  return FieldError("invalid_type", std::string(param),
                    fmt::format("Invalid type for '{}': expected {}, got {}.", param, expected,
                                JsonTypeName(got)));
}

ApiError ValueError(std::string_view param, std::string_view message) {
  return FieldError("invalid_value", std::string(param),
                    fmt::format("Invalid value for '{}': {}.", param, message));
}

ApiError MissingError(std::string_view param) {
  return FieldError("missing_required_parameter", std::string(param),
                    fmt::format("Missing required parameter: '{}'.", param));
}

ApiResult<bool> ReadBool(const Json& value, std::string_view param) {
  if (!value.is_boolean()) return TypeError(param, "a boolean", value);
  return value.get<bool>();
}

ApiResult<std::string> ReadString(const Json& value, std::string_view param) {
  if (!value.is_string()) return TypeError(param, "a string", value);
  return value.get<std::string>();
}

ApiResult<int64_t> ReadInteger(const Json& value, std::string_view param, int64_t low,
                               int64_t high) {
  if (!value.is_number()) return TypeError(param, "an integer", value);
  const auto range_error = [&] {
    return ValueError(param, fmt::format("{} is not between {} and {}", value.dump(), low, high));
  };
  int64_t number = 0;
  if (value.is_number_unsigned()) {
    const uint64_t wide = value.get<uint64_t>();
    if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return range_error();
    number = static_cast<int64_t>(wide);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else {
    const double wide = value.get<double>();
    if (std::trunc(wide) != wide) return TypeError(param, "an integer", value);
    // An integer that fits has come as one; what has become -2^63 or 2^63 was rounded to it.
    if (!(wide > -0x1p63 && wide < 0x1p63)) return range_error();
    number = static_cast<int64_t>(wide);
  }
  if (number < low || number > high) return range_error();
  return number;
}

ApiResult<double> ReadNumber(const Json& value, std::string_view param, double low, double high) {
  if (!value.is_number()) return TypeError(param, "a number", value);
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) {
    return ValueError(param, fmt::format("{} is not between {} and {}", value.dump(), low, high));
  }
  return number;
}

double Milliseconds(TimeNs ns) {
  return std::round(static_cast<double>(ns) / kNsPerUs) / (kNsPerMs / kNsPerUs);
}

std::string Shorten(std::string_view text) {
  if (text.size() <= kShownBytesMax) return std::string(text);
  return ReplaceInvalidUtf8(text.substr(0, kShownBytesMax)) + "...";
}

}  // namespace tandem
