// Methods of strings and dicts, and the global functions: bodies and tables, declared in
// builtins.h.
#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/number_format.h"
#include "text/jinja/strings.h"
#include "text/unicode.h"

namespace tandem::jinja {
namespace {

using Flavor = List::Flavor;

// range() of Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;

const std::string& Self(Arguments args) { return args[0]->as_string(); }
// A part of the receiver's text, with its marks.
Value PartOfSelf(Runtime& rt, Arguments args, std::string_view part) {
  return rt.Text(args[0]->as_text().Part(part));
}

// --- str ---

template <Side kSide>
Value StripMethod(Runtime& rt, Arguments args) {
  rt.ChargeBytes(Self(args).size());
  if (!Given(args, 1) || args[1]->is_none()) {
    return PartOfSelf(rt, args, StripSpace(Self(args), kSide));
  }
  const std::string chars = StringOr(rt, args, 1, "");
  return PartOfSelf(rt, args, StripChars(Self(args), chars, kSide));
}

// startswith and endswith take one string or a tuple of them.
template <typename Matches>
Value AffixTest(Runtime& rt, Arguments args, Matches matches) {
  const Value& affix = *args[1];
  if (affix.is_string()) return Value(matches(affix.as_string()));
  if (!affix.is_list() || affix.as_list().flavor != Flavor::kTuple) {
    return rt.FailType("startswith and endswith need a string or a tuple of strings, not {}",
                       TypeName(affix));
  }
  for (const Value& v : affix.as_list().items) {
    if (!rt.Charge()) break;
    if (!v.is_string()) return rt.FailType("a tuple of strings holds a {}", TypeName(v));
    if (matches(v.as_string())) return Value(true);
  }
  return Value(false);
}

Value StartsWith(Runtime& rt, Arguments args) {
  return AffixTest(rt, args, [&](std::string_view affix) { return Self(args).starts_with(affix); });
}
Value EndsWith(Runtime& rt, Arguments args) {
  return AffixTest(rt, args, [&](std::string_view affix) { return Self(args).ends_with(affix); });
}

Value RemovePrefix(Runtime& rt, Arguments args) {
  const std::string prefix = StringOr(rt, args, 1, "");
  if (!Self(args).starts_with(prefix)) return *args[0];
  return PartOfSelf(rt, args, std::string_view(Self(args)).substr(prefix.size()));
}
Value RemoveSuffix(Runtime& rt, Arguments args) {
  const std::string suffix = StringOr(rt, args, 1, "");
  if (!Self(args).ends_with(suffix)) return *args[0];
  const std::string_view self = Self(args);
  return PartOfSelf(rt, args, self.substr(0, self.size() - suffix.size()));
}

// Splits at white space; at most `limit` times.
std::vector<Value> SplitAtSpace(Runtime& rt, Arguments args, int64_t limit) {
  std::string_view text = Self(args);
  std::vector<Value> parts;
  text = StripSpace(text, Side::kLeft);
  while (!text.empty() && rt.ok()) {
    if (static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(PartOfSelf(rt, args, text));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const DecodedChar c = DecodeChar(text, end);
      if (IsPythonSpace(c.code)) break;
      end += c.size;
    }
    parts.push_back(PartOfSelf(rt, args, text.substr(0, end)));
    text = StripSpace(text.substr(end), Side::kLeft);
  }
  return parts;
}

// Offsets of the matches of `needle`, none overlapping; at most `limit`.
std::vector<size_t> Matches(Runtime& rt, std::string_view text, std::string_view needle,
                            int64_t limit) {
  std::vector<size_t> found;
  rt.ChargeBytes(text.size());
  for (size_t from = 0; static_cast<int64_t>(found.size()) < limit && rt.Charge();) {
    // Each search prepares the needle again; the charge keeps that within the limits.
    rt.ChargeBytes(needle.size() * 2);
    const size_t at = FindText(text, needle, from);
    if (at == std::string_view::npos) break;
    found.push_back(at);
    from = at + needle.size();
  }
  return found;
}

int64_t LimitOf(int64_t count) { return count < 0 ? INT64_MAX : count; }

Value Split(Runtime& rt, Arguments args) {
  const std::string_view text = Self(args);
  const int64_t limit = LimitOf(IntOr(rt, args, 2, -1));
  if (!rt.ChargeBytes(text.size())) return Value();
  if (!Given(args, 1) || args[1]->is_none()) {
    return rt.MakeList(Flavor::kList, SplitAtSpace(rt, args, limit));
  }
  const std::string separator = StringOr(rt, args, 1, "");
  if (separator.empty()) return rt.FailType("split by an empty separator");
  std::vector<Value> parts;
  size_t begin = 0;
  for (const size_t at : Matches(rt, text, separator, limit)) {
    if (!rt.ok()) break;
    parts.push_back(PartOfSelf(rt, args, text.substr(begin, at - begin)));
    begin = at + separator.size();
  }
  parts.push_back(PartOfSelf(rt, args, text.substr(begin)));
  return rt.MakeList(Flavor::kList, std::move(parts));
}

Value RightSplit(Runtime& rt, Arguments args) {
  const std::string& text = Self(args);
  const std::string separator = StringOr(rt, args, 1, "");
  const int64_t limit = LimitOf(IntOr(rt, args, 2, -1));
  if (separator.empty()) return rt.FailType("rsplit needs a separator that is not empty");
  std::vector<Value> parts;
  std::string_view rest = text;
  while (static_cast<int64_t>(parts.size()) < limit && rt.Charge()) {
    rt.ChargeBytes(separator.size() * 2);
    const size_t at =
        separator.size() > rest.size() ? std::string_view::npos : FindLastText(rest, separator);
    if (at == std::string_view::npos) break;
    rt.ChargeBytes(rest.size() - at);
    parts.push_back(PartOfSelf(rt, args, rest.substr(at + separator.size())));
    rest = rest.substr(0, at);
  }
  parts.push_back(PartOfSelf(rt, args, rest));
  std::reverse(parts.begin(), parts.end());
  return rt.MakeList(Flavor::kList, std::move(parts));
}

Value SplitLinesMethod(Runtime& rt, Arguments args) {
  std::vector<Value> lines;
  rt.ChargeBytes(Self(args).size());
  for (const std::string_view line : SplitLines(Self(args))) {
    if (!rt.ok()) break;
    lines.push_back(PartOfSelf(rt, args, line));
  }
  return rt.MakeList(Flavor::kList, std::move(lines));
}

// Where Python's replace() puts `to` for an empty needle: before every character and at the end.
MarkedText Interleave(Runtime& rt, const MarkedText& text, const MarkedText& to, int64_t limit) {
  MarkedText out;
  size_t pos = 0;
  for (int64_t done = 0; done < limit && rt.Charge(); ++done) {
    if (out.size() > rt.limits().max_output_bytes) break;
    out.Append(to);
    if (pos == text.size()) return out;
    const size_t size = DecodeChar(text.text(), pos).size;
    out.AppendPart(text, pos, pos + size);
    pos += size;
  }
  out.AppendPart(text, pos, text.size());
  return out;
}

Value ReplaceMethod(Runtime& rt, Arguments args) {
  const MarkedText& text = args[0]->as_text();
  const std::string from = StringOr(rt, args, 1, "");
  StringOr(rt, args, 2, "");  // must be a string
  const int64_t limit = LimitOf(IntOr(rt, args, 3, -1));
  if (!rt.ok()) return Value();
  const MarkedText& to = args[2]->as_text();
  if (from.empty()) return rt.Text(Interleave(rt, text, to, limit));
  MarkedText out;
  size_t begin = 0;
  for (const size_t at : Matches(rt, text.text(), from, limit)) {
    out.AppendPart(text, begin, at);
    out.Append(to);
    begin = at + from.size();
    if (out.size() > rt.limits().max_output_bytes) break;
  }
  out.AppendPart(text, begin, text.size());
  return rt.Text(std::move(out));
}

template <bool kLast>
Value Find(Runtime& rt, Arguments args) {
  const std::string& text = Self(args);
  const std::string needle = StringOr(rt, args, 1, "");
  rt.ChargeBytes(text.size() + needle.size());
  const size_t at = kLast ? FindLastText(text, needle) : FindText(text, needle, 0);
  if (at == std::string::npos) return Value(int64_t{-1});
  return Value(CountCharacters(std::string_view(text).substr(0, at)));
}

Value Count(Runtime& rt, Arguments args) {
  const std::string needle = StringOr(rt, args, 1, "");
  if (needle.empty()) return Value(CountCharacters(Self(args)) + 1);
  return Value(static_cast<int64_t>(Matches(rt, Self(args), needle, INT64_MAX).size()));
}

// ljust, rjust, center.
template <char kAlign>
Value Justify(Runtime& rt, Arguments args) {
  FormatSpec spec;
  spec.width = std::max<int64_t>(IntOr(rt, args, 1, 0), 0);
  spec.fill = StringOr(rt, args, 2, " ");
  spec.align = kAlign;
  if (spec.fill.size() > 4 || CountCharacters(spec.fill) != 1) {
    return rt.FailType("the filling must be one character");
  }
  const MarkedText& text = args[0]->as_text();
  rt.ChargeBytes(text.size());
  const int64_t missing = spec.width - CountCharacters(text.text());
  if (missing <= 0) return *args[0];
  if (spec.width > static_cast<int64_t>(rt.limits().max_output_bytes)) {
    return rt.Fail(OutOfRangeError("a text grows beyond {} bytes", rt.limits().max_output_bytes));
  }
  const bool data = Given(args, 2) && args[2]->HasData();
  MarkedText out;
  if (kAlign == '^' && missing % 2 == 1 && spec.width % 2 == 1) {
    // Python puts the odd one to the left here.
    FormatSpec one = spec;
    one.align = '>';
    one.width = spec.width - missing + 1;
    AppendField(rt, text, one, '>', data, out);
    AppendField(rt, MarkedText(std::exchange(out, {})), spec, '^', data, out);
  } else {
    AppendField(rt, text, spec, kAlign, data, out);
  }
  return rt.Text(std::move(out));
}

Value ZeroFill(Runtime& rt, Arguments args) {
  const std::string& text = Self(args);
  const bool has_sign = text.starts_with('+') || text.starts_with('-');
  FormatSpec spec;
  spec.width = std::max<int64_t>(IntOr(rt, args, 1, 0), 0) - (has_sign ? 1 : 0);
  spec.fill.assign(1, '0');
  if (spec.width > static_cast<int64_t>(rt.limits().max_output_bytes)) {
    return rt.Fail(OutOfRangeError("a text grows beyond {} bytes", rt.limits().max_output_bytes));
  }
  const MarkedText& marked = args[0]->as_text();
  MarkedText out = marked.Part(0, has_sign ? 1 : 0);
  AppendField(rt, marked.Part(has_sign ? 1 : 0, marked.size()), spec, '>', false, out);
  return rt.Text(std::move(out));
}

template <bool kLast>
Value Index(Runtime& rt, Arguments args) {
  const Value at = Find<kLast>(rt, args);
  if (at.is_int() && at.as_int() < 0) return rt.FailType("index: the text does not occur");
  return at;
}

template <bool kUpper>
Value IsCased(Runtime& rt, Arguments args) {
  rt.ChargeBytes(Self(args).size() * 16);
  const std::string upper = ToUpper(Self(args));
  const std::string lower = ToLower(Self(args));
  return Value(upper != lower && Self(args) == (kUpper ? upper : lower));
}

template <std::string (*kFunction)(std::string_view)>
Value MapText(Runtime& rt, Arguments args) {
  rt.ChargeBytes(Self(args).size() * 8);
  return rt.String(kFunction(Self(args)));
}

Value JoinMethod(Runtime& rt, Arguments args) {
  const auto list = rt.Items(*args[1]);
  MarkedText out;
  for (size_t i = 0; i < list->items.size() && rt.Charge(); ++i) {
    if (!list->items[i].is_string()) {
      return rt.FailType("join: item {} is a {}, not a string", i, TypeName(list->items[i]));
    }
    if (i > 0) out.Append(args[0]->as_text());
    out.Append(list->items[i].as_text());
    if (out.size() > rt.limits().max_output_bytes) break;
  }
  return rt.Text(std::move(out));
}

template <bool kLast>
Value Partition(Runtime& rt, Arguments args) {
  const std::string_view text = Self(args);
  const std::string separator = StringOr(rt, args, 1, "");
  if (!rt.ok()) return Value();
  if (separator.empty()) return rt.FailType("partition by an empty separator");
  rt.ChargeBytes(text.size() + separator.size());
  size_t at = separator.size() > text.size() ? std::string_view::npos
              : kLast                        ? FindLastText(text, separator)
                                             : FindText(text, separator, 0);
  size_t end = at + separator.size();
  if (at == std::string_view::npos) at = end = kLast ? 0 : text.size();
  return rt.MakeList(Flavor::kTuple, {PartOfSelf(rt, args, text.substr(0, at)),
                                      PartOfSelf(rt, args, text.substr(at, end - at)),
                                      PartOfSelf(rt, args, text.substr(end))});
}

// Whether the text is not empty and all its characters are of a kind.
template <bool (*kPredicate)(char32_t)>
Value AllOf(Runtime& rt, Arguments args) {
  const std::string& text = Self(args);
  rt.ChargeBytes(text.size() * 4);
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (!kPredicate(c.code)) return Value(false);
    pos += c.size;
  }
  return Value(!text.empty());
}

bool IsLetter(char32_t code) { return ClassOf(code) == CharClass::kLetter; }
bool IsLetterOrNumber(char32_t code) {
  return IsLetter(code) || ClassOf(code) == CharClass::kNumber;
}

// Python counts superscripts and circled numbers among the digits too.
Value IsDigit(Runtime& rt, Arguments args) {
  const std::string& text = Self(args);
  rt.ChargeBytes(text.size() * 4);
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = DecodeChar(text, pos);
    if (ClassOf(c.code) != CharClass::kNumber) return Value(false);
    if (c.code >= 0x80) {
      return rt.Fail(UnimplementedError("isdigit of numbers outside of ASCII is not supported"));
    }
    pos += c.size;
  }
  return Value(!text.empty());
}

