#include "text/jinja/value.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "text/unicode.h"

namespace tandem::jinja {

Value Value::MakeUndefined(std::string reason) {
  Value v;
  std::get<Undefined>(v.data_).reason = std::make_shared<const std::string>(std::move(reason));
  return v;
}

Value Value::MakeString(std::string text) { return MakeText(MarkedText(std::move(text))); }

Value Value::MakeText(MarkedText text) {
  return Value(std::make_shared<const MarkedText>(std::move(text)));
}

std::string_view Value::undefined_reason() const {
  const auto& reason = std::get<Undefined>(data_).reason;
  return reason ? std::string_view(*reason) : std::string_view("value is undefined");
}

bool Value::Truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return as_bool();
    case Kind::kInt: return as_int() != 0;
    case Kind::kFloat: return as_float() != 0.0;
    case Kind::kString: return !as_string().empty();
    case Kind::kList:
      return !as_list().items.empty() || as_list().flavor == List::Flavor::kIterator;
    case Kind::kDict: return !as_dict().items.empty();
    case Kind::kNamespace:
    case Kind::kLoop:
    case Kind::kCallable: return true;
  }
  return false;
}

bool Value::HasData() const {
  if (is_string()) return as_text().has_data();
  if (is_list()) return as_list().has_data;
  return is_dict() && as_dict().has_data;
}

int Value::Depth() const {
  if (is_list()) return as_list().depth;
  if (is_dict()) return as_dict().depth;
  return 0;
}

Dict::Dict(std::vector<std::pair<std::string, Value>> entries, bool data_keys)
    : has_data(data_keys), items(std::move(entries)), by_key(items.size()) {
  std::iota(by_key.begin(), by_key.end(), 0u);
  std::sort(by_key.begin(), by_key.end(), [this](uint32_t a, uint32_t b) {
    const int order = items[a].first.compare(items[b].first);
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<bool> dropped(items.size(), false);
  bool any_dropped = false;
  for (size_t i = 0; i < by_key.size();) {
    size_t end = i + 1;
    while (end < by_key.size() && items[by_key[end]].first == items[by_key[i]].first) ++end;
    if (end - i > 1) {
      items[by_key[i]].second = items[by_key[end - 1]].second;
      for (size_t k = i + 1; k < end; ++k) dropped[by_key[k]] = true;
      any_dropped = true;
    }
    i = end;
  }
  if (any_dropped) {
    std::vector<std::pair<std::string, Value>> kept;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!dropped[i]) kept.push_back(std::move(items[i]));
    }
    *this = Dict(std::move(kept), data_keys);
    return;
  }
  for (const auto& [key, value] : items) {
    depth = std::max(depth, value.Depth() + 1);
    has_data = has_data || value.HasData();
  }
}

const Value* Dict::Find(std::string_view key) const {
  const auto it =
      std::lower_bound(by_key.begin(), by_key.end(), key,
                       [this](uint32_t i, std::string_view k) { return items[i].first < k; });
  if (it == by_key.end() || items[*it].first != key) return nullptr;
  return &items[*it].second;
}

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

namespace {

Result<Value> FromJsonAt(const Json& json, int depth);

Result<Value> ObjectFromJson(const Json& json, int depth) {
  std::vector<std::pair<std::string, Value>> entries;
  entries.reserve(json.size());
  for (const auto& [key, item] : json.items()) {
    if (!IsValidUtf8(key)) return InvalidArgumentError("an object's key is not valid UTF-8");
    Result<Value> value = FromJsonAt(item, depth + 1);
    if (!value.ok()) return value;
    entries.emplace_back(key, std::move(*value));
  }
  return Value(std::make_shared<const Dict>(std::move(entries), /*data_keys=*/true));
}

Result<Value> ArrayFromJson(const Json& json, int depth) {
  auto list = std::make_shared<List>();
  list->items.reserve(json.size());
  for (const Json& item : json) {
    Result<Value> value = FromJsonAt(item, depth + 1);
    if (!value.ok()) return value;
    list->depth = std::max(list->depth, value->Depth() + 1);
    list->has_data = list->has_data || value->HasData();
    list->items.push_back(std::move(*value));
  }
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Result<Value> FromJsonAt(const Json& json, int depth) {
  if (depth > kMaxValueDepth) {
    return OutOfRangeError("JSON nests deeper than {} levels", kMaxValueDepth);
  }
  switch (json.type()) {
    case Json::value_t::null: return Value(None{});
    case Json::value_t::boolean: return Value(json.get<bool>());
    case Json::value_t::number_integer: return Value(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const uint64_t v = json.get<uint64_t>();
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return OutOfRangeError("integer {} does not fit in 64 bits with a sign", v);
      }
      return Value(static_cast<int64_t>(v));
    }
    case Json::value_t::number_float: return Value(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      if (!IsValidUtf8(text)) return InvalidArgumentError("a string is not valid UTF-8");
      return Value::MakeText(MarkedText::FromData(text));
    }
    case Json::value_t::array: return ArrayFromJson(json, depth);
    case Json::value_t::object: return ObjectFromJson(json, depth);
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
  }
  return InvalidArgumentError("a JSON value of type {} has no counterpart in a template",
                              json.type_name());
}

bool NumbersEqual(const Value& a, const Value& b) {
  const auto integer = [](const Value& v) {
    return v.is_bool() ? int64_t{v.as_bool()} : v.as_int();
  };
  if (!a.is_float() && !b.is_float()) return integer(a) == integer(b);
  if (a.is_float() && b.is_float()) return a.as_float() == b.as_float();
  const double f = a.is_float() ? a.as_float() : b.as_float();
  const int64_t i = a.is_float() ? integer(b) : integer(a);
  // Exact, as Python compares: a double beyond int64 or with a fraction equals no int64.
  if (!(f >= -0x1p63 && f < 0x1p63)) return false;
  return static_cast<int64_t>(f) == i && static_cast<double>(static_cast<int64_t>(f)) == f;
}

bool ListsEqual(const List& a, const List& b, int64_t* budget) {
  if (a.flavor != b.flavor || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!Equals(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool DictsEqual(const Dict& a, const Dict& b, int64_t* budget) {
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    const auto& [key_a, value_a] = a.items[a.by_key[i]];
    const auto& [key_b, value_b] = b.items[b.by_key[i]];
    if (key_a != key_b || !Equals(value_a, value_b, budget)) return false;
  }
  return true;
}

}  // namespace

Result<Value> FromJson(const Json& json) { return FromJsonAt(json, 0); }

bool Equals(const Value& a, const Value& b, int64_t* budget) {
  if (--*budget <= 0) return false;
  if (a.is_number() && b.is_number()) return NumbersEqual(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      *budget -= static_cast<int64_t>(std::min(a.as_string().size(), b.as_string().size()) / 64);
      return a.as_string() == b.as_string();
    case Kind::kList: return ListsEqual(a.as_list(), b.as_list(), budget);
    case Kind::kDict: return DictsEqual(a.as_dict(), b.as_dict(), budget);
    case Kind::kNamespace: return &a.as_namespace() == &b.as_namespace();
    case Kind::kLoop: return &a.as_loop() == &b.as_loop();
    default: return false;
  }
}

std::string_view TypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kList:
      switch (v.as_list().flavor) {
        case List::Flavor::kList: return "list";
        case List::Flavor::kTuple: return "tuple";
        case List::Flavor::kRange: return "range";
        case List::Flavor::kView: return "dict view";
        case List::Flavor::kIterator: return "iterator";
      }
      return "list";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kCallable: return "function";
  }
  return "?";
}

}  // namespace tandem::jinja
