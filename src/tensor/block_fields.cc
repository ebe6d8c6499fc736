#include "tensor/block_fields.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace tandem {
namespace {

constexpr int kSuper = 256;

uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void StoreU16(std::byte* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }

// The bits [shift, shift + count) of a byte that belong to a value; the two directions of one
// layout.
struct Reader {
  const std::byte* bytes;
  // `value` |= bits of byte `at`, moved up to `to`.
  template <typename T>
  void Bits(int at, int shift, int count, int to, T& value) const {
    const unsigned bits = static_cast<unsigned>(bytes[at]) >> shift & ((1u << count) - 1);
    value = static_cast<T>(static_cast<unsigned>(value) | bits << to);
  }
  void Half(int at, uint16_t& value) const { value = LoadU16(bytes + at); }
};
struct Writer {
  std::byte* bytes;  // zeros at first
  template <typename T>
  void Bits(int at, int shift, int count, int from, const T& value) const {
    const unsigned bits = static_cast<unsigned>(value) >> from & ((1u << count) - 1);
    bytes[at] |= static_cast<std::byte>(bits << shift);
  }
  void Half(int at, const uint16_t& value) const { StoreU16(bytes + at, value); }
};

// Split halves: byte i holds value i (low half) and i + 16 (high half).
template <typename Io, typename Fields>
void SplitNibbles(const Io& io, int at, Fields* codes) {
  for (int i = 0; i < 16; ++i) {
    io.Bits(at + i, 0, 4, 0, codes[i]);
    io.Bits(at + i, 4, 4, 0, codes[i + 16]);
  }
}

template <typename Io, typename Fields>
void Block32(DType dtype, const Io& io, Fields* f) {
  if (dtype == DType::kMXFP4) {
    io.Bits(0, 0, 8, 0, f->d);
    return SplitNibbles(io, 1, f->codes);
  }
  io.Half(0, f->d);
  if (dtype == DType::kQ8_0) {
    for (int i = 0; i < 32; ++i) io.Bits(2 + i, 0, 8, 0, f->codes[i]);
    return;
  }
  int at = 2;
  if (FormatOf(dtype).has_minimum()) {
    io.Half(2, f->m);
    at = 4;
  }
  if (FormatOf(dtype).code_bits == 5) {
    for (int i = 0; i < 32; ++i) io.Bits(at + i / 8, i % 8, 1, 4, f->codes[i]);
    at += 4;
  }
  SplitNibbles(io, at, f->codes);
}

// Two bits of each value: byte 32h + l holds values 128h + 32t + l at bits 2t.
template <typename Io, typename Fields>
void TwoBits(const Io& io, int at, int to, Fields* codes) {
  for (int e = 0; e < kSuper; ++e) {
    io.Bits(at + e / 128 * 32 + e % 32, e % 128 / 32 * 2, 2, to, codes[e]);
  }
}
// One bit of each value: byte l holds values 32t + l at bit t.
template <typename Io, typename Fields>
void OneBit(const Io& io, int at, int to, Fields* codes) {
  for (int e = 0; e < kSuper; ++e) io.Bits(at + e % 32, e / 32, 1, to, codes[e]);
}

template <typename Io, typename Fields>
void BlockQ2K(const Io& io, Fields* f) {
  for (int i = 0; i < 16; ++i) {
    io.Bits(i, 0, 4, 0, f->scales[i]);
    io.Bits(i, 4, 4, 0, f->minima[i]);
  }
  TwoBits(io, 16, 0, f->codes);
  io.Half(80, f->d);
  io.Half(82, f->m);
}

// Scales as 0 .. 63.
template <typename Io, typename Fields>
void BlockQ3K(const Io& io, Fields* f) {
  OneBit(io, 0, 2, f->codes);
  TwoBits(io, 32, 0, f->codes);
  for (int i = 0; i < 16; ++i) {
    io.Bits(96 + i % 8, i / 8 * 4, 4, 0, f->scales[i]);
    io.Bits(104 + i % 4, i / 4 * 2, 2, 4, f->scales[i]);
  }
  io.Half(108, f->d);
}

template <typename Io, typename Fields>
void BlockQ4KOrQ5K(bool five, const Io& io, Fields* f) {
  io.Half(0, f->d);
  io.Half(2, f->m);
  for (int i = 0; i < 4; ++i) {  // six bits each, the upper two of the last four apart
    io.Bits(4 + i, 0, 6, 0, f->scales[i]);
    io.Bits(8 + i, 0, 6, 0, f->minima[i]);
    io.Bits(12 + i, 0, 4, 0, f->scales[i + 4]);
    io.Bits(4 + i, 6, 2, 4, f->scales[i + 4]);
    io.Bits(12 + i, 4, 4, 0, f->minima[i + 4]);
    io.Bits(8 + i, 6, 2, 4, f->minima[i + 4]);
  }
  if (five) OneBit(io, 16, 4, f->codes);
  for (int e = 0; e < kSuper; ++e) {
    io.Bits((five ? 48 : 16) + e / 64 * 32 + e % 32, e / 32 % 2 * 4, 4, 0, f->codes[e]);
  }
}

template <typename Io, typename Fields>
void BlockQ6K(const Io& io, Fields* f) {
  for (int e = 0; e < kSuper; ++e) {
    io.Bits(e / 128 * 64 + e % 64, e % 128 / 64 * 4, 4, 0, f->codes[e]);
  }
  TwoBits(io, 128, 4, f->codes);
  for (int i = 0; i < 16; ++i) io.Bits(192 + i, 0, 8, 0, f->scales[i]);
  io.Half(208, f->d);
}

// Scales as 0 .. 63.
template <typename Io, typename Fields>
void BlockIQ4XS(const Io& io, Fields* f) {
  io.Half(0, f->d);
  for (int i = 0; i < 8; ++i) {
    io.Bits(4 + i / 2, i % 2 * 4, 4, 0, f->scales[i]);
    io.Bits(2 + i / 4, i % 4 * 2, 2, 4, f->scales[i]);
    SplitNibbles(io, 8 + 16 * i, f->codes + 32 * i);
  }
}

template <typename Io, typename Fields>
void AnyBlock(DType dtype, const Io& io, Fields* f) {
  switch (dtype) {
    case DType::kQ2_K: return BlockQ2K(io, f);
    case DType::kQ3_K: return BlockQ3K(io, f);
    case DType::kQ4_K:
    case DType::kQ5_K: return BlockQ4KOrQ5K(dtype == DType::kQ5_K, io, f);
    case DType::kQ6_K: return BlockQ6K(io, f);
    case DType::kIQ4_XS: return BlockIQ4XS(io, f);
    default: return Block32(dtype, io, f);
  }
}

// What the source stores otherwise than the fields do: Q8_0's signed codes, scales less 32.
void Shift(DType dtype, int sign, BlockFields* f) {
  if (dtype == DType::kQ8_0) {
    for (int i = 0; i < 32; ++i) f->codes[i] ^= 0x80;
  }
  if (dtype == DType::kQ3_K || dtype == DType::kIQ4_XS) {
    for (int8_t& s : f->scales) s = static_cast<int8_t>(s + sign * 32);
  }
}

constexpr QuantFormat kQ4_0{4, 8, nullptr, 32, ScaleForm::kHalf};
constexpr QuantFormat kQ4_1{4, 0, nullptr, 32, ScaleForm::kHalfAndMinimum};
constexpr QuantFormat kQ5_0{5, 16, nullptr, 32, ScaleForm::kHalf};
constexpr QuantFormat kQ5_1{5, 0, nullptr, 32, ScaleForm::kHalfAndMinimum};
constexpr QuantFormat kQ8_0{8, 128, nullptr, 32, ScaleForm::kHalf};
constexpr QuantFormat kQ2_K{2, 0, nullptr, 16, ScaleForm::kProductAndMinimum};
constexpr QuantFormat kQ3_K{3, 4, nullptr, 16, ScaleForm::kProduct};
constexpr QuantFormat kQ4_K{4, 0, nullptr, 32, ScaleForm::kProductAndMinimum};
constexpr QuantFormat kQ5_K{5, 0, nullptr, 32, ScaleForm::kProductAndMinimum};
constexpr QuantFormat kQ6_K{6, 32, nullptr, 16, ScaleForm::kProduct};
constexpr QuantFormat kIQ4_NL{4, 0, kNonlinearTable, 32, ScaleForm::kHalf};
constexpr QuantFormat kIQ4_XS{4, 0, kNonlinearTable, 32, ScaleForm::kProduct};
constexpr QuantFormat kMXFP4{4, 0, kFloat4Table, 32, ScaleForm::kExponent};

}  // namespace

