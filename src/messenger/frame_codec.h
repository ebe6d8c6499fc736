// What: FrameWriter and FrameReader: little-endian integers and counted strings in a frame.
// Not here: which fields a message has (protocol.cc).
// Threads: values.
// Invariants: a reader never reads beyond its bytes; after the first thing that is wrong every read
//   gives zero and status() keeps what it was. What a count promises is there before memory is
//   taken for it.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

class FrameWriter {
 public:
  template <std::integral T>
  void Put(T value) {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<uint8_t>(bits >> (8 * i))));
    }
  }
  void PutCount(size_t count) {
    TANDEM_CHECK_LE(count, size_t{UINT32_MAX});
    Put(static_cast<uint32_t>(count));
  }
  void PutString(std::string_view text) {
    PutCount(text.size());
    bytes_.append(text);
  }
  void Reserve(size_t bytes) { bytes_.reserve(bytes); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : rest_(bytes) {}

  template <std::integral T>
  T Get() {
    if (rest_.size() < sizeof(T)) return Fail<T>("ends too soon");
    std::make_unsigned_t<T> bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      const auto byte = static_cast<std::make_unsigned_t<T>>(static_cast<uint8_t>(rest_[i]));
      bits = static_cast<std::make_unsigned_t<T>>(bits | (byte << (8 * i)));
    }
    rest_.remove_prefix(sizeof(T));
    return static_cast<T>(bits);
  }
  // A non-negative 32-bit integer.
  int32_t GetNatural() {
    const auto value = Get<int32_t>();
    return value < 0 ? Fail<int32_t>("has a negative number") : value;
  }
  // How many items of at least `item_bytes` follow: at most `most`, and they are there.
  size_t GetCount(size_t most, size_t item_bytes) {
    const size_t count = Get<uint32_t>();
    if (count > most) return Fail<size_t>("exceeds a limit");
    if (count * item_bytes > rest_.size()) return Fail<size_t>("ends too soon");
    return count;
  }
  std::string GetString(size_t most) {
    const size_t count = GetCount(most, 1);
    std::string text(rest_.substr(0, count));
    rest_.remove_prefix(count);
    return text;
  }
  // A value of an enum whose last value is `last`.
  template <typename Enum>
  Enum GetEnum(Enum last) {
    const auto value = Get<uint8_t>();
    if (value > static_cast<uint8_t>(last)) return Fail<Enum>("has an unknown kind");
    return static_cast<Enum>(value);
  }

  // Says that a field's value is wrong.
  template <typename T = int>
  T Fail(std::string_view what) {
    if (status_.ok()) status_ = DataLossError("a frame of the hand-off {}", what);
    rest_ = {};
    return T{};
  }
  // OK when everything could be read and nothing is left over.
  Status Finish() {
    if (!rest_.empty()) Fail("is too long");
    return status_;
  }
  bool ok() const { return status_.ok(); }

 private:
  std::string_view rest_;
  Status status_;
};

}  // namespace tandem
