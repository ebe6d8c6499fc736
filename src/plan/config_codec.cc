#include "plan/config_codec.h"

#include <cstdint>
#include <limits>
#include <numeric>

#include "plan/wide_int.h"

namespace tandem {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr TimeNs kMaxTime = TimeNs{1} << 60;
// What a scheduler allocates for a foreign configuration: 1 GiB for each of the three.
constexpr int64_t kMaxBlocks = int64_t{1} << 24;
constexpr int64_t kMaxTableEntries = int64_t{1} << 28;
constexpr int64_t kMaxCachedTokens = int64_t{1} << 28;
// Of a block: beyond any memory, and sums of blocks stay inside 64 bits.
constexpr int64_t kMaxBlockBytes = int64_t{1} << 36;
constexpr int64_t kMaxSpanTokens = int64_t{1} << 20;
constexpr size_t kMaxGroups = 64;
constexpr size_t kMaxPlanes = 16;

void WriteGroup(const StateGroupBlocks& from, ByteWriter* out) {
  const StateGroup& group = from.group;
  out->Unsigned(static_cast<uint64_t>(group.kind));
  out->Unsigned(group.layers.size());
  out->Signed(group.num_heads);
  out->Signed(group.tokens_per_block);
  out->Signed(group.window_tokens);
  out->Unsigned(group.planes.size());
  for (const StatePlane& plane : group.planes) {
    out->String(plane.name);
    out->Unsigned(static_cast<uint64_t>(plane.dtype));
    out->Unsigned(static_cast<uint64_t>(plane.tile));
    out->Signed(plane.dims);
  }
  out->Signed(from.num_blocks);
}

StateGroupBlocks ReadGroup(ByteReader* in) {
  StateGroupBlocks to;
  StateGroup& group = to.group;
  group.kind = static_cast<StateKind>(in->AtMost(static_cast<uint64_t>(StateKind::kWindow)));
  group.layers.resize(in->AtMost(1 << 16));
  std::iota(group.layers.begin(), group.layers.end(), 0);
  group.num_heads = static_cast<int32_t>(in->Between(1, kMaxInt));
  group.tokens_per_block = static_cast<int32_t>(in->Between(1, kMaxSpanTokens));
  group.window_tokens = static_cast<int32_t>(in->Between(0, kMaxInt));
  group.planes.resize(in->AtMost(kMaxPlanes));
  for (StatePlane& plane : group.planes) {
    plane.name = in->String();
    plane.dtype = static_cast<DType>(in->AtMost(static_cast<uint64_t>(DType::kMXFP4)));
    plane.tile = static_cast<TileLayout>(in->AtMost(static_cast<uint64_t>(TileLayout::kDimMajor)));
    plane.dims = static_cast<int32_t>(in->Between(1, kMaxInt));
  }
  to.num_blocks = static_cast<int32_t>(in->Between(1, kMaxBlocks));
  return to;
}

// The bytes of a block, as numbers of four bytes, do not overflow.
bool BlockIsOfThisWorld(const StateGroup& group) {
  WideInt dims = 0;
  for (const StatePlane& plane : group.planes) dims += plane.dims;
  const WideInt pages = WideInt{static_cast<int64_t>(group.layers.size())} * group.num_heads;
  return pages <= kMaxBlockBytes && pages * dims * group.tokens_per_block <= kMaxBlockBytes / 4;
}

Status CheckMemory(const SchedulerConfig& config) {
  int64_t blocks = 0;
  int64_t cached_tokens = 0;
  int64_t span = 1;
  int64_t entries = 0;
  for (const StateGroupBlocks& g : config.groups) {
    if (!BlockIsOfThisWorld(g.group)) return OutOfRangeError("a block of more than 64 GiB");
    blocks += g.num_blocks;
    cached_tokens += int64_t{g.num_blocks} * g.group.tokens_per_block;
    span = std::min(kMaxSpanTokens + 1, std::lcm(span, int64_t{g.group.tokens_per_block}));
    entries += config.num_slots() *
               std::min<int64_t>(g.num_blocks, g.group.BlocksFor(config.context_length));
  }
  if (blocks > kMaxBlocks) return OutOfRangeError("{} blocks, at most {}", blocks, kMaxBlocks);
  if (entries > kMaxTableEntries) {
    return OutOfRangeError("{} sequences of up to {} tokens", config.num_slots(),
                           config.context_length);
  }
  if (config.prefix_cache && (span > kMaxSpanTokens || cached_tokens > kMaxCachedTokens)) {
    return OutOfRangeError("a prefix cache of {} tokens in spans of {}", cached_tokens, span);
  }
  return OkStatus();
}

void WriteCost(const LinearCost& cost, ByteWriter* out) {
  out->Double(cost.base_ns);
  out->Double(cost.token_ns);
  out->Double(cost.pair_ns);
}

}  // namespace

