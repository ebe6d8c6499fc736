// What: the table of CPU kernels of one instruction set, and which tables this machine can run.
// Not here: the kernels (*-inl.h, compiled once per instruction set by kernels_*.cc).
// Threads: any; the choice is made once.
#pragma once

#include <span>

#include "base/status.h"
#include "device/cpu_device.h"
#include "kernels/ops.h"

namespace tandem::internal {

// Kernels for CpuStream::Launch. Attention is two commands: partial results, then their merge.
struct CpuKernels {
  const char* name;
  void (*embed)(CpuTaskContext&, const EmbedArgs&);
  void (*gather_rows)(CpuTaskContext&, const GatherRowsArgs&);
  void (*rms_norm)(CpuTaskContext&, const RmsNormArgs&);
  void (*mat_mul)(CpuTaskContext&, const MatMulArgs&);
  void (*rope_store)(CpuTaskContext&, const RopeStoreArgs&);
  void (*attend)(CpuTaskContext&, const AttentionArgs&);
  void (*merge_attention)(CpuTaskContext&, const AttentionArgs&);
  void (*silu_mul)(CpuTaskContext&, const SiluMulArgs&);
  void (*add)(CpuTaskContext&, const AddArgs&);
  void (*copy_blocks)(CpuTaskContext&, const CopyBlocksArgs&);
};

// The tables that this machine can run, best first; never empty.
std::span<const CpuKernels* const> AvailableCpuKernels();

// The best available table, or the one that the environment variable TANDEM_CPU_ISA names.
Result<const CpuKernels*> ChosenCpuKernels();

// For tests: use `kernels` from now on; null returns to the choice above. No op may be in flight.
void ForceCpuKernels(const CpuKernels* kernels);

}  // namespace tandem::internal
