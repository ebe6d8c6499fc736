// What: `tandem bench fabric`: how fast pages go to another process of this machine, over the
//   loopback network and through memory, beside a plain TCP stream and memcpy in the same run.
// Not here: the engine (fabric/fabric_engine.h), other libraries (bench/compare_fabric.py).
// Threads: one; it forks a receiver before anything else starts threads.
// Invariants: what is compared is interleaved burst by burst; figures are the best and the 25th
//   percentile of bursts. Medians say how busy a machine of two cores is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace tandem {

// Of one way and page size.
struct FabricFigure {
  std::string way;  // "network", "same host", "raw TCP", "memcpy"
  double gb_s_best = 0;
  double gb_s_p25 = 0;  // three of four bursts were faster
  double page_us = 0;   // one page, until it is known to be delivered: the best
};
struct FabricRow {
  uint32_t page_bytes = 0;
  uint32_t pages = 0;  // of a burst
  std::vector<FabricFigure> figures;
};

// Takes some seconds. UNAVAILABLE when a process or a network is refused.
Result<std::vector<FabricRow>> MeasureFabric();

std::string FabricText(const std::vector<FabricRow>& rows);
std::string FabricJson(const std::vector<FabricRow>& rows);

}  // namespace tandem
