// What: ModelSpec: the numbers that define a model, whatever file they came from; and the numerics
//   id.
// Not here: weights (model/weights.h), tokenizer.
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "tensor/state_group.h"

namespace tandem {

enum class RopeStyle : uint8_t {
  kInterleaved,  // rotates pairs (2i, 2i+1): GGUF files of the Llama family
  kHalfSplit,    // rotates pairs (i, i + dims/2): "NEOX"; Qwen, and Hugging Face's Llama
};

struct RopeSpec {
  RopeStyle style = RopeStyle::kInterleaved;
  double theta = 10000.0;
  int32_t dims = 0;  // rotated values per head, even
  // What the frequency theta^(-2i / dims) of each pair i is divided by: scaling for longer contexts
  // (Llama 3.1). [dims / 2], or empty: by 1.
  std::vector<float> divisors = {};
};

struct ModelSpec {
  std::string architecture;  // "llama": a family of model/family.h
  std::string name;          // for people
  int32_t num_layers = 0;
  int32_t hidden_dim = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t ffn_dim = 0;
  int32_t vocab_size = 0;      // rows of the embedding, width of the logits
  int32_t tokenizer_size = 0;  // ids from here to vocab_size have no token and are never sampled
  int32_t context_length = 0;
  double rms_epsilon = 0;
  RopeSpec rope;
  bool qkv_bias = false;  // q, k and v have biases
  bool qk_norm = false;   // RMS norm of each head of q and k before the rotation
  bool tied_embeddings = false;
  Hash128 identity;  // of the content of the weights and the fields above

  // Names the first field that makes no sense or that Tandem's limits exclude.
  Status Validate() const;
};

enum class Arithmetic : uint8_t {
  kExact,  // dequantised weights, f32 activations
  kFast,   // activations quantised to 8 bits per 32 values where the weights are quantised
};

// The numerics id: how numbers are computed, and how K and V are stored. Two runs with the same id
// give the same bits for the same row (docs/decisions/001, 006).
struct Numerics {
  Arithmetic arithmetic = Arithmetic::kFast;
  DType kv = DType::kF16;  // one of kKvTypes

  static const Numerics kExact;  // with f32 KV: the oracle setting
  static const Numerics kFast;   // with f16 KV
  bool operator==(const Numerics&) const = default;
};
inline constexpr Numerics Numerics::kExact = {Arithmetic::kExact, DType::kF32};
inline constexpr Numerics Numerics::kFast = {Arithmetic::kFast, DType::kF16};

inline constexpr DType kKvTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0};

// "fast-kv-f16": both parts, in prefix cache and hand-off identities, logs and reports.
std::string_view NameOf(Numerics numerics);
std::string_view NameOf(Arithmetic arithmetic);  // "fast", "exact"
std::string_view NameOfKvType(DType type);       // "f16", of kKvTypes
// INVALID_ARGUMENT names the choices.
Result<DType> KvTypeFromName(std::string_view name);
// By the name of the arithmetic, and of the KV type (empty: the one that goes with it, as above).
Result<Numerics> NumericsFromName(std::string_view name, std::string_view kv_type = {});

inline constexpr int32_t kDefaultTokensPerBlock = 16;

// The state groups of `spec` for one shard: the list that pool, scheduler and kernels share.
// Fails when the KV heads cannot be split over the shards.
Result<std::vector<StateGroup>> MakeStateGroups(const ModelSpec& spec, Numerics numerics,
                                                int32_t tokens_per_block, Shard shard);

}  // namespace tandem