// --- dict ---

Value Get(Runtime& rt, Arguments args) {
  if (!args[1]->is_string()) {
    return rt.FailType("get needs a string as key, not {}", TypeName(*args[1]));
  }
  if (const Value* found = args[0]->as_dict().Find(args[1]->as_string())) return *found;
  return Given(args, 2) ? *args[2] : Value(None{});
}

enum class Part { kKeys, kValues, kItems };

template <Part kPart>
Value View(Runtime& rt, Arguments args) {
  std::vector<Value> out;
  for (const auto& [key, value] : args[0]->as_dict().items) {
    if (!rt.ok()) break;
    if (kPart == Part::kValues) {
      out.push_back(value);
    } else if (kPart == Part::kKeys) {
      out.push_back(rt.String(key));
    } else {
      out.push_back(rt.MakeList(Flavor::kTuple, {rt.String(key), value}));
    }
  }
  return rt.MakeList(Flavor::kView, std::move(out));
}

// --- list ---

bool CanBeCounted(const Value& v) {
  return v.as_list().flavor != Flavor::kView && v.as_list().flavor != Flavor::kIterator;
}

Value CountItems(Runtime& rt, Arguments args) {
  if (!CanBeCounted(*args[0])) return rt.FailType("an iterator has no method 'count'");
  int64_t count = 0;
  for (const Value& item : args[0]->as_list().items) count += rt.Equal(item, *args[1]) ? 1 : 0;
  return Value(count);
}

