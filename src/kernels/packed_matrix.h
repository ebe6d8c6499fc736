// What: PackedMatrix: a weight matrix in the order the matrix kernels read it, and the functions
//   that pack it and read single values or rows back.
// Not here: where the bytes live (model/weights.h: a mapped cache file), activations
//   (activation.h).
// Threads: views are values; packing is a pure function.
// Invariants: rows are grouped by kPackRows, so that one vector lane is one output row and a row's
//   sum over K has one order on every instruction set (docs/decisions/001). A group starts at a
//   multiple of 64 bytes and holds, with lane = row within the group:
//     F32, F16, BF16  [cols][lane] values
//     others          codes [cols / 32][planes of a block], then scales (below)
//   A block's codes are cut into planes of p = 8, 4, 2 or 1 bits (packed_matrix.cc: PlanesOf): low
//   bits first. A plane is [p words][lane] of 32 bits; bits 8i + tp .. of word w are of column 4 (w
//   + tp) + i. A plane of nibbles so has column 4w + i in the low half of byte i of word w and
//   column 16 + 4w + i in its high half; one of bytes has column 4w + i in byte i. Q8_0's bytes are
//   the code plus 128. Scales of a block, by ScaleForm (tensor/block_fields.h):
//     kHalf            [lane] f16 kHalfAndMinimum  [scale, minimum][lane] f16 kExponent
//     [lane] bytes the others, for 256 columns: d [lane] f16, with minima m [lane] f16; then for
//     each block of 32
//       [scales of 16 or 32 columns][lane] signed bytes; with minima [scale, minimum][lane] bytes,
//       or for Q2_K [16 columns][lane] bytes of a scale (low half) and a minimum (high half)
//   So four bytes of a lane are four consecutive columns: one lane of an 8-bit dot product. Missing
//   rows of the last group are zeros. A packed matrix is as large as its source up to this padding,
//   except Q3_K, Q4_K, Q5_K and IQ4_XS, whose six-bit scales take bytes: 4 to 2 bytes more per 256.
//   `exact` and `fast` read the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/block_fields.h"
#include "tensor/dtype.h"
#include "tensor/tensor_view.h"

namespace tandem {

inline constexpr int32_t kPackRows = 16;  // one AVX-512 register of f32 lanes
inline constexpr int32_t kPackColumns = 32;

struct PackedMatrix {
  const std::byte* data = nullptr;  // 64-byte aligned
  DType dtype = DType::kF32;  // of the codes: the values are exactly those of the source tensor
  int32_t rows = 0;           // outputs
  int32_t cols = 0;           // inputs, multiple of the dtype's block

  int32_t num_groups() const { return (rows + kPackRows - 1) / kPackRows; }
};

// Version of the packed layouts: part of the cache file's key.
inline constexpr uint32_t kPackedLayoutVersion = 1;

// Bytes of one group of kPackRows rows, a multiple of 64. Requires what CanPack does.
int64_t PackedGroupBytes(DType dtype, int64_t cols);

// Bytes of a packed [rows, cols] matrix. Requires a type and shape for which CanPack is ok.
int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);

// UNIMPLEMENTED names a type without a packed layout; INVALID_ARGUMENT a shape that does not divide
// or fit.
Status CanPack(DType dtype, int64_t rows, int64_t cols);

// Packs rows [group * 16, group * 16 + 16) of `source` [rows, cols] into `out` (PackedBytes of one
// group), so that a file is written piece by piece.
void PackGroup(const TensorView& source, int32_t group, std::span<std::byte> out);

// What one row of one block of kPackColumns columns holds: numbers that its codes stand for
// (QuantFormat::ValueOf) and the scale and minimum of each kPackColumns / num_scales of them.
struct PackedBlock {
  int32_t values[kPackColumns];
  ScaleAndMinimum scales[2];
  int32_t num_scales = 1;
  bool has_minimum = false;
};
// Requires a quantised type.
void ReadPackedBlock(const PackedMatrix& matrix, int32_t row, int32_t block, PackedBlock* out);

// Row `row` dequantised to `out` [cols]: exactly the source's values.
void UnpackRow(const PackedMatrix& matrix, int32_t row, float* out);

}  // namespace tandem
