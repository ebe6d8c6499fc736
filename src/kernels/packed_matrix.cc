#include "kernels/packed_matrix.h"

#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

constexpr int64_t kGroupAlignment = 64;

bool IsQuantized(DType dtype) { return InfoOf(dtype).block_elements > 1; }

constexpr int64_t kBlocksPerSuper = 8;

struct Plane {
  int32_t bits = 0;   // 0: no plane
  int32_t shift = 0;  // of its bits in a code
};
struct Planes {
  Plane plane[2];
};
Planes PlanesOf(const QuantFormat& format) {
  switch (format.code_bits) {
    case 2: return {{{2, 0}, {}}};
    case 3: return {{{2, 0}, {1, 2}}};
    case 5: return {{{4, 0}, {1, 4}}};
    case 6: return {{{4, 0}, {2, 4}}};
    default: return {{{format.code_bits, 0}, {}}};
  }
}

int64_t CodeBytes(const QuantFormat& format) {
  return int64_t{format.code_bits} * kPackColumns / 8 * kPackRows;
}

// Where the scales of a block lie among a group's scales.
struct ScalePlace {
  int64_t first;     // f16 scale (or exponent) and minimum of the lanes
  int64_t integers;  // scales and minima of a product
};
// Bytes of the small integers of one block.
int64_t IntegerBytes(const QuantFormat& format) {
  if (!format.has_product()) return 0;
  const bool apart = format.has_minimum() && format.columns_per_scale == kPackColumns;
  return (kPackColumns / format.columns_per_scale + (apart ? 1 : 0)) * kPackRows;
}
int64_t FirstBytes(const QuantFormat& format) {
  if (format.form == ScaleForm::kExponent) return kPackRows;
  return (format.has_minimum() ? 4 : 2) * kPackRows;
}
ScalePlace PlaceOf(const QuantFormat& format, int64_t block) {
  if (!format.has_product()) return {block * FirstBytes(format), 0};
  const int64_t integers = IntegerBytes(format);
  const int64_t first = block / kBlocksPerSuper * (FirstBytes(format) + kBlocksPerSuper * integers);
  return {first, first + FirstBytes(format) + block % kBlocksPerSuper * integers};
}
int64_t ScaleBytes(const QuantFormat& format, int64_t num_blocks) {
  return PlaceOf(format, num_blocks).first;
}

// Codes of a block's columns, to and from the words of its lane.
void PutCodes(const QuantFormat& format, const uint8_t* codes, int32_t lane, std::byte* out) {
  for (const Plane& plane : PlanesOf(format).plane) {
    const uint32_t mask = (1u << plane.bits) - 1;
    for (int32_t w = 0; w < plane.bits; ++w) {
      uint32_t word = 0;
      for (int32_t t = 0; t < 8; t += plane.bits) {
        for (int32_t i = 0; i < 4; ++i) {
          word |= (uint32_t{codes[4 * (w + t) + i]} >> plane.shift & mask) << (8 * i + t);
        }
      }
      std::memcpy(out + (w * kPackRows + lane) * 4, &word, 4);
    }
    out += plane.bits * kPackRows * 4;
  }
}
void GetCodes(const QuantFormat& format, const std::byte* from, int32_t lane, uint8_t* codes) {
  std::memset(codes, 0, kPackColumns);
  for (const Plane& plane : PlanesOf(format).plane) {
    const uint32_t mask = (1u << plane.bits) - 1;
    for (int32_t w = 0; w < plane.bits; ++w) {
      uint32_t word = 0;
      std::memcpy(&word, from + (w * kPackRows + lane) * 4, 4);
      for (int32_t t = 0; t < 8; t += plane.bits) {
        for (int32_t i = 0; i < 4; ++i) {
          codes[4 * (w + t) + i] |=
              static_cast<uint8_t>((word >> (8 * i + t) & mask) << plane.shift);
        }
      }
    }
    from += plane.bits * kPackRows * 4;
  }
}

