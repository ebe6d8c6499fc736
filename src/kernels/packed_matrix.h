// What: PackedMatrix: a weight matrix in the order the matrix kernels read it, and the functions
//   that pack it and read single values or rows back.
// Not here: where the bytes live (model/weights.h: a mapped cache file), activations
//   (activation.h).
// Threads: views are values; packing is a pure function.
// Invariants: rows are grouped by kPackRows, so that one vector lane is one output row and a row's
//   sum over K has one order on every instruction set (docs/decisions/001). A group starts at a
//   multiple of 64 bytes and holds, with lane = row within the group:
//     F32, F16, BF16  [cols][lane] values Q4_0, Q4_1      codes [cols / 32][4][lane][4]: byte (j,
//     lane, i) of a block holds column 4j + i in
//                     its low half and column 16 + 4j + i in its high half;
//                     then scales [cols / 32][lane] f16; for Q4_1 [cols / 32][scale, minimum][lane]
//     Q8_0            codes [cols / 32][8][lane][4]: byte (j, lane, i) is column 4j + i, plus 128;
//                     then scales [cols / 32][lane] f16
//   So four bytes of a lane are four consecutive columns: one lane of an 8-bit dot product. Missing
//   rows of the last group are zeros. A packed matrix is as large as its source up to this padding.
//   `exact` and `fast` read the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
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

// Row `row` dequantised to `out` [cols]: exactly the source's values.
void UnpackRow(const PackedMatrix& matrix, int32_t row, float* out);

}  // namespace tandem
