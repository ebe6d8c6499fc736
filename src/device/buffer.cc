#include "device/buffer.h"

#include "base/check.h"

namespace tandem {

std::string_view NameOf(MemoryTerm term) {
  switch (term) {
    case MemoryTerm::kWeights: return "M_w (weights)";
    case MemoryTerm::kKv: return "M_KV (KV cache)";
    case MemoryTerm::kActivations: return "M_a (activations)";
    case MemoryTerm::kRuntime: return "M_u (runtime)";
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem
