#include "tensor/dtype.h"

#include <array>
#include <cctype>

#include "base/check.h"

namespace tandem {
namespace {

constexpr std::array<DTypeInfo, 6> kInfos = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q4_0", 32, 18},  // f16 d, 16 bytes of nibbles
    {"Q4_1", 32, 20},  // f16 d, f16 m, 16 bytes of nibbles
    {"Q8_0", 32, 34},  // f16 d, 32 signed bytes
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
