#include "text/jinja/runtime.h"

#include <algorithm>

#include "text/unicode.h"

namespace tandem::jinja {
namespace {

// Rough cost of an entry besides its key's text.
constexpr size_t kEntryBytes = sizeof(std::pair<std::string, Value>) + sizeof(uint32_t);

double AsDouble(const Value& v) {
  if (v.is_float()) return v.as_float();
  return v.is_bool() ? (v.as_bool() ? 1.0 : 0.0) : static_cast<double>(v.as_int());
}

int64_t AsInt(const Value& v) { return v.is_bool() ? int64_t{v.as_bool()} : v.as_int(); }

}  // namespace

Value Runtime::Fail(const Status& error) {
  if (error_.ok()) error_ = error.WithContext(fmt::format("line {}", line_));
  return Value();
}

bool Runtime::Charge(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ < 0) {
    steps_left_ = 0;
    Fail(OutOfRangeError("the template takes more than {} steps", limits_.max_steps));
  }
  return ok();
}

bool Runtime::Allocate(size_t bytes) {
  if (bytes > limits_.max_allocated_bytes - allocated_bytes_) {
    Fail(OutOfRangeError("the template allocates more than {} bytes", limits_.max_allocated_bytes));
    return false;
  }
  allocated_bytes_ += bytes;
  return ok();
}

Value Runtime::String(std::string text) {
  return Text(data_context_ ? MarkedText::FromData(std::move(text)) : MarkedText(std::move(text)));
}

Value Runtime::Text(MarkedText text) {
  if (text.size() > limits_.max_output_bytes) {
    return Fail(OutOfRangeError("a text grows beyond {} bytes", limits_.max_output_bytes));
  }
  const size_t bytes = text.size() + text.data().size() * sizeof(ByteSpan) + sizeof(MarkedText);
  if (!Allocate(bytes)) return Value();
  return Value::MakeText(std::move(text));
}

