// What: little-endian integers and short strings in bytes, for the descriptors and addresses of
//   this module; and a reader that never reads beyond its input.
// Not here: meaning.
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::wire {

template <typename Int>
void Append(std::string* out, Int value) {
  for (size_t i = 0; i < sizeof(Int); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

// With its length in one byte; requires at most 255 bytes.
inline void AppendShort(std::string* out, std::string_view text) {
  Append(out, static_cast<uint8_t>(text.size()));
  out->append(text);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  // False, and 0, when the input is too short; so from then on.
  template <typename Int>
  bool Read(Int* value) {
    *value = 0;
    std::string_view bytes;
    if (!Take(sizeof(Int), &bytes)) return false;
    uint64_t wide = 0;
    for (size_t i = 0; i < sizeof(Int); ++i) {
      wide |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
    }
    *value = static_cast<Int>(wide);
    return true;
  }
  bool ReadShort(std::string* text) {
    uint8_t size = 0;
    std::string_view bytes;
    text->clear();
    if (!Read(&size) || !Take(size, &bytes)) return false;
    *text = bytes;
    return true;
  }
  // Everything was read and nothing is left.
  bool done() const { return !failed_ && rest_.empty(); }

 private:
  bool Take(size_t size, std::string_view* bytes) {
    if (failed_ || rest_.size() < size) {
      failed_ = true;
      return false;
    }
    *bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace tandem::wire
