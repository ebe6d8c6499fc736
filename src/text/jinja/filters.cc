// Filters: bodies and tables, declared in builtins.h.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/number_format.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

using Flavor = List::Flavor;

// --- text ---

Value Trim(Runtime& rt, Arguments args) {
  const MarkedText text = rt.MarkedStr(*args[0]);
  rt.ChargeBytes(text.size());
  if (!Given(args, 1)) return rt.Text(text.Part(StripSpace(text.text(), Side::kBoth)));
  const std::string chars = StringOr(rt, args, 1, "");
  return rt.Text(text.Part(StripChars(text.text(), chars, Side::kBoth)));
}

template <std::string (*kFunction)(std::string_view)>
Value MapText(Runtime& rt, Arguments args) {
  const std::string text = rt.Str(*args[0]);
  rt.ChargeBytes(text.size() * 8);
  return rt.String(kFunction(text));
}

// Jinja's filter, unlike Python's method: words begin after spaces and - ( { [ <.
std::string TitleWords(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto is_border = [](char32_t c) {
    return IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t pos = 0; pos <= text.size();) {
    const DecodedChar c = pos < text.size() ? DecodeChar(text, pos) : DecodedChar{' ', 1, true};
    if (is_border(c.code)) {
      const std::string_view word = text.substr(begin, pos - begin);
      if (!word.empty()) {
        const size_t first = DecodeChar(word, 0).size;
        out += ToUpper(word.substr(0, first)) + ToLower(word.substr(first));
      }
      if (pos < text.size()) out.append(text, pos, c.size);
      begin = pos + c.size;
    }
    pos += c.size;
  }
  return out;
}

Value Replace(Runtime& rt, Arguments args) {
  const Value text = rt.Text(rt.MarkedStr(*args[0]));
  const Value from = rt.Text(rt.MarkedStr(*args[1]));
  const Value to = rt.Text(rt.MarkedStr(*args[2]));
  const Value count = Given(args, 3) ? *args[3] : Value(int64_t{-1});
  const std::optional<Value> forwarded[] = {text, from, to, count};
  if (!rt.ok()) return Value();
  return CallMethod(rt, *FindMethod("replace"), forwarded);
}

Value Indent(Runtime& rt, Arguments args) {
  std::string text = rt.Str(*args[0]);
  std::string indentation;
  if (Given(args, 1) && args[1]->is_string()) {
    indentation = args[1]->as_string();
  } else {
    const int64_t width = IntOr(rt, args, 1, 4);
    if (width > 1000) return rt.FailType("indent by {} is too wide", width);
    indentation.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool first = TruthOr(args, 2, false);
  const bool blank = TruthOr(args, 3, false);
  text += '\n';
  const std::vector<std::string_view> lines = SplitLines(text);
  rt.Charge(static_cast<int64_t>(lines.size()));
  if (lines.size() * (indentation.size() + 1) + text.size() > rt.limits().max_output_bytes) {
    return rt.Fail(OutOfRangeError("a text grows beyond {} bytes", rt.limits().max_output_bytes));
  }
  std::string out = first ? indentation : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) out += indentation;
    }
    out += lines[i];
  }
  return rt.String(std::move(out));
}

Value StringOf(Runtime& rt, Arguments args) {
  if (args[0]->is_string()) return *args[0];
  return rt.String(rt.Str(*args[0]));
}

Value Identity(Runtime&, Arguments args) { return *args[0]; }

Value ToJsonFilter(Runtime& rt, Arguments args) {
  JsonStyle style;
  style.ensure_ascii = TruthOr(args, 1, false);
  if (Given(args, 2) && !args[2]->is_none()) {
    style.indent = IntOr(rt, args, 2, 0);
    style.item_separator = ",";
    if (*style.indent > 64) return rt.FailType("tojson: indent {} is too wide", *style.indent);
  }
  if (Given(args, 3) && !args[3]->is_none()) {
    const Value& separators = *args[3];
    const bool pair = separators.is_list() && separators.as_list().items.size() == 2 &&
                      separators.as_list().items[0].is_string() &&
                      separators.as_list().items[1].is_string();
    if (!pair) return rt.FailType("tojson: separators must be two strings");
    style.item_separator = separators.as_list().items[0].as_string();
    style.key_separator = separators.as_list().items[1].as_string();
  }
  style.sort_keys = TruthOr(args, 4, false);
  return rt.String(ToJson(rt, *args[0], style));
}