// The integers of sub-block `s` of a block: those of source index `i`.
void PutIntegers(const QuantFormat& format, const BlockFields& fields, int32_t i, int32_t s,
                 int32_t lane, std::byte* out) {
  const auto scale = static_cast<std::byte>(fields.scales[i]);
  const auto minimum = static_cast<std::byte>(fields.minima[i]);
  if (!format.has_minimum()) {
    out[s * kPackRows + lane] = scale;
  } else if (format.columns_per_scale == kPackColumns) {
    out[lane] = scale;
    out[kPackRows + lane] = minimum;
  } else {
    out[s * kPackRows + lane] = scale | minimum << 4;
  }
}
void GetIntegers(const QuantFormat& format, const std::byte* from, int32_t s, int32_t lane,
                 BlockFields* fields) {
  const std::byte at = from[s * kPackRows + lane];
  fields->scales[s] = static_cast<int8_t>(at);
  if (!format.has_minimum()) return;
  if (format.columns_per_scale == kPackColumns) {
    fields->minima[s] = static_cast<uint8_t>(from[kPackRows + lane]);
  } else {
    fields->scales[s] = static_cast<int8_t>(at & std::byte{15});
    fields->minima[s] = static_cast<uint8_t>(at >> 4);
  }
}

void PutFirst(const QuantFormat& format, const BlockFields& fields, int32_t lane, std::byte* out) {
  if (format.form == ScaleForm::kExponent) {
    out[lane] = static_cast<std::byte>(fields.d);
    return;
  }
  std::memcpy(out + lane * 2, &fields.d, 2);
  if (format.has_minimum()) std::memcpy(out + (kPackRows + lane) * 2, &fields.m, 2);
}
void GetFirst(const QuantFormat& format, const std::byte* from, int32_t lane, BlockFields* fields) {
  if (format.form == ScaleForm::kExponent) {
    fields->d = static_cast<uint16_t>(from[lane]);
    return;
  }
  std::memcpy(&fields->d, from + lane * 2, 2);
  if (format.has_minimum()) std::memcpy(&fields->m, from + (kPackRows + lane) * 2, 2);
}

// Takes a source row, block by block, to its lane of a group.
void PackQuantizedRow(DType dtype, int64_t cols, int32_t lane, const std::byte* row,
                      std::byte* group) {
  const QuantFormat& format = FormatOf(dtype);
  const DTypeInfo& info = InfoOf(dtype);
  const int32_t per_block = kPackColumns / format.columns_per_scale;
  std::byte* scales = group + cols / kPackColumns * CodeBytes(format);
  BlockFields fields;
  for (int64_t c = 0; c < cols; c += kPackColumns) {
    const int64_t block = c / kPackColumns;
    const auto within = static_cast<int32_t>(c % info.block_elements);  // of a source block
    const ScalePlace place = PlaceOf(format, block);
    if (within == 0) {
      ReadBlock(dtype, row + c / info.block_elements * info.block_bytes, &fields);
      PutFirst(format, fields, lane, scales + place.first);
    }
    PutCodes(format, fields.codes + within, lane, group + block * CodeBytes(format));
    for (int32_t s = 0; format.has_product() && s < per_block; ++s) {
      PutIntegers(format, fields, within / format.columns_per_scale + s, s, lane,
                  scales + place.integers);
    }
  }
}

}  // namespace

int64_t PackedGroupBytes(DType dtype, int64_t cols) {
  int64_t bytes = 0;
  if (IsQuantized(dtype)) {
    TANDEM_CHECK_EQ(cols % InfoOf(dtype).block_elements, 0);
    const QuantFormat& format = FormatOf(dtype);
    const int64_t blocks = cols / kPackColumns;
    bytes = blocks * CodeBytes(format) + ScaleBytes(format, blocks);
  } else {
    bytes = BytesOf(dtype, cols) * kPackRows;
  }
  return (bytes + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;
}

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
  return (rows + kPackRows - 1) / kPackRows * PackedGroupBytes(dtype, cols);
}

