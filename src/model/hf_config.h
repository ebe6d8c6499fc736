// What: from the texts of config.json and generation_config.json to ModelSpec and
//   GenerationDefaults; and how Hugging Face names the tensors.
// Not here: files (hf_folder.h); tensors' presence and shapes (model_source.h); tokenizer files.
// Threads: pure functions.
// Invariants: whatever would change the computation and is not computed is refused by name.
// Based on: the configuration classes of transformers 4 (rope_theta, rope_scaling, torch_dtype) and
//   5 (rope_parameters, dtype); docs/formats/safetensors.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/model_spec.h"

namespace tandem {

// All fields but `identity`; the rotation is that of half-split heads, which these checkpoints'
// weights are made for. UNIMPLEMENTED names a quantisation, architecture, rope scaling or option
// that Tandem does not run; INVALID_ARGUMENT a field that makes no sense; NOT_FOUND a missing one;
// DATA_LOSS and OUT_OF_RANGE what is wrong with the JSON. `name` is the spec's, for people.
Result<ModelSpec> SpecFromHfConfig(std::string_view config, std::string_view name);

// The name of a tensor of TensorsOf in a checkpoint of Llama's layout:
// "blk.3.attn_q.weight" is "model.layers.3.self_attn.q_proj.weight".
std::string HfTensorName(std::string_view name);

// What a model's authors recommend.
struct GenerationDefaults {
  std::vector<int32_t> eos;  // any of these tokens ends an answer
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
};

// `generation_config` may be empty, when there is no such file; then, or when it does not say, the
// end tokens are those of `config`. Errors as above.
Result<GenerationDefaults> ReadGenerationDefaults(std::string_view generation_config,
                                                  std::string_view config);

}  // namespace tandem