Value IndexOfItem(Runtime& rt, Arguments args) {
  if (!CanBeCounted(*args[0])) return rt.FailType("an iterator has no method 'index'");
  const auto& items = args[0]->as_list().items;
  for (size_t i = 0; i < items.size() && rt.ok(); ++i) {
    if (rt.Equal(items[i], *args[1])) return Value(static_cast<int64_t>(i));
  }
  return rt.FailType("index: the value is not in the list");
}

// --- loop ---

Value Changed(Runtime& rt, Arguments args) {
  std::vector<Value> values;
  for (size_t i = 1; i < args.size() && Given(args, i); ++i) values.push_back(*args[i]);
  std::vector<Value>& last = args[0]->as_loop().last_changed;
  const auto equal = [&rt](const Value& a, const Value& b) { return rt.Equal(a, b); };
  if (std::equal(values.begin(), values.end(), last.begin(), last.end(), equal)) {
    return Value(false);
  }
  last = std::move(values);
  return Value(true);
}

Value Cycle(Runtime&, Arguments args) {
  size_t count = 1;
  while (count + 1 < args.size() && Given(args, count + 1)) ++count;
  return *args[1 + args[0]->as_loop().index0 % count];
}

// --- functions ---

// The local time as C's strftime writes it. Directives are those that Python documents.
Value StrftimeNow(Runtime& rt, Arguments args) {
  const std::string format = StringOr(rt, args, 0, "");
  constexpr size_t kMaxFormatBytes = 256;
  if (format.size() > kMaxFormatBytes) {
    return rt.Fail(OutOfRangeError("strftime_now: a format longer than {} bytes", kMaxFormatBytes));
  }
  if (format.find('\0') != std::string::npos)
    return rt.FailType("strftime_now: a NUL in the format");
  constexpr std::string_view kDirectives = "aAwdbBmyYHIMSpjUWcxXeFTDRGVun%";
  for (size_t i = format.find('%'); i < format.size(); i = format.find('%', i + 1)) {
    if (i + 1 < format.size() && format[i + 1] == '-') ++i;  // no padding
    if (++i == format.size() || kDirectives.find(format[i]) == std::string_view::npos) {
      return rt.Fail(UnimplementedError("strftime_now: the format '{}' is not supported", format));
    }
  }
  // One byte more, so that an empty result differs from one that does not fit.
  std::string out(kMaxFormatBytes * 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), (format + "x").c_str(), &rt.now()));
  if (!out.empty()) out.pop_back();
  return rt.String(std::move(out));
}

