#include "sched/scheduler_config.h"

namespace tandem {
namespace {

// Bounds that keep every sum and product of the scheduler far inside 32 bits.
constexpr int32_t kMaxDepth = 8;
constexpr int32_t kMaxCount = 1 << 24;

Status CheckRange(const char* name, int32_t value, int32_t least, int32_t most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgumentError("{} is {}, must be {} to {}", name, value, least, most);
}

}  // namespace

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
  TANDEM_RETURN_IF_ERROR(CheckRange("token budget", token_budget, max_running, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("chunk tokens", chunk_tokens, 1, kMaxCount));
  TANDEM_RETURN_IF_ERROR(CheckRange("reserve tokens", reserve_tokens, 0, kMaxCount));
  return CheckRange("max queue", max_queue, 1, kMaxCount);
}

}  // namespace tandem
