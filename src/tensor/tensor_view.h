// What: TensorView: where the values of a tensor lie and how to read them. A view owns nothing.
// Not here: allocation (device/buffer.h), strides other than dense rows.
// Threads: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"

namespace tandem {

// Up to four dimensions, outermost first. Unused inner dimensions are absent (rank), not 1.
struct Shape {
  std::array<int64_t, 4> dims = {0, 0, 0, 0};
  int rank = 0;

  static Shape Of(int64_t d0) { return {{d0, 0, 0, 0}, 1}; }
  static Shape Of(int64_t d0, int64_t d1) { return {{d0, d1, 0, 0}, 2}; }

  int64_t NumElements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  // Length of the innermost (contiguous) dimension.
  int64_t RowLength() const { return rank == 0 ? 1 : dims[static_cast<size_t>(rank - 1)]; }
  int64_t NumRows() const { return RowLength() == 0 ? 0 : NumElements() / RowLength(); }
  bool operator==(const Shape&) const = default;
};

// Read-only, rows packed without gaps; each row is quantised on its own.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  int64_t RowBytes() const { return BytesOf(dtype, shape.RowLength()); }
  int64_t NumBytes() const { return RowBytes() * shape.NumRows(); }
  const std::byte* Row(int64_t row) const { return data + row * RowBytes(); }
};

}  // namespace tandem
