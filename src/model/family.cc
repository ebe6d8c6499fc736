#include "model/family.h"

namespace tandem {
namespace {

constexpr Family kFamilies[] = {
    {.architecture = "llama", .gguf_rope_style = RopeStyle::kInterleaved, .rope_divisors = true},
    {.architecture = "qwen2", .qkv_bias = true},
    {.architecture = "qwen3", .qk_norm = true},
};

}  // namespace

const Family* FindFamily(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

std::string FamilyNames() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

}  // namespace tandem
