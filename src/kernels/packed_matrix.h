// What: PackedMatrix: a weight matrix in the order the matrix kernels read it, and the functions that pack it and read
//   single values or rows back.
// Not here: where the bytes live (model/weights.h: a mapped cache file), activations (activation.h).
// Threads: views are values; packing is a pure function.
// Invariants: rows are grouped by kPackRows; within a group the columns run in blocks of 32, and each block holds the
//   codes of all rows of the group, then their scales, so that one vector lane is one output row and a row's sum over K
//   has one order on every instruction set (docs/decisions/001). Missing rows of the last group are zeros. A packed
//   matrix is as large as its source up to that padding. `exact` and `fast` read the same bytes.
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
  DType dtype = DType::kF32;        // of the codes: the values are exactly those of the source tensor
  int32_t rows = 0;                 // outputs
  int32_t cols = 0;                 // inputs, multiple of the dtype's block

  int32_t num_groups() const { return (rows + kPackRows - 1) / kPackRows; }
};

// Version of the packed layouts: part of the cache file's key.
inline constexpr uint32_t kPackedLayoutVersion = 1;

// Bytes of a packed [rows, cols] matrix. Requires a type and shape for which CanPack is ok.
int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);

// UNIMPLEMENTED names a type without a packed layout; INVALID_ARGUMENT a shape that does not divide.
Status CanPack(DType dtype, int64_t rows, int64_t cols);

// Packs rows [group * 16, group * 16 + 16) of `source` [rows, cols] into `out` (PackedBytes of one group), so that a
// file is written piece by piece.
void PackGroup(const TensorView& source, int32_t group, std::span<std::byte> out);

// Row `row` dequantised to `out` [cols]: exactly the source's values.
void UnpackRow(const PackedMatrix& matrix, int32_t row, float* out);

}  // namespace tandem