Value RaiseException(Runtime& rt, Arguments args) {
  return rt.FailType("the chat template refuses: {}", rt.Str(*args[0]));
}

Value Range(Runtime& rt, Arguments args) {
  int64_t start = 0;
  int64_t stop = IntOr(rt, args, 0, 0);
  if (Given(args, 1)) {
    start = stop;
    stop = IntOr(rt, args, 1, 0);
  }
  const int64_t step = IntOr(rt, args, 2, 1);
  if (step == 0) return rt.FailType("range: the step is 0");
  std::vector<Value> items;
  for (__int128 i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      return rt.Fail(OutOfRangeError("range: more than {} items", kMaxRange));
    }
    items.push_back(Value(static_cast<int64_t>(i)));
  }
  return rt.MakeList(Flavor::kRange, std::move(items));
}

constexpr Builtin kMethods[] = {
    {"strip", StripMethod<Side::kBoth>, {"chars"}, 0, Kind::kString},
    {"lstrip", StripMethod<Side::kLeft>, {"chars"}, 0, Kind::kString},
    {"rstrip", StripMethod<Side::kRight>, {"chars"}, 0, Kind::kString},
    {"startswith", StartsWith, {"prefix"}, 1, Kind::kString},
    {"endswith", EndsWith, {"suffix"}, 1, Kind::kString},
    {"removeprefix", RemovePrefix, {"prefix"}, 1, Kind::kString},
    {"removesuffix", RemoveSuffix, {"suffix"}, 1, Kind::kString},
    {"split", Split, {"sep", "maxsplit"}, 0, Kind::kString},
    {"rsplit", RightSplit, {"sep", "maxsplit"}, 1, Kind::kString},
    {"splitlines", SplitLinesMethod, {}, 0, Kind::kString},
    {"replace", ReplaceMethod, {"old", "new", "count"}, 2, Kind::kString},
    {"partition", Partition<false>, {"sep"}, 1, Kind::kString},
    {"rpartition", Partition<true>, {"sep"}, 1, Kind::kString},
    {"isspace", AllOf<IsPythonSpace>, {}, 0, Kind::kString},
    {"isalpha", AllOf<IsLetter>, {}, 0, Kind::kString},
    {"isdigit", IsDigit, {}, 0, Kind::kString},
    {"find", Find<false>, {"sub"}, 1, Kind::kString},
    {"rfind", Find<true>, {"sub"}, 1, Kind::kString},
    {"count", Count, {"sub"}, 1, Kind::kString},
    {"index", Index<false>, {"sub"}, 1, Kind::kString},
    {"rindex", Index<true>, {"sub"}, 1, Kind::kString},
    {"ljust", Justify<'<'>, {"width", "fillchar"}, 1, Kind::kString},
    {"rjust", Justify<'>'>, {"width", "fillchar"}, 1, Kind::kString},
    {"center", Justify<'^'>, {"width", "fillchar"}, 1, Kind::kString},
    {"zfill", ZeroFill, {"width"}, 1, Kind::kString},
    {"isalnum", AllOf<IsLetterOrNumber>, {}, 0, Kind::kString},
    {"isupper", IsCased<true>, {}, 0, Kind::kString},
    {"islower", IsCased<false>, {}, 0, Kind::kString},
    {"upper", MapText<ToUpper>, {}, 0, Kind::kString},
    {"lower", MapText<ToLower>, {}, 0, Kind::kString},
    {"capitalize", MapText<Capitalize>, {}, 0, Kind::kString},
    {"title", MapText<TitleCase>, {}, 0, Kind::kString},
    {"join", JoinMethod, {"iterable"}, 1, Kind::kString},
    {"get", Get, {"key", "default"}, 1, Kind::kDict},
    {"keys", View<Part::kKeys>, {}, 0, Kind::kDict},
    {"values", View<Part::kValues>, {}, 0, Kind::kDict},
    {"items", View<Part::kItems>, {}, 0, Kind::kDict},
    {"count", CountItems, {"value"}, 1, Kind::kList},
    {"index", IndexOfItem, {"value"}, 1, Kind::kList},
    {"cycle", Cycle, {"a", "b", "c", "d"}, 1, Kind::kLoop},
    {"changed", Changed, {"a", "b", "c", "d"}, 1, Kind::kLoop},
};

