#include "tensor/dtype.h"

#include <array>
#include <cctype>

#include "base/check.h"

namespace tandem {
namespace {

constexpr std::array<DTypeInfo, 16> kInfos = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 18},      // f16 d, 16 bytes of nibbles
    {"Q4_1", 32, 20},      // f16 d, f16 m, 16 bytes of nibbles
    {"Q5_0", 32, 22},      // f16 d, 4 bytes of fifth bits, nibbles
    {"Q5_1", 32, 24},      // f16 d, f16 m, fifth bits, nibbles
    {"Q8_0", 32, 34},      // f16 d, 32 signed bytes
    {"Q2_K", 256, 84},     // 16 bytes of scales and minima, 64 of codes, f16 d, f16 m
    {"Q3_K", 256, 110},    // 32 bytes of third bits, 64 of codes, 12 of scales, f16 d
    {"Q4_K", 256, 144},    // f16 d, f16 m, 12 bytes of scales and minima, nibbles
    {"Q5_K", 256, 176},    // as Q4_K, with 32 bytes of fifth bits before the nibbles
    {"Q6_K", 256, 210},    // nibbles, 64 bytes of upper bits, 16 signed scales, f16 d
    {"IQ4_NL", 32, 18},    // as Q4_0, of a table
    {"IQ4_XS", 256, 136},  // f16 d, 6 bytes of scales, nibbles
    {"MXFP4", 32, 17},     // 8-bit exponent, nibbles
}};

}  // namespace

const DTypeInfo& InfoOf(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  TANDEM_CHECK_LT(i, kInfos.size());
  return kInfos[i];
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    const std::string_view known = kInfos[i].name;
    if (known.size() != name.size()) continue;
    bool same = true;
    for (size_t c = 0; c < name.size(); ++c) {
      same = same && std::toupper(static_cast<unsigned char>(name[c])) == known[c];
    }
    if (same) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t BytesOf(DType dtype, int64_t elements) {
  const DTypeInfo& info = InfoOf(dtype);
  TANDEM_CHECK_EQ(elements % info.block_elements, 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace tandem
