#include "kernels/packed_matrix.h"

#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

constexpr int64_t kGroupAlignment = 64;

bool IsQuantized(DType dtype) {
  return InfoOf(dtype).block_elements > 1;
}

// Code bytes and scale bytes of one row of a block: where a source block splits.
struct BlockParts {
  int64_t scale_bytes;  // first in the source: f16 scale, f16 minimum
  int64_t code_bytes;
};
BlockParts PartsOf(DType dtype) {
  const int64_t bytes = InfoOf(dtype).block_bytes;
  const int64_t codes = dtype == DType::kQ8_0 ? 32 : 16;
  return {bytes - codes, codes};
}

// Flips the sign bit: -128..127 becomes 0..255, and back.
uint32_t OffsetCodes(DType dtype, uint32_t four_codes) {
  return dtype == DType::kQ8_0 ? four_codes ^ 0x80808080u : four_codes;
}

// Copies a source row, block by block, to its lane of a group.
void PackQuantizedRow(DType dtype, int64_t num_blocks, int32_t lane, const std::byte* row,
                      std::byte* group) {
  const BlockParts parts = PartsOf(dtype);
  const int64_t scales_per_block = parts.scale_bytes / 2;
  std::byte* scales = group + num_blocks * parts.code_bytes * kPackRows;
  for (int64_t b = 0; b < num_blocks; ++b) {
    const std::byte* source = row + b * (parts.scale_bytes + parts.code_bytes);
    std::byte* codes = group + b * parts.code_bytes * kPackRows;
    for (int64_t j = 0; j < parts.code_bytes / 4; ++j) {
      uint32_t four = 0;
      std::memcpy(&four, source + parts.scale_bytes + j * 4, 4);
      four = OffsetCodes(dtype, four);
      std::memcpy(codes + (j * kPackRows + lane) * 4, &four, 4);
    }
    for (int64_t s = 0; s < scales_per_block; ++s) {
      std::memcpy(scales + ((b * scales_per_block + s) * kPackRows + lane) * 2, source + s * 2, 2);
    }
  }
}

}  // namespace

int64_t PackedGroupBytes(DType dtype, int64_t cols) {
  const int64_t bytes = BytesOf(dtype, cols) * kPackRows;
  return (bytes + kGroupAlignment - 1) / kGroupAlignment * kGroupAlignment;
}

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
  return (rows + kPackRows - 1) / kPackRows * PackedGroupBytes(dtype, cols);
}

Status CanPack(DType dtype, int64_t rows, int64_t cols) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0:
      break;
    default:
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
      PackQuantizedRow(source.dtype, cols / kPackColumns, lane, from, out.data());
      continue;
    }
    const auto size = static_cast<size_t>(InfoOf(source.dtype).block_bytes);
    for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
      std::memcpy(out.data() + (c * kPackRows + static_cast<size_t>(lane)) * size, from + c * size,
                  size);
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, int32_t row, float* out) {
  TANDEM_CHECK(row >= 0 && row < matrix.rows);
  const std::byte* group =
      matrix.data + row / kPackRows * PackedGroupBytes(matrix.dtype, matrix.cols);
  const int32_t lane = row % kPackRows;
  if (!IsQuantized(matrix.dtype)) {
    const auto size = static_cast<size_t>(InfoOf(matrix.dtype).block_bytes);
    for (int32_t c = 0; c < matrix.cols; ++c) {
      const std::byte* value = group + (int64_t{c} * kPackRows + lane) * static_cast<int64_t>(size);
      DequantizeRow(matrix.dtype, value, 1, out + c);
    }
    return;
  }
  // Block by block through the source's own form: the codec stays the only definition of a value.
  std::byte block[64];
  const BlockParts parts = PartsOf(matrix.dtype);
  const int64_t num_blocks = matrix.cols / kPackColumns;
  const std::byte* scales = group + num_blocks * parts.code_bytes * kPackRows;
  for (int64_t b = 0; b < num_blocks; ++b) {
    const std::byte* codes = group + b * parts.code_bytes * kPackRows;
    for (int64_t j = 0; j < parts.code_bytes / 4; ++j) {
      uint32_t four = 0;
      std::memcpy(&four, codes + (j * kPackRows + lane) * 4, 4);
      four = OffsetCodes(matrix.dtype, four);
      std::memcpy(block + parts.scale_bytes + j * 4, &four, 4);
    }
    for (int64_t s = 0; s < parts.scale_bytes / 2; ++s) {
      std::memcpy(block + s * 2,
                  scales + ((b * (parts.scale_bytes / 2) + s) * kPackRows + lane) * 2, 2);
    }
    DequantizeRow(matrix.dtype, block, kPackColumns, out + b * kPackColumns);
  }
}

}  // namespace tandem