// The last word that would be cut goes as a whole, unless `killwords`.
Value Truncate(Runtime& rt, Arguments args) {
  const MarkedText text = rt.MarkedStr(*args[0]);
  const int64_t length = IntOr(rt, args, 1, 255);
  const bool kill_words = TruthOr(args, 2, false);
  const Value end = Given(args, 3) ? *args[3] : Value::MakeString("...");
  const int64_t leeway = Given(args, 4) && !args[4]->is_none() ? IntOr(rt, args, 4, 0) : 5;
  if (!end.is_string()) return rt.FailType("truncate: the end must be a string");
  const int64_t end_length = CountCharacters(end.as_string());
  if (length < end_length || leeway < 0) {
    return rt.FailType("truncate: the length is below that of the end, or the leeway below 0");
  }
  rt.ChargeBytes(text.size());
  if (CountCharacters(text.text()) <= length + leeway) return rt.Text(text);
  std::string_view kept = FirstCharacters(text.text(), length - end_length);
  if (const size_t blank = kept.rfind(' '); !kill_words && blank != std::string_view::npos) {
    kept = kept.substr(0, blank);
  }
  MarkedText out = text.Part(kept);
  out.Append(end.as_text());
  return rt.Text(std::move(out));
}

Value Center(Runtime& rt, Arguments args) {
  const Value text = rt.Text(rt.MarkedStr(*args[0]));
  const std::optional<Value> forwarded[] = {text, Given(args, 1) ? *args[1] : Value(int64_t{80})};
  return rt.ok() ? CallMethod(rt, *FindMethod("center"), forwarded) : Value();
}

// --- numbers ---

// Python's float(text); none for what it rejects.
std::optional<double> ParseFloat(std::string_view text) {
  text = StripSpace(text, Side::kBoth);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return std::nullopt;
  }
  double v = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (parsed.ec != std::errc()) return std::nullopt;
  return v;
}

Value FloatToInt(Runtime& rt, double v, const Value& fallback) {
  if (!std::isfinite(v)) return fallback;
  if (!(v > -0x1p63 && v < 0x1p63)) return rt.FailType("an integer does not fit in 64 bits");
  return Value(static_cast<int64_t>(v));
}

Value ToInteger(Runtime& rt, Arguments args) {
  const Value fallback = Given(args, 1) ? *args[1] : Value(int64_t{0});
  const int64_t base = IntOr(rt, args, 2, 10);
  if (base != 10)
    return rt.Fail(UnimplementedError("int with a base other than 10 is not supported"));
  const Value& v = *args[0];
  if (v.is_int()) return v;
  if (v.is_bool()) return Value(int64_t{v.as_bool()});
  if (v.is_float()) return FloatToInt(rt, v.as_float(), fallback);
  if (!v.is_string()) return fallback;
  std::string_view text = StripSpace(v.as_string(), Side::kBoth);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  int64_t i = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), i);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && !text.empty()) {
    return Value(i);
  }
  const auto number = ParseFloat(v.as_string());
  return number ? FloatToInt(rt, *number, fallback) : fallback;
}

Value ToFloat(Runtime& rt, Arguments args) {
  const Value& v = *args[0];
  const Value fallback = Given(args, 1) ? *args[1] : Value(0.0);
  if (v.is_float()) return v;
  if (v.is_int()) return Value(static_cast<double>(v.as_int()));
  if (v.is_bool()) return Value(v.as_bool() ? 1.0 : 0.0);
  if (!v.is_string()) return fallback;
  rt.ChargeBytes(v.as_string().size());
  const auto number = ParseFloat(v.as_string());
  return number ? Value(*number) : fallback;
}

Value Abs(Runtime& rt, Arguments args) {
  const Value& v = *args[0];
  if (v.is_float()) return Value(std::fabs(v.as_float()));
  if (v.is_number() && Compare(rt, CompareOp::kGe, v, Value(int64_t{0}))) return Plus(rt, v);
  return Negate(rt, v);
}