constexpr Builtin kFunctions[] = {
    {"raise_exception", RaiseException, {"message"}, 1},
    {"range", Range, {"start", "stop", "step"}, 1},
    {"strftime_now", StrftimeNow, {"format"}, 1},
};

// What Python's types have by name, whether or not this interpreter can call it.
constexpr std::string_view kStrAttributes[] = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::string_view kDictAttributes[] = {"clear",      "copy",   "fromkeys", "get",
                                                "items",      "keys",   "pop",      "popitem",
                                                "setdefault", "update", "values"};
constexpr std::string_view kListAttributes[] = {"append", "clear",   "copy",   "count",
                                                "extend", "index",   "insert", "pop",
                                                "remove", "reverse", "sort"};

bool Among(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto it =
      std::find_if(table.begin(), table.end(), [name](const Builtin& b) { return b.name == name; });
  return it == table.end() ? nullptr : &*it;
}

}  // namespace

std::span<const Builtin> Methods() { return kMethods; }
std::span<const Builtin> Functions() { return kFunctions; }

const Builtin* FindFilter(std::string_view name) {
  for (const auto table : {StringFilters(), SequenceFilters(), CollectionFilters()}) {
    if (const Builtin* const found = FindIn(table, name)) return found;
  }
  return nullptr;
}
const Builtin* FindTest(std::string_view name) { return FindIn(Tests(), name); }
const Builtin* FindMethod(std::string_view name) { return FindIn(Methods(), name); }
const Builtin* FindFunction(std::string_view name) { return FindIn(Functions(), name); }