Status CanPack(DType dtype, int64_t rows, int64_t cols) {
  if (dtype > DType::kMXFP4) {
    return UnimplementedError("no packed layout for type {}", static_cast<int>(dtype));
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max() - kPackRows;
  if (rows <= 0 || cols <= 0 || rows > kMax || cols > kMax) {
    return InvalidArgumentError("a matrix of {} x {} cannot be packed", rows, cols);
  }
  if (cols % InfoOf(dtype).block_elements != 0) {
    return InvalidArgumentError("{} columns do not divide into blocks of {}", cols, NameOf(dtype));
  }
  return OkStatus();
}

void PackGroup(const TensorView& source, int32_t group, std::span<std::byte> out) {
  const int64_t rows = source.shape.NumRows();
  const int64_t cols = source.shape.RowLength();
  TANDEM_CHECK_EQ(static_cast<int64_t>(out.size()), PackedGroupBytes(source.dtype, cols));
  std::memset(out.data(), 0, out.size());
  for (int32_t lane = 0; lane < kPackRows; ++lane) {
    const int64_t row = int64_t{group} * kPackRows + lane;
    if (row >= rows) break;
    const std::byte* from = source.Row(row);
    if (IsQuantized(source.dtype)) {
      PackQuantizedRow(source.dtype, cols, lane, from, out.data());
      continue;
    }
    const auto size = static_cast<size_t>(InfoOf(source.dtype).block_bytes);
    for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
      std::memcpy(out.data() + (c * kPackRows + static_cast<size_t>(lane)) * size, from + c * size,
                  size);
    }
  }
}

void ReadPackedBlock(const PackedMatrix& matrix, int32_t row, int32_t block, PackedBlock* out) {
  const QuantFormat& format = FormatOf(matrix.dtype);
  const int32_t lane = row % kPackRows;
  const std::byte* group =
      matrix.data + row / kPackRows * PackedGroupBytes(matrix.dtype, matrix.cols);
  const std::byte* scales = group + matrix.cols / kPackColumns * CodeBytes(format);
  const ScalePlace place = PlaceOf(format, block);
  BlockFields fields;
  GetCodes(format, group + block * CodeBytes(format), lane, fields.codes);
  for (int32_t c = 0; c < kPackColumns; ++c) out->values[c] = format.ValueOf(fields.codes[c]);
  GetFirst(format, scales + place.first, lane, &fields);
  out->num_scales = kPackColumns / format.columns_per_scale;
  out->has_minimum = format.has_minimum();
  for (int32_t s = 0; s < out->num_scales; ++s) {
    if (format.has_product()) GetIntegers(format, scales + place.integers, s, lane, &fields);
    out->scales[s] = ScaleOf(format, fields, s);
  }
}

void UnpackRow(const PackedMatrix& matrix, int32_t row, float* out) {
  TANDEM_CHECK(row >= 0 && row < matrix.rows);
  if (!IsQuantized(matrix.dtype)) {
    const std::byte* group =
        matrix.data + row / kPackRows * PackedGroupBytes(matrix.dtype, matrix.cols);
    const auto size = int64_t{InfoOf(matrix.dtype).block_bytes};
    for (int64_t c = 0; c < matrix.cols; ++c) {
      DequantizeRow(matrix.dtype, group + (c * kPackRows + row % kPackRows) * size, 1, out + c);
    }
    return;
  }
  PackedBlock block;
  for (int32_t b = 0; b < matrix.cols / kPackColumns; ++b) {
    ReadPackedBlock(matrix, row, b, &block);
    const int32_t per_scale = kPackColumns / block.num_scales;
    for (int32_t c = 0; c < kPackColumns; ++c, ++out) {
      const ScaleAndMinimum& of = block.scales[c / per_scale];
      *out = of.scale * static_cast<float>(block.values[c]);
      if (block.has_minimum) *out += of.minimum;
    }
  }
}

}  // namespace tandem