// --- sequences ---

Value LengthOf(Runtime& rt, Arguments args) { return Value(rt.Length(*args[0])); }

Value Default(Runtime&, Arguments args) {
  const bool missing = args[0]->is_undefined() || (TruthOr(args, 2, false) && !args[0]->Truthy());
  if (!missing) return *args[0];
  return Given(args, 1) ? *args[1] : Value::MakeString("");
}

Value First(Runtime& rt, Arguments args) {
  const auto list = rt.Items(*args[0]);
  return list->items.empty() ? Value::MakeUndefined("there is no first item: the sequence is empty")
                             : list->items.front();
}

bool Reversible(const Value& v) { return !v.is_list() || v.as_list().flavor != Flavor::kIterator; }

Value Last(Runtime& rt, Arguments args) {
  if (!Reversible(*args[0])) return rt.FailType("last of an iterator; use the filter list first");
  const auto list = rt.Items(*args[0]);
  return list->items.empty() ? Value::MakeUndefined("there is no last item: the sequence is empty")
                             : list->items.back();
}

Value Reverse(Runtime& rt, Arguments args) {
  const Value& v = *args[0];
  if (v.is_string()) {
    const Value none(None{});
    return Slice(rt, v, none, none, Value(int64_t{-1}));
  }
  const auto list = rt.Items(v);
  return rt.MakeList(Flavor::kIterator,
                     std::vector<Value>(list->items.rbegin(), list->items.rend()));
}

Value ListOf(Runtime& rt, Arguments args) {
  return rt.MakeList(Flavor::kList, rt.Items(*args[0])->items);
}

Value ItemsOf(Runtime& rt, Arguments args) {
  const Value& v = *args[0];
  if (v.is_undefined()) return rt.MakeList(Flavor::kIterator, {});
  if (!v.is_dict()) return rt.FailType("items of a value of type {}", TypeName(v));
  std::vector<Value> pairs;
  for (const auto& [key, value] : v.as_dict().items) {
    if (!rt.ok()) break;
    pairs.push_back(rt.MakeList(Flavor::kTuple, {rt.String(key), value}));
  }
  return rt.MakeList(Flavor::kIterator, std::move(pairs));
}

Value Join(Runtime& rt, Arguments args) {
  const auto list = rt.Items(*args[0]);
  const MarkedText separator = Given(args, 1) ? rt.MarkedStr(*args[1]) : MarkedText();
  MarkedText out;
  for (size_t i = 0; i < list->items.size() && rt.Charge(); ++i) {
    if (i > 0) out.Append(separator);
    Value item = list->items[i];
    if (Given(args, 2)) item = Subscript(rt, item, *args[2]);
    if (!rt.Append(item, out)) return Value();
  }
  return rt.Text(std::move(out));
}

constexpr Builtin kStringFilters[] = {
    {"trim", Trim, {"chars"}},
    {"upper", MapText<ToUpper>},
    {"lower", MapText<ToLower>},
    {"capitalize", MapText<Capitalize>},
    {"title", MapText<TitleWords>},
    {"replace", Replace, {"old", "new", "count"}, 2},
    {"indent", Indent, {"width", "first", "blank"}},
    {"truncate", Truncate, {"length", "killwords", "end", "leeway"}},
    {"center", Center, {"width"}},
    {"string", StringOf},
    {"safe", Identity},
    {"tojson", ToJsonFilter, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"int", ToInteger, {"default", "base"}},
    {"float", ToFloat, {"default"}},
    {"abs", Abs},
};

constexpr Builtin kSequenceFilters[] = {
    {"length", LengthOf},
    {"count", LengthOf},
    {"default", Default, {"default_value", "boolean"}},
    {"d", Default, {"default_value", "boolean"}},
    {"first", First},
    {"last", Last},
    {"reverse", Reverse},
    {"list", ListOf},
    {"items", ItemsOf},
    {"join", Join, {"d", "attribute"}},
};

}  // namespace

std::span<const Builtin> StringFilters() { return kStringFilters; }
std::span<const Builtin> SequenceFilters() { return kSequenceFilters; }

}  // namespace tandem::jinja
