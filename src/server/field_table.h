// What: tables of the fields of a JSON object: each row has a field's name, its use, its type with
//   its range, and what reads it. Parsing, the documentation's test and the OpenAPI description all
//   go by the same rows.
// Not here: the tables themselves (generation_fields.cc, chat_request.cc, ...). Included by the
//   server's .cc files only: it brings nlohmann's header.
// Threads: pure functions.
// Invariants: a row has a parser exactly if its field is honoured. null means absent for every
//   field.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/field_info.h"
#include "server/json_body.h"

namespace tandem {

using MaybeError = std::optional<ApiError>;

// The values of a field: what its parser checks, and what the schema says.
struct FieldType {
  enum class Kind { kBool, kInteger, kNumber, kString, kOther };
  Kind kind = Kind::kOther;
  double low = 0;  // of numbers
  double high = 0;
  bool above_low = false;        // `low` itself is not allowed
  std::string_view schema = {};  // of kOther: JSON Schema
};
template <typename Target>
struct Field {
  using Parse = MaybeError (*)(const Json& value, std::string_view param, const FieldType& type,
                               Target& out);
  std::string_view name;
  FieldUse use;
  std::string_view neutral;
  FieldType type;
  Parse parse;
  bool required = false;
};

// Reads a value into `out`, or hands the error back.
template <typename Out, typename Value>
MaybeError Store(ApiResult<Value> read, Out& out) {
  if (!read.ok()) return read.error();
  out = static_cast<std::remove_reference_t<Out>>(std::move(read.value()));
  return std::nullopt;
}

// ReadInteger and ReadNumber within a field's range.
ApiResult<int64_t> ReadInteger(const Json& value, std::string_view param, const FieldType& type);
ApiResult<double> ReadNumber(const Json& value, std::string_view param, const FieldType& type);

namespace internal {
template <typename Class, typename Member>
Class ClassOf(Member Class::*);
template <auto kMember>
using OwnerOf = decltype(ClassOf(kMember));
}  // namespace internal

// ---- Rows whose value goes straight into a member

template <auto kMember, typename Target = internal::OwnerOf<kMember>>
constexpr Field<Target> BoolField(std::string_view name) {
  return {name,
          FieldUse::kHonoured,
          {},
          {.kind = FieldType::Kind::kBool},
          [](const Json& value, std::string_view param, const FieldType&, Target& out) {
            return Store(ReadBool(value, param), out.*kMember);
          }};
}

template <auto kMember, typename Target = internal::OwnerOf<kMember>>
constexpr Field<Target> StringField(std::string_view name, bool required = false) {
  return {name,
          FieldUse::kHonoured,
          {},
          {.kind = FieldType::Kind::kString},
          [](const Json& value, std::string_view param, const FieldType&, Target& out) {
            return Store(ReadString(value, param), out.*kMember);
          },
          required};
}

// The range of an int64_t member is given as doubles, for which its ends are rounded: ReadInteger
// knows.
template <auto kMember, typename Target = internal::OwnerOf<kMember>>
constexpr Field<Target> IntegerField(std::string_view name, double low, double high) {
  return {name,
          FieldUse::kHonoured,
          {},
          {FieldType::Kind::kInteger, low, high},
          [](const Json& value, std::string_view param, const FieldType& type, Target& out) {
            return Store(ReadInteger(value, param, type), out.*kMember);
          }};
}

template <auto kMember, typename Target = internal::OwnerOf<kMember>>
constexpr Field<Target> NumberField(std::string_view name, double low, double high,
                                    bool above_low = false) {
  return {name,
          FieldUse::kHonoured,
          {},
          {FieldType::Kind::kNumber, low, high, above_low},
          [](const Json& value, std::string_view param, const FieldType& type, Target& out) {
            return Store(ReadNumber(value, param, type), out.*kMember);
          }};
}

// ---- Other rows

template <typename Target>
constexpr Field<Target> Honoured(std::string_view name, std::string_view schema,
                                 typename Field<Target>::Parse parse, bool required = false) {
  return {name,  FieldUse::kHonoured,
          {},    {.kind = FieldType::Kind::kOther, .schema = schema},
          parse, required};
}
template <typename Target>
constexpr Field<Target> Ignored(std::string_view name) {
  return {name, FieldUse::kIgnored, {}, {.schema = "{}"}, nullptr};
}
template <typename Target>
constexpr Field<Target> Refused(std::string_view name, std::string_view neutral = {}) {
  return {name, FieldUse::kRefused, neutral, {}, nullptr};
}

// ---- Using a table

ApiError UnknownError(std::string_view param, std::string_view name,
                      std::span<const std::string_view> known);
// 400 unless `value` is the neutral one (JSON, or empty).
MaybeError RefuseUnlessNeutral(const Json& value, std::string_view param, std::string_view neutral);

template <typename Target>
void AppendNames(std::span<const Field<Target>> fields, std::vector<std::string_view>& names) {
  for (const auto& field : fields) names.push_back(field.name);
}

template <typename Target>
const Field<Target>* FindField(std::span<const Field<Target>> fields, std::string_view name) {
  const auto it = std::find_if(fields.begin(), fields.end(),
                               [&](const Field<Target>& field) { return field.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

template <typename Target>
MaybeError ApplyField(const Field<Target>& field, const Json& value, std::string_view param,
                      Target& out) {
  if (value.is_null()) return std::nullopt;
  switch (field.use) {
    case FieldUse::kHonoured: return field.parse(value, param, field.type, out);
    case FieldUse::kIgnored: return std::nullopt;
    case FieldUse::kRefused: break;
  }
  return RefuseUnlessNeutral(value, param, field.neutral);
}

// Sets `known` and applies the field if the table has it.
template <typename Target>
bool ApplyIfKnown(std::span<const Field<Target>> fields, const std::string& name, const Json& value,
                  std::string_view param, Target& out, bool& known, MaybeError& error) {
  const Field<Target>* field = FindField(fields, name);
  if (!field) return false;
  known = true;
  error = ApplyField(*field, value, param, out);
  return true;
}

// Applies every member of `object`, whose own name is `prefix` ("messages[0]"; empty for the body),
// by the first of the tables that knows it. Each table's target must be a base of Target, or it.
// Required fields must be there and not null.
template <typename Target, typename... Owner>
MaybeError ApplyAll(const Json& object, std::string_view prefix, Target& out,
                    std::span<const Field<Owner>>... tables) {
  const auto param_of = [&](std::string_view name) {
    return prefix.empty() ? Shorten(name) : fmt::format("{}.{}", prefix, Shorten(name));
  };
  MaybeError error;
  const auto require = [&](const auto& table) {
    for (const auto& field : table) {
      if (error || !field.required) continue;
      const auto it = object.find(field.name);
      if (it == object.end() || it->is_null()) error = MissingError(param_of(field.name));
    }
  };
  (require(tables), ...);
  if (error) return error;
  for (const auto& [name, value] : object.items()) {
    const std::string param = param_of(name);
    bool known = false;
    ((known || ApplyIfKnown<Owner>(tables, name, value, param, out, known, error)), ...);
    if (!known) {
      std::vector<std::string_view> names;
      (AppendNames(tables, names), ...);
      error = UnknownError(param, name, names);
    }
    if (error) return error;
  }
  return std::nullopt;
}

std::string SchemaOf(FieldUse use, std::string_view neutral, const FieldType& type);

template <typename Target>
void AppendInfo(std::span<const Field<Target>> fields, std::vector<FieldInfo>& out) {
  for (const auto& field : fields) {
    out.push_back({field.name, field.use, field.neutral, field.required,
                   SchemaOf(field.use, field.neutral, field.type)});
  }
}

}  // namespace tandem