bool HasPythonAttribute(const Value& v, std::string_view name) {
  if (v.is_string()) return Among(kStrAttributes, name);
  if (v.is_dict()) return Among(kDictAttributes, name);
  if (v.is_list() && v.as_list().flavor == Flavor::kList) return Among(kListAttributes, name);
  if (v.is_list() && v.as_list().flavor == Flavor::kTuple)
    return name == "count" || name == "index";
  return false;
}

Value CallMethod(Runtime& rt, const Builtin& method, Arguments arguments) {
  const Value& receiver = *arguments[0];
  if (receiver.is_undefined()) return rt.FailType("{}", receiver.undefined_reason());
  if (receiver.kind() != method.receiver) {
    // Another type's method of the same name takes as many arguments.
    for (const Builtin& other : kMethods) {
      if (other.name == method.name && other.receiver == receiver.kind()) {
        return other.call(rt, arguments);
      }
    }
    return rt.FailType("'{} object' has no method '{}'", TypeName(receiver), method.name);
  }
  return method.call(rt, arguments);
}

bool Given(Arguments arguments, size_t i) {
  return i < arguments.size() && arguments[i].has_value();
}

std::string StringOr(Runtime& rt, Arguments arguments, size_t i, std::string_view fallback) {
  if (!Given(arguments, i)) return std::string(fallback);
  if (arguments[i]->is_string()) {
    rt.Allocate(arguments[i]->as_string().size());
    return arguments[i]->as_string();
  }
  rt.FailType("an argument must be a string, not {}", TypeName(*arguments[i]));
  return std::string(fallback);
}

int64_t IntOr(Runtime& rt, Arguments arguments, size_t i, int64_t fallback) {
  if (!Given(arguments, i)) return fallback;
  if (arguments[i]->is_int()) return arguments[i]->as_int();
  if (arguments[i]->is_bool()) return int64_t{arguments[i]->as_bool()};
  rt.FailType("an argument must be an integer, not {}", TypeName(*arguments[i]));
  return fallback;
}

bool TruthOr(Arguments arguments, size_t i, bool fallback) {
  return Given(arguments, i) ? arguments[i]->Truthy() : fallback;
}

}  // namespace tandem::jinja
