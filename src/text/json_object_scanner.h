// What: JsonObjectScanner: follows the text of one JSON object as it arrives and says at once when
//   it cannot be one any more.
// Not here: values; a caller that wants one parses the text between a member's offsets.
// Threads: belongs to one thread.
// Invariants: the result does not depend on how the text is cut.
// Cost: constant per byte; a bit of memory per level, 32 bytes per member of the object itself.
// Based on: RFC 8259. Escapes of lone surrogates are allowed, as its grammar does; what the bytes
//   of strings mean (UTF-8) is not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

class JsonObjectScanner {
 public:
  // Deeper text and objects with more members are taken for broken.
  static constexpr size_t kMaxDepth = 128;
  static constexpr size_t kMaxMembers = 64;

  enum class State : uint8_t { kOpen, kDone, kBroken };

  // A member of the object itself (not of those inside): offsets from the text's first byte. The
  // key is without its quotes, not unescaped; the value is without white space around it.
  struct Member {
    size_t key_begin = 0;
    size_t key_end = 0;
    size_t value_begin = 0;
    // 0 as long as the value is not complete.
    size_t value_end = 0;
  };

  // Takes text while it continues the object, up to its end, and returns how many bytes that were;
  // the byte behind them is the one that broke it. Pauses behind each key of the object itself,
  // still open, so that the caller may look at it. The text begins with the brace; takes nothing
  // when not open.
  size_t Consume(std::string_view text);

  State state() const { return state_; }
  const std::vector<Member>& members() const { return members_; }

 private:
  enum class Expect : uint8_t {
    kObject,
    kFirstKey,  // or the end of the object
    kKey,
    kColon,
    kFirstValue,  // or the end of the array
    kValue,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kLiteral,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };

  // Whether `c` continues the text.
  bool Step(char c);
  bool StepStructure(char c);
  bool StepString(char c);
  bool StepNumber(char c);
  bool BeginValue(char c);
  bool Open(char bracket);
  bool Close(char bracket);
  void EndValue(size_t end);

  State state_ = State::kOpen;
  Expect expect_ = Expect::kObject;
  size_t offset_ = 0;  // of the byte under Step
  std::string open_;   // the brackets that are open
  bool key_ = false;   // the string under way is a key
  bool pause_ = false;
  int hex_left_ = 0;
  std::string_view literal_left_;
  std::vector<Member> members_;
};

}  // namespace tandem
