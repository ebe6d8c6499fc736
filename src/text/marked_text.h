// What: MarkedText: a text that knows which of its bytes came from data (what users and tools
//   wrote) rather than from a chat template; and ByteSpan, a range of bytes.
// Not here: where the marks come from (jinja/) and what they prevent (tokenizer.h).
// Threads: a value.
// Invariants: spans are in order, not empty, inside the text, and neither overlap nor touch.
// Cost: no memory for a text without data; cutting a part out is logarithmic in the spans it leaves
//   out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

class MarkedText {
 public:
  MarkedText() = default;
  explicit MarkedText(std::string text) : text_(std::move(text)) {}
  // All of it is data.
  static MarkedText FromData(std::string text);

  const std::string& text() const { return text_; }
  const std::vector<ByteSpan>& data() const { return data_; }
  bool has_data() const { return !data_.empty(); }
  size_t size() const { return text_.size(); }
  std::string TakeText() && { return std::move(text_); }

  void Append(std::string_view text) { text_ += text; }
  void AppendData(std::string_view text);
  void Append(const MarkedText& other);
  // The bytes [begin, end) of `other`; requires begin <= end <= other.size().
  void AppendPart(const MarkedText& other, size_t begin, size_t end);
  MarkedText Part(size_t begin, size_t end) const;
  // `part` must be a view into text().
  MarkedText Part(std::string_view part) const {
    const size_t begin = static_cast<size_t>(part.data() - text_.data());
    return Part(begin, begin + part.size());
  }

 private:
  void AddSpan(size_t begin, size_t end);

  std::string text_;
  std::vector<ByteSpan> data_;
};

}  // namespace tandem
