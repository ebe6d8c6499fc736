#include "text/tool_parameters.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/json_object_scanner.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint8_t kString = 1;
constexpr uint8_t kNumber = 2;
constexpr uint8_t kBoolean = 4;
constexpr uint8_t kNull = 8;
constexpr uint8_t kObject = 16;
constexpr uint8_t kArray = 32;
constexpr uint8_t kUnknown = 0;  // any type

// Of schemas inside anyOf and the like.
constexpr int kMaxSchemaDepth = 8;
constexpr int kMaxLiteralDepth = 64;
constexpr std::string_view kSpaces = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

uint8_t TypeNamed(const Json& name) {
  if (!name.is_string()) return kUnknown;
  constexpr std::pair<std::string_view, uint8_t> kTypes[] = {
      {"string", kString}, {"integer", kNumber}, {"number", kNumber}, {"boolean", kBoolean},
      {"null", kNull},     {"object", kObject},  {"array", kArray}};
  for (const auto& [word, type] : kTypes) {
    if (name.get_ref<const std::string&>() == word) return type;
  }
  return kUnknown;
}

uint8_t TypeOfValue(const Json& value) {
  if (value.is_string()) return kString;
  if (value.is_number()) return kNumber;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  return value.is_object() ? kObject : kArray;
}

uint8_t TypesOf(const Json& schema, int depth);

// All that any of `list` allows; unknown where one is.
template <typename TypeOf>
uint8_t Union(const Json& list, TypeOf type_of) {
  uint8_t types = kUnknown;
  for (const Json& entry : list) {
    const uint8_t one = type_of(entry);
    if (one == kUnknown) return kUnknown;
    types |= one;
  }
  return types;
}

uint8_t TypesOf(const Json& schema, int depth) {
  if (!schema.is_object() || depth > kMaxSchemaDepth) return kUnknown;
  if (const auto type = schema.find("type"); type != schema.end()) {
    return type->is_array() ? Union(*type, TypeNamed) : TypeNamed(*type);
  }
  for (const char* word : {"anyOf", "oneOf"}) {
    const auto list = schema.find(word);
    if (list == schema.end() || !list->is_array()) continue;
    return Union(*list, [depth](const Json& one) { return TypesOf(one, depth + 1); });
  }
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    return Union(*values, TypeOfValue);
  }
  if (const auto value = schema.find("const"); value != schema.end()) return TypeOfValue(*value);
  return kUnknown;
}

