// What: ByteWriter and ByteReader: integers of variable length, doubles and strings as bytes, for
//   formats that this module reads back.
// Not here: formats (event_log.h), files.
// Threads: one at a time.
// Invariants: a reader never goes beyond its bytes and never believes a length: what is missing or
//   out of range makes it fail, and from then on it returns zeros.
// Based on: LEB128, with zigzag for signed values.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(out) {}

  void Byte(uint8_t value) { out_->push_back(static_cast<char>(value)); }
  void Unsigned(uint64_t value) {
    for (; value >= 0x80; value >>= 7) Byte(static_cast<uint8_t>(value | 0x80));
    Byte(static_cast<uint8_t>(value));
  }
  void Signed(int64_t value) {
    Unsigned(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  void Fixed32(uint32_t value) { Fixed(value, 4); }
  void Fixed64(uint64_t value) { Fixed(value, 8); }
  void Double(double value) { Fixed64(std::bit_cast<uint64_t>(value)); }
  void String(std::string_view text) {
    Unsigned(text.size());
    out_->append(text);
  }

 private:
  void Fixed(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) Byte(static_cast<uint8_t>(value >> (8 * i)));
  }

  std::string* const out_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  // All was read, and nothing failed.
  bool done() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  uint8_t Byte() {
    if (rest_.empty()) {
      Fail();
      return 0;
    }
    const auto value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  uint64_t Unsigned() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Byte();
      if (shift == 63 && byte > 1) Fail();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return ok_ ? value : 0;
    }
    Fail();
    return 0;
  }
  // The next unsigned value, at most `most`.
  uint64_t AtMost(uint64_t most) {
    const uint64_t value = Unsigned();
    if (value <= most) return value;
    Fail();
    return 0;
  }
  // The next signed value, in [least, most]; `least` when there is none.
  int64_t Between(int64_t least, int64_t most) {
    const uint64_t coded = Unsigned();
    const auto value = static_cast<int64_t>(coded >> 1 ^ (~(coded & 1) + 1));
    if (ok_ && value >= least && value <= most) return value;
    Fail();
    return least;
  }
  // A number of things that take at least so many bytes each.
  size_t Count(size_t bytes_each = 1) {
    return static_cast<size_t>(AtMost(rest_.size() / bytes_each));
  }
  bool Flag() { return AtMost(1) == 1; }
  uint32_t Fixed32() { return static_cast<uint32_t>(Fixed(4)); }
  uint64_t Fixed64() { return Fixed(8); }
  double Double() { return std::bit_cast<double>(Fixed64()); }
  std::string_view String() { return Take(Count()); }
  std::string_view Take(size_t bytes) {
    if (bytes > rest_.size()) Fail();
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  uint64_t Fixed(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= uint64_t{Byte()} << (8 * i);
    return value;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace tandem
