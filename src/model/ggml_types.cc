#include "model/ggml_types.h"

#include <algorithm>
#include <array>

namespace tandem {
namespace {

constexpr GgmlTypeInfo Plain(uint32_t id, std::string_view name, int32_t bytes,
                             std::optional<DType> dtype = std::nullopt) {
  return {id, name, 1, bytes, 0, dtype};
}
constexpr GgmlTypeInfo Block(uint32_t id, std::string_view name, int32_t elements, int32_t bytes,
                             int32_t scale_bytes, std::optional<DType> dtype = std::nullopt) {
  return {id, name, elements, bytes, scale_bytes, dtype};
}

// Scales include minimums, sums and, where a byte mixes them with codes (IQ2_XXS, IQ3_XXS, IQ1_S),
// the bits of the block's scales rounded to the four bytes that they fill.
constexpr auto kTypes = std::to_array<GgmlTypeInfo>({
    Plain(0, "F32", 4, DType::kF32),
    Plain(1, "F16", 2, DType::kF16),
    Block(2, "Q4_0", 32, 18, 2, DType::kQ4_0),
    Block(3, "Q4_1", 32, 20, 4, DType::kQ4_1),
    Block(6, "Q5_0", 32, 22, 2, DType::kQ5_0),
    Block(7, "Q5_1", 32, 24, 4, DType::kQ5_1),
    Block(8, "Q8_0", 32, 34, 2, DType::kQ8_0),
    Block(9, "Q8_1", 32, 36, 4),
    Block(10, "Q2_K", 256, 84, 20, DType::kQ2_K),
    Block(11, "Q3_K", 256, 110, 14, DType::kQ3_K),
    Block(12, "Q4_K", 256, 144, 16, DType::kQ4_K),
    Block(13, "Q5_K", 256, 176, 16, DType::kQ5_K),
    Block(14, "Q6_K", 256, 210, 18, DType::kQ6_K),
    Block(15, "Q8_K", 256, 292, 36),
    Block(16, "IQ2_XXS", 256, 66, 6),
    Block(17, "IQ2_XS", 256, 74, 10),
    Block(18, "IQ3_XXS", 256, 98, 6),
    Block(19, "IQ1_S", 256, 50, 6),
    Block(20, "IQ4_NL", 32, 18, 2, DType::kIQ4_NL),
    Block(21, "IQ3_S", 256, 110, 6),
    Block(22, "IQ2_S", 256, 82, 10),
    Block(23, "IQ4_XS", 256, 136, 8, DType::kIQ4_XS),
    Plain(24, "I8", 1),
    Plain(25, "I16", 2),
    Plain(26, "I32", 4),
    Plain(27, "I64", 8),
    Plain(28, "F64", 8),
    Block(29, "IQ1_M", 256, 56, 8),
    Plain(30, "BF16", 2, DType::kBF16),
    Block(34, "TQ1_0", 256, 54, 2),
    Block(35, "TQ2_0", 256, 66, 2),
    Block(39, "MXFP4", 32, 17, 1, DType::kMXFP4),
    Block(40, "NVFP4", 64, 36, 4),
    Block(41, "Q1_0", 128, 18, 2),
    Block(42, "Q2_0", 64, 18, 2),
});

}  // namespace

const GgmlTypeInfo* FindGgmlType(uint32_t id) {
  const auto it = std::lower_bound(kTypes.begin(), kTypes.end(), id,
                                   [](const GgmlTypeInfo& t, uint32_t v) { return t.id < v; });
  return it != kTypes.end() && it->id == id ? &*it : nullptr;
}

std::span<const GgmlTypeInfo> AllGgmlTypes() { return kTypes; }

std::string SupportedGgmlTypes() {
  std::string names;
  for (const GgmlTypeInfo& type : kTypes) {
    if (!type.dtype) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace tandem