// The type of a JSON value by its first character; nothing where the text is no JSON.
std::optional<uint8_t> TypeOfJson(std::string_view text) {
  if (text.empty()) return std::nullopt;
  JsonObjectScanner scanner;
  for (const std::string_view part : {std::string_view("{\"\":"), text, std::string_view("}")}) {
    size_t taken = 0;
    while (taken < part.size() && scanner.state() == JsonObjectScanner::State::kOpen) {
      taken += scanner.Consume(part.substr(taken));
    }
    if (taken < part.size()) return std::nullopt;
  }
  if (scanner.state() != JsonObjectScanner::State::kDone || scanner.members().size() != 1) {
    return std::nullopt;
  }
  switch (text.front()) {
    case '"': return kString;
    case '{': return kObject;
    case '[': return kArray;
    case 't':
    case 'f': return kBoolean;
    case 'n': return kNull;
    default: return kNumber;
  }
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// A recursive descent over one literal; each method takes what it names and says whether it was
// there.
class PythonReader {
 public:
  explicit PythonReader(std::string_view text) : text_(text) {}

  std::optional<std::string> Read() {
    if (!Value(0)) return std::nullopt;
    SkipSpace();
    if (pos_ != text_.size()) return std::nullopt;
    return std::move(json_);
  }

 private:
  bool Value(int depth) {
    SkipSpace();
    if (pos_ == text_.size() || depth > kMaxLiteralDepth) return false;
    const char c = text_[pos_];
    if (c == '"' || c == '\'') return String();
    if (c == '[') return List(']', depth);
    if (c == '(') return List(')', depth);
    if (c == '{') return Dict(depth);
    if (IsDigit(c) || c == '-' || c == '+' || c == '.') return Number();
    constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"},
        {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (const auto& [word, json] : kWords) {
      if (!text_.substr(pos_).starts_with(word)) continue;
      pos_ += word.size();
      json_ += json;
      return true;
    }
    return false;
  }

  bool List(char close, int depth) {
    ++pos_;
    const size_t begin = json_.size();
    json_ += '[';
    size_t values = 0;
    bool comma = false;
    for (; !Take(close); ++values) {
      if (values > 0) json_ += ", ";
      if (!Value(depth + 1)) return false;
      comma = Take(',');
      if (!comma && !At(close)) return false;
    }
    if (close == ')' && values == 1 && !comma) {
      json_.erase(begin, 1);  // a value in brackets, no tuple
    } else {
      json_ += ']';
    }
    return true;
  }

  bool Dict(int depth) {
    ++pos_;
    json_ += '{';
    for (bool first = true; !Take('}'); first = false) {
      if (!first) json_ += ", ";
      SkipSpace();
      if (pos_ == text_.size() || (text_[pos_] != '"' && text_[pos_] != '\'')) return false;
      if (!String() || !Take(':')) return false;
      json_ += ": ";
      if (!Value(depth + 1)) return false;
      if (!Take(',') && !At('}')) return false;
    }
    json_ += '}';
    return true;
  }

  bool Number() {
    if (text_[pos_] == '-') json_ += '-';
    if (text_[pos_] == '-' || text_[pos_] == '+') ++pos_;
    const std::string_view whole = Digits();
    if (whole.size() > 1 && whole.front() == '0') return false;
    json_ += whole.empty() ? std::string_view("0") : whole;
    if (pos_ < text_.size() && text_[pos_] == '.') {
      ++pos_;
      const std::string_view fraction = Digits();
      if (whole.empty() && fraction.empty()) return false;
      json_ += '.';
      json_ += fraction.empty() ? std::string_view("0") : fraction;
    } else if (whole.empty()) {
      return false;
    }
    if (pos_ == text_.size() || (text_[pos_] != 'e' && text_[pos_] != 'E')) return true;
    json_ += text_[pos_++];
    if (pos_ < text_.size() && (text_[pos_] == '-' || text_[pos_] == '+')) json_ += text_[pos_++];
    const std::string_view exponent = Digits();
    json_ += exponent;
    return !exponent.empty();
  }

  std::string_view Digits() {
    const size_t begin = pos_;
    while (pos_ < text_.size() && IsDigit(text_[pos_])) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }

  bool String() {
    const char quote = text_[pos_++];
    std::string value;
    while (pos_ < text_.size() && text_[pos_] != quote) {
      if (text_[pos_] == '\\') {
        if (!Escape(value)) return false;
      } else {
        value += text_[pos_++];
      }
    }
    if (pos_ == text_.size()) return false;
    ++pos_;
    json_ += JsonQuoted(value);
    return true;
  }

  bool Escape(std::string& value) {
    ++pos_;
    if (pos_ == text_.size()) return false;
    const char c = text_[pos_++];
    constexpr std::string_view kPlain = "\\'\"nrtbfav";
    constexpr std::string_view kMeaning = "\\'\"\n\r\t\b\f\a\v";
    if (const size_t at = kPlain.find(c); at != std::string_view::npos) {
      value += kMeaning[at];
      return true;
    }
    if (c == '\n') return true;  // joins two lines
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      // Python keeps an escape that it does not know.
      value += '\\';
      value += c;
      return true;
    }
    std::optional<char32_t> code = Hex(digits);
    if (!code) return false;
    if (*code >= 0xD800 && *code < 0xDC00 && text_.substr(pos_).starts_with("\\u")) {
      const size_t back = pos_;
      pos_ += 2;
      const std::optional<char32_t> low = Hex(4);
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
      } else {
        pos_ = back;
      }
    }
    if (*code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) code = 0xFFFD;
    AppendChar(value, *code);
    return true;
  }

  std::optional<char32_t> Hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const int value = pos_ < text_.size() ? HexValue(text_[pos_]) : -1;
      if (value < 0) return std::nullopt;
      code = code * 16 + static_cast<char32_t>(value);
      ++pos_;
    }
    return code;
  }

  void SkipSpace() {
    while (pos_ < text_.size() && kSpaces.find(text_[pos_]) != std::string_view::npos) ++pos_;
  }
  bool At(char c) {
    SkipSpace();
    return pos_ < text_.size() && text_[pos_] == c;
  }
  bool Take(char c) {
    if (!At(c)) return false;
    ++pos_;
    return true;
  }

  const std::string_view text_;
  size_t pos_ = 0;
  std::string json_;
};

}  // namespace

ToolParameters::ToolParameters(const Json& tools) {
  for (const Json& tool : tools) {
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) continue;
    const auto name = function->find("name");
    const auto schema = function->find("parameters");
    if (name == function->end() || !name->is_string() || schema == function->end() ||
        !schema->is_object()) {
      continue;
    }
    const auto properties = schema->find("properties");
    if (properties == schema->end() || !properties->is_object()) continue;
    auto& types = types_[name->get<std::string>()];
    for (const auto& [key, property] : properties->items()) types[key] = TypesOf(property, 0);
  }
}

std::string ToolParameters::ValueOf(std::string_view tool, std::string_view parameter,
                                    std::string_view text) const {
  uint8_t types = kUnknown;
  if (const auto it = types_.find(tool); it != types_.end()) {
    const auto declared = it->second.find(parameter);
    if (declared != it->second.end()) types = declared->second;
  }
  const std::string_view value = Trimmed(text);
  const std::optional<uint8_t> type = TypeOfJson(value);
  const bool known = types != kUnknown;
  if (type && *type != kString && (!known || (types & *type) != 0)) return std::string(value);
  if (!known || (types & kString) != 0) return JsonQuoted(text);
  // No string is expected: null in place of any value, and what Python would print.
  if (type == kNull) return std::string(value);
  const std::optional<std::string> literal = PythonToJson(value);
  const std::optional<uint8_t> meant = literal ? TypeOfJson(*literal) : std::nullopt;
  if (meant && *meant != kString && (*meant == kNull || (types & *meant) != 0)) return *literal;
  return JsonQuoted(text);
}

std::string JsonQuoted(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::string> PythonToJson(std::string_view text) { return PythonReader(text).Read(); }

}  // namespace tandem
