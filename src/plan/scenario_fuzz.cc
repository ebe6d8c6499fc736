// A scenario from foreign bytes is refused or runs to its end; small ones are run.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "plan/scenario.h"
#include "plan/simulation_report.h"
#include "plan/simulator.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  constexpr int64_t kMostTokens = 20'000;
  const Result<Scenario> scenario =
      ParseScenario(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!scenario.ok()) return 0;
  int64_t tokens = 0;
  for (const ScenarioRequest& r : scenario->requests) {
    tokens += r.prompt_tokens + r.output_tokens + r.max_tokens.value_or(0);
  }
  if (tokens > kMostTokens || !ConfigOf(*scenario).ok()) return 0;
  const Result<Simulation> simulation = Simulate(*scenario, true);
  if (!simulation.ok()) return 0;
  ToJson(*scenario, *simulation);
  ToText(*scenario, *simulation);
  ToSvg(*scenario, *simulation);
  return 0;
}
