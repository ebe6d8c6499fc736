#include "server/field_table.h"

#include <cmath>
#include <limits>

#include "base/edit_distance.h"

namespace tandem {
namespace {

// A bound without a fraction where it has none: schemas are compared as text in places.
Json Bound(double value) {
  if (std::trunc(value) == value && value >= -0x1p62 && value <= 0x1p62) {
    return static_cast<int64_t>(value);
  }
  return value;
}

bool IsInt64Range(const FieldType& type) { return type.low <= -0x1p63 && type.high >= 0x1p63; }

std::string SchemaOf(const FieldType& type) {
  switch (type.kind) {
    case FieldType::Kind::kBool: return R"({"type": "boolean"})";
    case FieldType::Kind::kString: return R"({"type": "string"})";
    case FieldType::Kind::kOther: return std::string(type.schema);
    case FieldType::Kind::kInteger:
    case FieldType::Kind::kNumber: break;
  }
  const bool integer = type.kind == FieldType::Kind::kInteger;
  Json schema = {{"type", integer ? "integer" : "number"}};
  if (integer && IsInt64Range(type)) {
    schema["minimum"] = std::numeric_limits<int64_t>::min();
    schema["maximum"] = std::numeric_limits<int64_t>::max();
  } else {
    schema[type.above_low ? "exclusiveMinimum" : "minimum"] = Bound(type.low);
    schema["maximum"] = Bound(type.high);
  }
  return DumpJson(schema);
}

}  // namespace

std::string_view NameOf(FieldUse use) {
  switch (use) {
    case FieldUse::kHonoured: return "honoured";
    case FieldUse::kIgnored: return "ignored";
    case FieldUse::kRefused: return "refused";
  }
  return "unknown";
}

ApiResult<int64_t> ReadInteger(const Json& value, std::string_view param, const FieldType& type) {
  if (IsInt64Range(type)) return ReadInteger(value, param);
  return ReadInteger(value, param, static_cast<int64_t>(type.low), static_cast<int64_t>(type.high));
}

ApiResult<double> ReadNumber(const Json& value, std::string_view param, const FieldType& type) {
  ApiResult<double> number = ReadNumber(value, param, type.low, type.high);
  if (number.ok() && type.above_low && number.value() == type.low) {
    return ValueError(param, fmt::format("it must be above {}", type.low));
  }
  return number;
}

ApiError UnknownError(std::string_view param, std::string_view name,
                      std::span<const std::string_view> known) {
  std::string message = fmt::format("Unknown parameter: '{}'.", param);
  if (const auto nearest = NearestWord(name, known)) {
    message += fmt::format(" Did you mean '{}'?", *nearest);
  }
  return FieldError("unknown_parameter", std::string(param), std::move(message));
}

MaybeError RefuseUnlessNeutral(const Json& value, std::string_view param,
                               std::string_view neutral) {
  if (!neutral.empty() && value == Json::parse(neutral)) return std::nullopt;
  std::string message = fmt::format("'{}' is not supported by this server", param);
  if (!neutral.empty()) message += fmt::format(" (except as {})", neutral);
  return FieldError("unsupported_parameter", std::string(param), message + ".");
}

std::string SchemaOf(FieldUse use, std::string_view neutral, const FieldType& type) {
  if (use != FieldUse::kRefused) return SchemaOf(type);
  if (neutral.empty()) return R"({"not": {}})";
  return fmt::format(R"({{"const": {}}})", neutral);
}

}  // namespace tandem
