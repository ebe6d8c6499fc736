#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace tandem {
namespace {

constexpr char32_t kFirstMoved = 0x100;
constexpr int kMovedCount = 68;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<uint8_t, kMovedCount> moved{};  // moved[i] is written as kFirstMoved + i
};

constexpr Alphabet MakeAlphabet() {
  Alphabet a;
  int moved = 0;
  for (int b = 0; b < 256; ++b) {
    if (StandsForItself(b)) {
      a.of_byte[b] = static_cast<char32_t>(b);
    } else {
      a.moved[moved] = static_cast<uint8_t>(b);
      a.of_byte[b] = kFirstMoved + static_cast<char32_t>(moved);
      ++moved;
    }
  }
  return a;
}
constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

char32_t ByteToAlphabet(uint8_t byte) { return kAlphabet.of_byte[byte]; }

std::optional<uint8_t> AlphabetToByte(char32_t code) {
  if (code < 0x100) {
    if (!StandsForItself(static_cast<int>(code))) return std::nullopt;
    return static_cast<uint8_t>(code);
  }
  if (code >= kFirstMoved + kMovedCount) return std::nullopt;
  return kAlphabet.moved[code - kFirstMoved];
}

std::optional<std::string> DecodeByteLevel(std::string_view stored) {
  std::string out;
  out.reserve(stored.size());
  for (size_t pos = 0; pos < stored.size();) {
    const DecodedChar c = DecodeChar(stored, pos);
    const std::optional<uint8_t> byte = c.valid ? AlphabetToByte(c.code) : std::nullopt;
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    pos += c.size;
  }
  return out;
}

std::string EncodeByteLevel(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) AppendChar(out, ByteToAlphabet(static_cast<uint8_t>(c)));
  return out;
}

}  // namespace tandem
