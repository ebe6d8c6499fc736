#include "sched/scheduler_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tandem {
namespace {

// Bounds that keep every sum and product of the scheduler far inside 32 bits.
constexpr int32_t kMaxDepth = 8;
constexpr int32_t kMaxCount = 1 << 24;
constexpr size_t kMaxPreparedShapes = 256;

template <typename T>
struct Named {
  std::string_view name;
  T value;
};
constexpr std::array<Named<Policy>, 4> kPolicies{{{"static", Policy::kStatic},
                                                  {"continuous", Policy::kContinuous},
                                                  {"chunked", Policy::kChunked},
                                                  {"fixed", Policy::kStatic}}};
constexpr std::array<Named<Reservation>, 3> kReservations{
    {{"full", Reservation::kFull},
     {"reserve-tokens", Reservation::kReserveTokens},
     {"on-demand", Reservation::kOnDemand}}};
constexpr std::array<Named<PreemptionRule>, 2> kRules{
    {{"least-recompute", PreemptionRule::kLeastRecompute},
     {"last-admitted", PreemptionRule::kLastAdmitted}}};

template <typename T, size_t n>
std::string_view FindName(const std::array<Named<T>, n>& table, T value) {
  for (const auto& entry : table)
    if (entry.value == value) return entry.name;
  return "unknown";
}

template <typename T, size_t n>
Result<T> FindValue(const char* what, const std::array<Named<T>, n>& table, std::string_view name) {
  std::string names;
  for (const auto& entry : table) {
    if (entry.name == name) return entry.value;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return InvalidArgumentError("'{}' is no {}; there are {}", name, what, names);
}

Status CheckRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgumentError("{} is {}, must be {} to {}", name, value, least, most);
}

Status CheckCost(const LinearCost& cost) {
  for (double value : {cost.base_ns, cost.token_ns, cost.pair_ns}) {
    if (!std::isfinite(value) || value < 0) {
      return InvalidArgumentError("a cost of {} ns, must be at least 0", value);
    }
  }
  return OkStatus();
}

Status CheckPrepared(const std::vector<int32_t>& tokens) {
  if (tokens.size() > kMaxPreparedShapes) {
    return InvalidArgumentError("{} prepared shapes, at most {} are allowed", tokens.size(),
                                kMaxPreparedShapes);
  }
  int32_t last = 0;
  for (int32_t n : tokens) {
    TANDEM_RETURN_IF_ERROR(CheckRange("prepared tokens", n, last + 1, kMaxCount));
    last = n;
  }
  return OkStatus();
}

Status CheckFetch(const SchedulerConfig& config) {
  const FetchConfig& fetch = config.fetch;
  TANDEM_RETURN_IF_ERROR(CheckRange("max fetches", fetch.max_fetches, 0, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("least tokens to fetch", fetch.min_tokens, 1, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("attempts to fetch", fetch.max_attempts, 1, kMaxCount));
  if (fetch.max_fetches > 0 && config.has_window_group()) {
    return UnimplementedError("the state of a model with window groups cannot be fetched");
  }
  return OkStatus();
}

}  // namespace

std::string_view NameOf(Policy policy) { return FindName(kPolicies, policy); }
Result<Policy> PolicyFromName(std::string_view name) {
  return FindValue("policy", kPolicies, name);
}
std::string_view NameOf(Reservation reservation) { return FindName(kReservations, reservation); }
Result<Reservation> ReservationFromName(std::string_view name) {
  return FindValue("reservation mode", kReservations, name);
}
std::string_view NameOf(PreemptionRule rule) { return FindName(kRules, rule); }
Result<PreemptionRule> PreemptionRuleFromName(std::string_view name) {
  return FindValue("preemption rule", kRules, name);
}

int32_t SchedulerConfig::max_row_tokens() const {
  return policy == Policy::kChunked ? std::min(chunk_tokens, token_budget) : context_length;
}

bool SchedulerConfig::has_window_group() const {
  return std::any_of(groups.begin(), groups.end(),
                     [](const StateGroupBlocks& g) { return g.group.kind == StateKind::kWindow; });
}

Status SchedulerConfig::Validate() const {
  if (groups.empty()) return InvalidArgumentError("the model has no state groups");
  for (size_t i = 0; i < groups.size(); ++i) {
    if (Status s = groups[i].group.Validate(); !s.ok()) {
      return s.WithContext(fmt::format("state group {}", i));
    }
    if (groups[i].num_blocks <= 0) {
      return InvalidArgumentError("state group {} has {} blocks", i, groups[i].num_blocks);
    }
  }
  TANDEM_RETURN_IF_ERROR(CheckRange("context length", context_length, 2, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("vocabulary size", vocab_size, 1, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("pipeline depth", pipeline_depth, 0, kMaxDepth));
  TANDEM_RETURN_IF_ERROR(CheckRange("max running", max_running, 1, kMaxCount));
  const int32_t least = policy == Policy::kChunked ? max_running : 1;
  TANDEM_RETURN_IF_ERROR(CheckRange("token budget", token_budget, least, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("chunk tokens", chunk_tokens, 1, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("ITL target", itl_target, 0, 3600 * kNsPerS));
  if (cost) TANDEM_RETURN_IF_ERROR(CheckCost(*cost));
  TANDEM_RETURN_IF_ERROR(CheckPrepared(prepared_tokens));
  TANDEM_RETURN_IF_ERROR(CheckRange("reserve tokens", reserve_tokens, 0, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckFetch(*this));
  return CheckRange("max queue", max_queue, 1, kMaxCount);
}

}  // namespace tandem
