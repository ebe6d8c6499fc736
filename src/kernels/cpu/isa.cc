#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace scalar {
extern const internal::CpuKernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const internal::CpuKernels kKernels;
}
namespace avx512 {
extern const internal::CpuKernels kKernels;
}
#endif

namespace internal {
namespace {

struct Available {
  std::array<const CpuKernels*, 3> kernels = {};
  size_t count = 0;

  Available() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni")) {
      kernels[count++] = &avx512::kKernels;
    }
    // Every processor with AVX2 has F16C; the compilers' run-time check has no name for it.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      kernels[count++] = &avx2::kKernels;
    }
#endif
    kernels[count++] = &scalar::kKernels;
  }
};

Result<const CpuKernels*> Choose() {
  const auto available = AvailableCpuKernels();
  const char* wanted = std::getenv("TANDEM_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return available.front();
  std::string names;
  for (const CpuKernels* kernels : available) {
    if (std::string_view(kernels->name) == wanted) return kernels;
    names += names.empty() ? kernels->name : std::string(", ") + kernels->name;
  }
  return InvalidArgumentError("TANDEM_CPU_ISA is '{}'; this machine can run {}", wanted, names);
}

std::atomic<const CpuKernels*> forced_kernels{nullptr};

}  // namespace

std::span<const CpuKernels* const> AvailableCpuKernels() {
  static const Available available;
  return {available.kernels.data(), available.count};
}

Result<const CpuKernels*> ChosenCpuKernels() {
  if (const CpuKernels* kernels = forced_kernels.load(std::memory_order_relaxed)) return kernels;
  static const Result<const CpuKernels*> chosen = Choose();
  return chosen;
}

void ForceCpuKernels(const CpuKernels* kernels) {
  forced_kernels.store(kernels, std::memory_order_relaxed);
}

}  // namespace internal
}  // namespace tandem
