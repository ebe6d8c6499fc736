#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/hf_config.h"

// Any text is refused or makes a model that is valid, and end tokens that are token ids.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;  // NOLINT(google-build-using-namespace)
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<ModelSpec> spec = SpecFromHfConfig(text, "fuzz");
  if (spec.ok()) TANDEM_CHECK(spec->Validate().ok());
  const Result<GenerationDefaults> defaults = ReadGenerationDefaults(text, text);
  if (!defaults.ok()) return 0;
  for (const int32_t id : defaults->eos) TANDEM_CHECK_GE(id, 0);
  if (defaults->top_p) TANDEM_CHECK(*defaults->top_p >= 0 && *defaults->top_p <= 1);
  return 0;
}
