#include "text/call_scanning.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace tandem {
namespace {

constexpr std::string_view kSpaces = " \n\r\t";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// The text of the JSON string `quoted`; nothing when it has escapes that mean no character.
std::optional<std::string> Unquote(std::string_view quoted) {
  if (quoted.empty() || quoted.front() != '"') return std::nullopt;
  const auto value = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

bool IsJsonObject(std::string_view text) {
  JsonObjectScanner scanner;
  size_t consumed = 0;
  while (scanner.state() == JsonObjectScanner::State::kOpen && consumed < text.size()) {
    consumed += scanner.Consume(text.substr(consumed));
  }
  return scanner.state() == JsonObjectScanner::State::kDone && consumed == text.size();
}

// The arguments as the text of an object, from a member's value (empty: no such member).
std::optional<std::string> ArgumentsOf(std::string_view value) {
  if (value.empty() || value == "null") return "{}";
  if (value.front() == '{') return std::string(value);
  const std::optional<std::string> text = Unquote(value);
  if (!text) return std::nullopt;
  const std::string_view inner = Trim(*text);
  if (inner.empty()) return "{}";
  if (!IsJsonObject(inner)) return std::nullopt;
  return std::string(inner);
}

}  // namespace

bool IsCallSpace(char c) { return kSpaces.find(c) != std::string_view::npos; }

bool IsCallNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

TagMatcher::State TagMatcher::Step(char c, std::span<const std::string_view> words) {
  if (seen_.empty() && IsCallSpace(c)) return State::kOpen;
  const size_t at = seen_.size();
  seen_ += c;
  for (const std::string_view word : words) {
    if (!word.starts_with(seen_)) continue;
    return at + 1 == word.size() ? State::kMatched : State::kOpen;
  }
  return State::kBroken;
}

bool FieldReader::Step(char c, std::string_view delimiter) {
  text_ += c;
  if (!text_.ends_with(delimiter)) return false;
  text_.resize(text_.size() - delimiter.size());
  return true;
}

bool CallObject::Step(char c) {
  if (scanner_.Consume(std::string_view(&c, 1)) == 0) return false;
  text_ += c;
  return true;
}

std::optional<std::string_view> CallObject::NewKey() const {
  if (scanner_.members().empty()) return std::nullopt;
  const JsonObjectScanner::Member& last = scanner_.members().back();
  if (last.key_end == 0 || last.value_begin != 0) return std::nullopt;
  return Part(last.key_begin, last.key_end);
}

bool CallObject::Find(std::string_view key, std::string_view* value) const {
  *value = {};
  for (const JsonObjectScanner::Member& member : scanner_.members()) {
    if (Part(member.key_begin, member.key_end) != key) continue;
    if (!value->empty()) return false;
    *value = Part(member.value_begin, member.value_end);
  }
  return true;
}

std::optional<ToolCall> CallObject::Read(bool bare) const {
  std::string_view name;
  std::string_view own;
  std::string_view other;
  if (!Find("name", &name) || !Find(key_, &own) || !Find(other_, &other)) return std::nullopt;
  if (own.empty()) own = other;
  if (bare && own.empty()) return std::nullopt;
  std::optional<std::string> called = Unquote(name);
  if (!called || called->empty()) return std::nullopt;
  std::optional<std::string> arguments = ArgumentsOf(own);
  if (!arguments) return std::nullopt;
  return ToolCall{std::move(*called), std::move(*arguments)};
}

}  // namespace tandem
