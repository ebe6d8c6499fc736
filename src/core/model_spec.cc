#include "core/model_spec.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "base/check.h"

namespace tandem {
namespace {

// Limits that keep every product of two dimensions within 64 bits and every dimension within 31;
// far above any public model.
constexpr int32_t kMaxDim = 1 << 20;
constexpr int32_t kMaxLayers = 4096;
constexpr int32_t kMaxVocab = 1 << 24;
constexpr int32_t kMaxContext = 1 << 28;

Status CheckRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgumentError("{} is {}, must be {}..{}", field, value, low, high);
}

Status CheckRope(const RopeSpec& rope, int32_t head_dim) {
  if (rope.dims < 2 || rope.dims > head_dim || rope.dims % 2 != 0) {
    return InvalidArgumentError(
        "rope dimension count {} must be even and at most the head dimension {}", rope.dims,
        head_dim);
  }
  if (!(rope.theta > 0) || rope.theta > 1e12) {
    return InvalidArgumentError("rope frequency base {} must be positive", rope.theta);
  }
  if (!rope.divisors.empty() && rope.divisors.size() != static_cast<size_t>(rope.dims) / 2) {
    return InvalidArgumentError("there are {} rope frequency divisors for {} frequencies",
                                rope.divisors.size(), rope.dims / 2);
  }
  for (const float divisor : rope.divisors) {
    if (divisor >= 1e-6f && divisor <= 1e6f) continue;  // not NaN, and no frequency overflows
    return InvalidArgumentError("rope frequency divisor {} must be in 1e-6..1e6", divisor);
  }
  return OkStatus();
}

// In the order of kKvTypes.
constexpr std::array<std::string_view, 4> kKvTypeNames = {"f32", "f16", "bf16", "q8_0"};
constexpr std::array<std::string_view, 4> kExactNames = {"exact-kv-f32", "exact-kv-f16",
                                                         "exact-kv-bf16", "exact-kv-q8_0"};
constexpr std::array<std::string_view, 4> kFastNames = {"fast-kv-f32", "fast-kv-f16",
                                                        "fast-kv-bf16", "fast-kv-q8_0"};
static_assert(kKvTypeNames.size() == std::size(kKvTypes));

size_t IndexOf(DType kv_type) {
  const auto found = std::find(std::begin(kKvTypes), std::end(kKvTypes), kv_type);
  TANDEM_CHECK(found != std::end(kKvTypes));
  return static_cast<size_t>(found - std::begin(kKvTypes));
}

}  // namespace

Status ModelSpec::Validate() const {
  TANDEM_RETURN_IF_ERROR(CheckRange("layer count", num_layers, 1, kMaxLayers));
  TANDEM_RETURN_IF_ERROR(CheckRange("embedding length", hidden_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(CheckRange("head count", num_heads, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(CheckRange("KV head count", num_kv_heads, 1, num_heads));
  TANDEM_RETURN_IF_ERROR(CheckRange("head dimension", head_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(CheckRange("feed-forward length", ffn_dim, 1, kMaxDim));
  TANDEM_RETURN_IF_ERROR(CheckRange("vocabulary size", vocab_size, 1, kMaxVocab));
  TANDEM_RETURN_IF_ERROR(CheckRange("tokenizer size", tokenizer_size, 1, vocab_size));
  TANDEM_RETURN_IF_ERROR(CheckRange("context length", context_length, 1, kMaxContext));
  TANDEM_RETURN_IF_ERROR(
      CheckRange("heads x head dimension", int64_t{num_heads} * head_dim, 1, kMaxDim));
  if (num_heads % num_kv_heads != 0) {
    return InvalidArgumentError("{} heads do not divide into {} KV heads", num_heads, num_kv_heads);
  }
  TANDEM_RETURN_IF_ERROR(CheckRope(rope, head_dim));
  if (!(rms_epsilon > 0) || rms_epsilon > 1) {
    return InvalidArgumentError("layer norm epsilon {} must be in (0, 1]", rms_epsilon);
  }
  return OkStatus();
}

std::string_view NameOf(Numerics numerics) {
  const size_t kv = IndexOf(numerics.kv);
  return numerics.arithmetic == Arithmetic::kExact ? kExactNames[kv] : kFastNames[kv];
}

std::string_view NameOf(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kExact ? "exact" : "fast";
}

std::string_view NameOfKvType(DType type) { return kKvTypeNames[IndexOf(type)]; }

Result<DType> KvTypeFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kKvTypes); ++i) {
    if (kKvTypeNames[i] == name) return kKvTypes[i];
  }
  return InvalidArgumentError("unknown KV type '{}': use {}", name, fmt::join(kKvTypeNames, ", "));
}

Result<Numerics> NumericsFromName(std::string_view name, std::string_view kv_type) {
  Numerics numerics = Numerics::kFast;
  if (name == "exact") {
    numerics = Numerics::kExact;
  } else if (name != "fast") {
    return InvalidArgumentError("unknown numerics '{}': use exact or fast", name);
  }
  if (!kv_type.empty()) {
    TANDEM_ASSIGN_OR_RETURN(numerics.kv, KvTypeFromName(kv_type));
  }
  return numerics;
}

Result<std::vector<StateGroup>> MakeStateGroups(const ModelSpec& spec, Numerics numerics,
                                                int32_t tokens_per_block, Shard shard) {
  if (spec.num_kv_heads % shard.world != 0 || spec.num_heads % shard.world != 0) {
    return InvalidArgumentError(
        "{} heads and {} KV heads do not split over {} tensor-parallel ranks", spec.num_heads,
        spec.num_kv_heads, shard.world);
  }
  StateGroup group;
  group.layers.resize(static_cast<size_t>(spec.num_layers));
  std::iota(group.layers.begin(), group.layers.end(), 0);
  group.num_heads = spec.num_kv_heads / shard.world;
  group.planes = {{"k", numerics.kv, TileLayout::kDimMajor, spec.head_dim},
                  {"v", numerics.kv, TileLayout::kTokenMajor, spec.head_dim}};
  group.tokens_per_block = tokens_per_block;
  group.shard = shard;
  TANDEM_RETURN_IF_ERROR(group.Validate());
  return std::vector<StateGroup>{std::move(group)};
}

}  // namespace tandem