const QuantFormat& FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0: return kQ4_0;
    case DType::kQ4_1: return kQ4_1;
    case DType::kQ5_0: return kQ5_0;
    case DType::kQ5_1: return kQ5_1;
    case DType::kQ8_0: return kQ8_0;
    case DType::kQ2_K: return kQ2_K;
    case DType::kQ3_K: return kQ3_K;
    case DType::kQ4_K: return kQ4_K;
    case DType::kQ5_K: return kQ5_K;
    case DType::kQ6_K: return kQ6_K;
    case DType::kIQ4_NL: return kIQ4_NL;
    case DType::kIQ4_XS: return kIQ4_XS;
    case DType::kMXFP4: return kMXFP4;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: break;
  }
  TANDEM_CHECK(false);
  return kQ4_0;
}

ScaleAndMinimum ScaleOf(const QuantFormat& format, const BlockFields& fields, int32_t i) {
  if (format.form == ScaleForm::kExponent) {
    // 2^-128 and 2^-127 are subnormal.
    const uint32_t e = fields.d;
    return {std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23), 0.0f};
  }
  ScaleAndMinimum out{HalfToFloat(fields.d), HalfToFloat(fields.m)};
  if (format.has_product()) {
    out.scale *= static_cast<float>(fields.scales[i]);
    out.minimum = -(out.minimum * static_cast<float>(fields.minima[i]));
  }
  return out;
}

void ReadBlock(DType dtype, const std::byte* block, BlockFields* fields) {
  *fields = {};
  AnyBlock(dtype, Reader{block}, fields);
  Shift(dtype, -1, fields);
}

void WriteBlock(DType dtype, const BlockFields& fields, std::byte* block) {
  BlockFields stored = fields;
  Shift(dtype, 1, &stored);
  std::memset(block, 0, static_cast<size_t>(InfoOf(dtype).block_bytes));
  AnyBlock(dtype, Writer{block}, &stored);
}

}  // namespace tandem
