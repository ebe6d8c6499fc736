#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "engine/testing/scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const tandem::testing::ScenarioReport report =
      tandem::testing::RunScenario({data, std::min<size_t>(size, 4096)});
  TANDEM_CHECK_EQ(report.fault.ToString(), "OK");
  return 0;
}
