// What: small parts that the readers of tool calls share: white space, names, tags letter by
//   letter, a call written as a JSON object.
// Not here: the formats. Included by text's .cc files only.
// Threads: belong to one thread.
// Cost: linear in the text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/json_object_scanner.h"
#include "text/tool_call_reader.h"

namespace tandem {

// Far beyond any name of a tool or a parameter.
inline constexpr size_t kMaxCallNameBytes = 256;

bool IsCallSpace(char c);
// Of the names that models write bare.
bool IsCallNameChar(char c);

// One of a few words, letter by letter, white space before it. None is the beginning of another.
class TagMatcher {
 public:
  enum class State : uint8_t { kOpen, kMatched, kBroken };
  State Step(char c, std::span<const std::string_view> words);
  // The word that matched; ready for the next.
  std::string Take() { return std::exchange(seen_, {}); }
  bool begun() const { return !seen_.empty(); }

 private:
  std::string seen_;
};

// Text up to a delimiter that is not part of it.
class FieldReader {
 public:
  // Whether `c` completes the delimiter.
  bool Step(char c, std::string_view delimiter);
  size_t size() const { return text_.size(); }
  std::string Take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

// {"name": ..., KEY: {...}} as it arrives.
class CallObject {
 public:
  // `key` is the word for the arguments that wins, `other` the one that is understood too.
  CallObject(std::string_view key, std::string_view other) : key_(key), other_(other) {}

  bool Step(char c);
  bool done() const { return scanner_.state() == JsonObjectScanner::State::kDone; }
  // The key that has just been completed.
  std::optional<std::string_view> NewKey() const;
  // Requires done(). Nothing for another shape. `bare`: the arguments may not be missing.
  std::optional<ToolCall> Read(bool bare) const;

 private:
  std::string_view Part(size_t begin, size_t end) const {
    return std::string_view(text_).substr(begin, end - begin);
  }
  // The value of that member; empty: there is none. False when it occurs twice.
  bool Find(std::string_view key, std::string_view* value) const;

  const std::string_view key_;
  const std::string_view other_;
  JsonObjectScanner scanner_;
  std::string text_;
};

}  // namespace tandem
