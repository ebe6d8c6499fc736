#include "text/marked_text.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

MarkedText MarkedText::FromData(std::string text) {
  MarkedText marked(std::move(text));
  marked.AddSpan(0, marked.text_.size());
  return marked;
}

void MarkedText::AddSpan(size_t begin, size_t end) {
  if (begin == end) return;
  if (!data_.empty() && data_.back().end == begin) {
    data_.back().end = end;
  } else {
    data_.push_back({begin, end});
  }
}

void MarkedText::AppendData(std::string_view text) {
  const size_t begin = text_.size();
  text_ += text;
  AddSpan(begin, text_.size());
}

void MarkedText::Append(const MarkedText& other) { AppendPart(other, 0, other.size()); }

void MarkedText::AppendPart(const MarkedText& other, size_t begin, size_t end) {
  TANDEM_CHECK(begin <= end && end <= other.size());
  const size_t base = text_.size();
  text_.append(other.text_, begin, end - begin);
  auto span = std::upper_bound(other.data_.begin(), other.data_.end(), begin,
                               [](size_t at, const ByteSpan& s) { return at < s.end; });
  for (; span != other.data_.end() && span->begin < end; ++span) {
    AddSpan(base + std::max(span->begin, begin) - begin, base + std::min(span->end, end) - begin);
  }
}

MarkedText MarkedText::Part(size_t begin, size_t end) const {
  MarkedText part;
  part.AppendPart(*this, begin, end);
  return part;
}

}  // namespace tandem
