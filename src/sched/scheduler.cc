#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

int32_t StepsInFlight(const SchedulerConfig& config) { return config.pipeline_depth + 1; }

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerConfig& config) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  const StatePools pools(config.groups, StepsInFlight(config) * config.max_row_tokens(),
                         StepsInFlight(config));
  // The last output is never run, so a request of n tokens needs blocks for n - 1.
  const auto most = static_cast<int32_t>(pools.MaxTokens(config.context_length - 1) + 1);
  if (most < 2) return ResourceExhaustedError("the KV pools hold no token");
  return std::unique_ptr<Scheduler>(new Scheduler(config, most));
}

Scheduler::Scheduler(const SchedulerConfig& config, int32_t max_context_tokens)
    : config_(config),
      max_context_tokens_(max_context_tokens),
      pools_(config_.groups, StepsInFlight(config_) * config_.max_row_tokens(),
             StepsInFlight(config_)),
      store_(config_.max_queue + config_.max_running),
      cost_(config_.cost, config_.prepared_tokens),
      predictor_(config_) {
  const auto running = static_cast<size_t>(config_.max_running);
  slots_.reserve(running);
  for (size_t i = 0; i < running; ++i) {
    slots_.push_back({pools_.MakeSequence(max_context_tokens_), SequenceIndex(-1)});
    free_slots_.push_back(SlotId(config_.max_running - 1 - static_cast<int32_t>(i)));
  }
  if (config_.prefix_cache) {
    PrefixCache::Options options{.retention = config_.prefix_cache->retention,
                                 .key = config_.prefix_cache->key};
    options.costs.recompute_s = [this](int64_t begin, int64_t end) {
      return RecomputeSeconds(begin, end);
    };
    cache_ = std::make_unique<PrefixCache>(&pools_, std::move(options));
  }
  running_.reserve(running);
  pending_leaves_.reserve(running);
  flights_.resize(static_cast<size_t>(StepsInFlight(config_)));
  for (Flight& flight : flights_) flight.rows.reserve(running);
  outcome_.rows.reserve(running);
  outcome_.failed.reserve(running);
}

Status Scheduler::Enqueue(Request request, TimeNs now) {
  refusal_.reset();
  TANDEM_RETURN_IF_ERROR(Validate(request));
  if (store_.Find(request.id)) return InvalidArgumentError("request {} exists", request.id);
  if (waiting() >= config_.max_queue) {
    return ResourceExhaustedError("{} requests wait, no more are accepted now", waiting());
  }
  TimeNs start_by = 0;
  if (config_.heed_deadlines) TANDEM_RETURN_IF_ERROR(CheckDeadlines(request, now, &start_by));
  predictor_.Accepted(cost_, LoadOf(request), now);
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t most = request.max_output_tokens.value_or(max_context_tokens_ - prompt);
  store_.Add(std::move(request), most, start_by);
  return OkStatus();
}

void Scheduler::AppendToken(SequenceIndex index, TokenId token, TimeNs now) {
  Sequence& s = store_.at(index);
  s.tokens.push_back(token);
  if (s.outputs() == 1) s.times.first_token = now;
}

void Scheduler::Move(Sequence* sequence, RequestState to) {
  if (sequence->state == to) return;
  TANDEM_CHECK(CanMove(sequence->state, to));
  sequence->state = to;
}

void Scheduler::LeaveSlot(SequenceIndex index) {
  Sequence& s = store_.at(index);
  Slot& slot = slots_[static_cast<size_t>(s.slot.value())];
  GiveUpBlocks(s);
  slot.sequence = SequenceIndex(-1);
  free_slots_.push_back(s.slot);
  // The leave is in the next plan, so in the plan of the slot's next join at the latest.
  if (s.joined) pending_leaves_.push_back(s.slot);
  s.joined = false;
  s.slot = kNoSlot;
  running_.erase(std::find(running_.begin(), running_.end(), index));
}

void Scheduler::End(SequenceIndex index, RequestState end) {
  TANDEM_CHECK(IsEnd(end));
  Sequence& s = store_.at(index);
  if (end == RequestState::kFinished) {
    predictor_.lengths().Observe(s.outputs(), s.request.max_output_tokens);
  }
  if (IsRunning(s.state)) {
    LeaveSlot(index);
  } else if (s.state == RequestState::kAwaitingPrefix) {
    awaiting_.erase(std::find(awaiting_.begin(), awaiting_.end(), index));
  } else {
    store_.Unlink(index);
  }
  Move(&s, end);
  store_.Remove(index);
}

void Scheduler::Preempt(SequenceIndex index) {
  LeaveSlot(index);
  Sequence& s = store_.at(index);
  Move(&s, RequestState::kPreempted);
  s.next_position = 0;
  if (config_.preemption == PreemptionRule::kLastAdmitted) {
    store_.PushHead(index);
  } else {
    store_.InsertPreempted(index);
  }
  ++s.preemptions;
  ++preemptions_;
}

bool Scheduler::FullyReserved(const Sequence& s) const {
  return config_.reservation == Reservation::kFull ||
         (config_.reservation == Reservation::kReserveTokens && s.has_limit());
}

int64_t Scheduler::TokensToReserve(const Sequence& s) const {
  const int64_t ever = int64_t{s.prompt_tokens} + s.outputs_max - 1;
  if (FullyReserved(s)) return ever;
  if (config_.reservation == Reservation::kOnDemand) return s.known();
  const int64_t promised = int64_t{s.prompt_tokens} + config_.reserve_tokens;
  return std::min(ever, std::max<int64_t>(promised, s.known()));
}

}  // namespace tandem