void WriteConfig(const SchedulerConfig& config, ByteWriter* out) {
  out->Unsigned(config.groups.size());
  for (const StateGroupBlocks& group : config.groups) WriteGroup(group, out);
  out->Signed(config.context_length);
  out->Signed(config.vocab_size);
  out->Signed(config.pipeline_depth);
  out->Unsigned(static_cast<uint64_t>(config.policy));
  out->Signed(config.max_running);
  out->Signed(config.token_budget);
  out->Signed(config.chunk_tokens);
  out->Signed(config.itl_target);
  out->Unsigned(config.cost.has_value() ? 1 : 0);
  if (config.cost) WriteCost(*config.cost, out);
  out->Unsigned(config.prepared_tokens.size());
  for (const int32_t tokens : config.prepared_tokens) out->Signed(tokens);
  out->Unsigned(static_cast<uint64_t>(config.reservation));
  out->Signed(config.reserve_tokens);
  out->Unsigned(static_cast<uint64_t>(config.preemption));
  out->Unsigned(config.prefix_cache.has_value() ? 1 : 0);
  if (config.prefix_cache) {
    out->Unsigned(static_cast<uint64_t>(config.prefix_cache->retention));
  }
  out->Unsigned(config.heed_deadlines ? 1 : 0);
  out->Signed(config.max_queue);
  out->Signed(config.fetch.max_fetches);
  out->Signed(config.fetch.min_tokens);
  out->Signed(config.fetch.max_attempts);
}

Result<SchedulerConfig> ReadConfig(ByteReader* in) {
  const auto number = [in] { return static_cast<int32_t>(in->Between(0, kMaxInt)); };
  SchedulerConfig config;
  config.groups.resize(in->AtMost(kMaxGroups));
  for (StateGroupBlocks& group : config.groups) group = ReadGroup(in);
  config.context_length = number();
  config.vocab_size = number();
  config.pipeline_depth = number();
  config.policy = static_cast<Policy>(in->AtMost(static_cast<uint64_t>(Policy::kChunked)));
  config.max_running = number();
  config.token_budget = number();
  config.chunk_tokens = number();
  config.itl_target = in->Between(0, kMaxTime);
  if (in->Flag()) {
    LinearCost& cost = config.cost.emplace();
    cost.base_ns = in->Double();
    cost.token_ns = in->Double();
    cost.pair_ns = in->Double();
  }
  config.prepared_tokens.resize(in->Count());
  for (int32_t& tokens : config.prepared_tokens) tokens = number();
  config.reservation =
      static_cast<Reservation>(in->AtMost(static_cast<uint64_t>(Reservation::kOnDemand)));
  config.reserve_tokens = number();
  config.preemption =
      static_cast<PreemptionRule>(in->AtMost(static_cast<uint64_t>(PreemptionRule::kLastAdmitted)));
  if (in->Flag()) {
    config.prefix_cache.emplace().retention =
        static_cast<RetentionKind>(in->AtMost(static_cast<uint64_t>(RetentionKind::kValue)));
  }
  config.heed_deadlines = in->Flag();
  config.max_queue = static_cast<int32_t>(in->Between(1, kMaxInt));
  config.fetch.max_fetches = number();
  config.fetch.min_tokens = number();
  config.fetch.max_attempts = number();
  if (!in->ok()) return DataLossError("the configuration is damaged");
  TANDEM_RETURN_IF_ERROR(config.Validate());
  TANDEM_RETURN_IF_ERROR(CheckMemory(config));
  return config;
}

}  // namespace tandem
