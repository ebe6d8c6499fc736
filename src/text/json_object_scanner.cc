#include "text/json_object_scanner.h"

namespace tandem {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

size_t JsonObjectScanner::Consume(std::string_view text) {
  size_t consumed = 0;
  pause_ = false;
  while (consumed < text.size() && state_ == State::kOpen && !pause_) {
    if (!Step(text[consumed])) {
      state_ = State::kBroken;
      break;
    }
    ++consumed;
    ++offset_;
  }
  return consumed;
}

bool JsonObjectScanner::Step(char c) {
  switch (expect_) {
    case Expect::kString:
    case Expect::kEscape:
    case Expect::kHex: return StepString(c);
    case Expect::kLiteral:
      if (c != literal_left_.front()) return false;
      literal_left_.remove_prefix(1);
      if (literal_left_.empty()) EndValue(offset_ + 1);
      return true;
    case Expect::kMinus:
    case Expect::kZero:
    case Expect::kInteger:
    case Expect::kPoint:
    case Expect::kFraction:
    case Expect::kExponent:
    case Expect::kExponentSign:
    case Expect::kExponentDigits: return StepNumber(c);
    default: return StepStructure(c);
  }
}

bool JsonObjectScanner::StepStructure(char c) {
  // White space before the object isn't the object's.
  if (IsSpace(c)) return expect_ != Expect::kObject;
  switch (expect_) {
    case Expect::kObject: return c == '{' && Open(c);
    case Expect::kFirstKey:
      if (c == '}') return Close('{');
      [[fallthrough]];
    case Expect::kKey:
      if (c != '"') return false;
      if (open_.size() == 1) {
        if (members_.size() == kMaxMembers) return false;
        members_.push_back({.key_begin = offset_ + 1});
      }
      key_ = true;
      expect_ = Expect::kString;
      return true;
    case Expect::kColon: expect_ = Expect::kValue; return c == ':';
    case Expect::kFirstValue:
      if (c == ']') return Close('[');
      return BeginValue(c);
    case Expect::kValue: return BeginValue(c);
    default:  // kCommaOrEnd
      if (c == '}') return Close('{');
      if (c == ']') return Close('[');
      expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
      return c == ',';
  }
}

bool JsonObjectScanner::StepString(char c) {
  if (expect_ == Expect::kHex) {
    if (--hex_left_ == 0) expect_ = Expect::kString;
    return IsHexDigit(c);
  }
  if (expect_ == Expect::kEscape) {
    expect_ = c == 'u' ? Expect::kHex : Expect::kString;
    hex_left_ = 4;
    return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
  }
  if (c == '\\') {
    expect_ = Expect::kEscape;
    return true;
  }
  if (c != '"') return static_cast<unsigned char>(c) >= 0x20;
  if (!key_) {
    EndValue(offset_ + 1);
    return true;
  }
  key_ = false;
  expect_ = Expect::kColon;
  if (open_.size() == 1) {
    members_.back().key_end = offset_;
    pause_ = true;
  }
  return true;
}

bool JsonObjectScanner::StepNumber(char c) {
  const auto go = [this](Expect next) {
    expect_ = next;
    return true;
  };
  switch (expect_) {
    case Expect::kMinus:
      if (IsDigit(c)) return go(c == '0' ? Expect::kZero : Expect::kInteger);
      return false;
    case Expect::kPoint: return IsDigit(c) && go(Expect::kFraction);
    case Expect::kExponent:
      if (c == '+' || c == '-') return go(Expect::kExponentSign);
      [[fallthrough]];
    case Expect::kExponentSign: return IsDigit(c) && go(Expect::kExponentDigits);
    default: break;
  }
  // What remains may end here.
  if (IsDigit(c)) return expect_ != Expect::kZero;
  const bool integer = expect_ == Expect::kZero || expect_ == Expect::kInteger;
  if (c == '.' && integer) return go(Expect::kPoint);
  if ((c == 'e' || c == 'E') && expect_ != Expect::kExponentDigits) return go(Expect::kExponent);
  EndValue(offset_);
  return StepStructure(c);
}

bool JsonObjectScanner::BeginValue(char c) {
  if (open_.size() == 1) members_.back().value_begin = offset_;
  if (c == '{' || c == '[') return Open(c);
  if (c == '"') {
    expect_ = Expect::kString;
  } else if (c == '-') {
    expect_ = Expect::kMinus;
  } else if (IsDigit(c)) {
    expect_ = c == '0' ? Expect::kZero : Expect::kInteger;
  } else {
    literal_left_ = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : "";
    expect_ = Expect::kLiteral;
    return !literal_left_.empty();
  }
  return true;
}

bool JsonObjectScanner::Open(char bracket) {
  if (open_.size() == kMaxDepth) return false;
  open_.push_back(bracket);
  expect_ = bracket == '{' ? Expect::kFirstKey : Expect::kFirstValue;
  return true;
}

bool JsonObjectScanner::Close(char bracket) {
  if (open_.back() != bracket) return false;
  open_.pop_back();
  if (open_.empty()) {
    state_ = State::kDone;
  } else {
    EndValue(offset_ + 1);
  }
  return true;
}

void JsonObjectScanner::EndValue(size_t end) {
  if (open_.size() == 1) members_.back().value_end = end;
  expect_ = Expect::kCommaOrEnd;
}

}  // namespace tandem