Value Runtime::MakeList(List::Flavor flavor, std::vector<Value> items) {
  if (!Charge(static_cast<int64_t>(items.size())) ||
      !Allocate(sizeof(List) + items.size() * sizeof(Value))) {
    return Value();
  }
  auto list = std::make_shared<List>();
  list->flavor = flavor;
  for (const Value& item : items) {
    list->depth = std::max(list->depth, item.Depth() + 1);
    list->has_data = list->has_data || item.HasData();
  }
  list->items = std::move(items);
  if (list->depth > kMaxValueDepth) {
    return Fail(OutOfRangeError("a value nests deeper than {} levels", kMaxValueDepth));
  }
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value Runtime::MakeGroup(Value key, Value members) {
  const Value pair = MakeList(List::Flavor::kTuple, {std::move(key), std::move(members)});
  if (!ok()) return Value();
  auto group = std::make_shared<List>(pair.as_list());
  group->is_group = true;
  return Value(std::shared_ptr<const List>(std::move(group)));
}

Value Runtime::MakeDict(std::vector<std::pair<std::string, Value>> entries, bool data_keys) {
  size_t bytes = sizeof(Dict);
  for (const auto& [key, value] : entries) bytes += key.size() + kEntryBytes;
  if (!Charge(static_cast<int64_t>(entries.size())) || !Allocate(bytes)) return Value();
  auto dict = std::make_shared<const Dict>(std::move(entries), data_keys);
  if (dict->depth > kMaxValueDepth) {
    return Fail(OutOfRangeError("a value nests deeper than {} levels", kMaxValueDepth));
  }
  return Value(std::move(dict));
}

Namespace* Runtime::MakeNamespace() {
  Allocate(sizeof(Namespace));
  return namespaces_.emplace_back(std::make_unique<Namespace>()).get();
}

Loop* Runtime::MakeLoop() {
  Allocate(sizeof(Loop));
  return loops_.emplace_back(std::make_unique<Loop>()).get();
}

std::string Runtime::Str(const Value& v) {
  std::string out;
  if (Status s = AppendStr(v, limits_.max_output_bytes, out); !s.ok()) Fail(s);
  Allocate(out.size());
  return out;
}

MarkedText Runtime::MarkedStr(const Value& v) {
  if (v.is_string()) {
    Allocate(v.as_text().size() + v.as_text().data().size() * sizeof(ByteSpan));
    return v.as_text();
  }
  std::string text = Str(v);
  return v.HasData() ? MarkedText::FromData(std::move(text)) : MarkedText(std::move(text));
}

bool Runtime::Append(const Value& v, MarkedText& out) {
  if (!ok()) return false;
  const size_t limit = limits_.max_output_bytes;
  if (v.is_string()) {
    if (v.as_string().size() <= limit) out.Append(v.as_text());
  } else {
    std::string text;
    if (Status s = AppendStr(v, limit, text); !s.ok()) {
      Fail(s);
      return false;
    }
    if (v.HasData()) {
      out.AppendData(text);
    } else {
      out.Append(text);
    }
  }
  if (out.size() > limit || (v.is_string() && v.as_string().size() > limit)) {
    Fail(OutOfRangeError("a text grows beyond {} bytes", limit));
  }
  return ok();
}

bool Runtime::Equal(const Value& a, const Value& b) {
  int64_t left = steps_left_;
  const bool equal = Equals(a, b, &left);
  // With nothing left the answer is not known: one step more than there are makes that an error.
  Charge(left > 0 ? steps_left_ - left : steps_left_ + 1);
  return equal && ok();
}

bool Runtime::Less(const Value& a, const Value& b) {
  if (!Charge()) return false;
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return AsDouble(a) < AsDouble(b);
    return AsInt(a) < AsInt(b);
  }
  if (a.is_string() && b.is_string()) {
    ChargeBytes(std::min(a.as_string().size(), b.as_string().size()));
    // UTF-8 sorts as the code points do.
    return a.as_string() < b.as_string();
  }
  if (a.is_list() && b.is_list() && a.as_list().flavor == b.as_list().flavor) {
    const auto& x = a.as_list().items;
    const auto& y = b.as_list().items;
    for (size_t i = 0; i < x.size() && i < y.size() && ok(); ++i) {
      if (!Equal(x[i], y[i])) return Less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  FailType("cannot order values of types {} and {}", TypeName(a), TypeName(b));
  return false;
}

std::shared_ptr<const List> Runtime::Items(const Value& v) {
  static const auto* const kEmpty = new std::shared_ptr<const List>(std::make_shared<List>());
  if (v.is_list()) return v.list_ptr();
  std::vector<Value> items;
  if (v.is_dict()) {
    const DataContext context(*this, v.HasData());
    for (const auto& [key, value] : v.as_dict().items) {
      if (!ok()) break;
      items.push_back(String(key));
    }
  } else if (v.is_string()) {
    const MarkedText& text = v.as_text();
    for (size_t pos = 0; pos < text.size() && ok();) {
      const DecodedChar c = DecodeChar(text.text(), pos);
      items.push_back(Text(text.Part(pos, pos + c.size)));
      pos += c.size;
    }
  } else if (!v.is_undefined()) {
    FailType("a value of type {} cannot be iterated over", TypeName(v));
  }
  if (items.empty()) return *kEmpty;
  const Value list = MakeList(List::Flavor::kIterator, std::move(items));
  return list.is_list() ? list.list_ptr() : *kEmpty;
}

int64_t Runtime::Length(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: {
      ChargeBytes(v.as_string().size());
      int64_t count = 0;
      for (const char c : v.as_string()) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
      return count;
    }
    case Kind::kDict: return static_cast<int64_t>(v.as_dict().items.size());
    case Kind::kList:
      if (v.as_list().flavor != List::Flavor::kIterator) {
        return static_cast<int64_t>(v.as_list().items.size());
      }
      [[fallthrough]];
    default: FailType("a value of type {} has no length", TypeName(v)); return 0;
  }
}

}  // namespace tandem::jinja
