#include "tensor/block_quant.h"

#include <cstring>

#include "base/check.h"
#include "tensor/block_encode.h"
#include "tensor/block_fields.h"
#include "tensor/half.h"

namespace tandem {
namespace {

uint16_t LoadU16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void StoreU16(std::byte* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }

void DecodeBlock(DType dtype, const std::byte* block, float* out) {
  const QuantFormat& format = FormatOf(dtype);
  BlockFields fields;
  ReadBlock(dtype, block, &fields);
  ScaleAndMinimum of;
  for (int i = 0; i < InfoOf(dtype).block_elements; ++i) {
    if (i % format.columns_per_scale == 0)
      of = ScaleOf(format, fields, i / format.columns_per_scale);
    out[i] = of.scale * static_cast<float>(format.ValueOf(fields.codes[i]));
    if (format.has_minimum()) out[i] += of.minimum;
  }
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* src, int64_t n, float* out) {
  const DTypeInfo& info = InfoOf(dtype);
  TANDEM_CHECK_GE(n, 0);
  TANDEM_CHECK_EQ(n % info.block_elements, 0);
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) out[i] = HalfToFloat(LoadU16(src + 2 * i));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) out[i] = BFloat16ToFloat(LoadU16(src + 2 * i));
      return;
    default:
      for (int64_t b = 0; b < n / info.block_elements; ++b) {
        DecodeBlock(dtype, src + b * info.block_bytes, out + b * info.block_elements);
      }
  }
}

void QuantizeRow(DType dtype, const float* src, int64_t n, std::byte* out) {
  const DTypeInfo& info = InfoOf(dtype);
  TANDEM_CHECK_GE(n, 0);
  TANDEM_CHECK_EQ(n % info.block_elements, 0);
  switch (dtype) {
    case DType::kF32:
      if (n > 0) std::memcpy(out, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < n; ++i) StoreU16(out + 2 * i, FloatToHalf(src[i]));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < n; ++i) StoreU16(out + 2 * i, FloatToBFloat16(src[i]));
      return;
    default:
      for (int64_t b = 0; b < n / info.block_elements; ++b) {
        WriteBlock(dtype, EncodeBlock(dtype, src + b * info.block_elements),
                   out + b * info.block_bytes);
      }
  }
}

}  // namespace tandem
