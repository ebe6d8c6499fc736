// What: the model families that Tandem runs, and what sets each apart from the plain Llama.
// Not here: sizes (core/model_spec.h), the graph (arch/dense.h), reading files.
// Threads: pure functions of constants.
#pragma once

#include <string>
#include <string_view>

#include "core/model_spec.h"

namespace tandem {

struct Family {
  std::string_view architecture;  // as GGUF files and ModelSpec name it
  // Pairs that GGUF files of this family rotate: the Llama converter permutes the rows of attn_q
  // and attn_k so that neighbours meet, the others leave them as they were trained.
  RopeStyle gguf_rope_style = RopeStyle::kHalfSplit;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool rope_divisors = false;  // may have the tensor "rope_freqs.weight"
};

// Null for an architecture that Tandem does not run.
const Family* FindFamily(std::string_view architecture);
// For messages: "llama, qwen2, qwen3".
std::string FamilyNames();

}  // namespace tandem
