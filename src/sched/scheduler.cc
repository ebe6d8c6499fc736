#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

int32_t StepsInFlight(const SchedulerConfig& config) { return config.pipeline_depth + 1; }

// What counts of a prompt that is computed for another node. The limit stands for the blocks that
// it needs: one output would never be run.
Request OnlyThePrompt(Request request) {
  Request send;
  send.id = request.id;
  send.prompt = std::move(request.prompt);
  send.max_output_tokens = 1;
  send.cache_salt = std::move(request.cache_salt);
  send.arrival = request.arrival;
  send.send = request.send;
  return send;
}

void EraseFrom(std::vector<SequenceIndex>* list, SequenceIndex index) {
  list->erase(std::find(list->begin(), list->end(), index));
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerConfig& config,
                                                     HandoffPort* port) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  const StatePools pools(config.groups, StepsInFlight(config) * config.max_row_tokens(),
                         StepsInFlight(config));
  // The last output is never run, so a request of n tokens needs blocks for n - 1.
  const auto most = static_cast<int32_t>(pools.MaxTokens(config.context_length - 1) + 1);
  if (most < 2) return ResourceExhaustedError("the KV pools hold no token");
  return std::unique_ptr<Scheduler>(new Scheduler(config, port, most));
}

Scheduler::Scheduler(const SchedulerConfig& config, HandoffPort* port, int32_t max_context_tokens)
    : config_(config),
      max_context_tokens_(max_context_tokens),
      port_(port),
      pools_(config_.groups, StepsInFlight(config_) * config_.max_row_tokens(),
             StepsInFlight(config_)),
      ledger_(&pools_),
      store_(config_.max_queue + config_.max_running),
      cost_(config_.cost, config_.prepared_tokens),
      predictor_(config_) {
  const auto running = static_cast<size_t>(config_.max_running);
  const int32_t num_slots = config_.num_slots();
  slots_.reserve(static_cast<size_t>(num_slots));
  for (int32_t i = 0; i < num_slots; ++i) {
    slots_.push_back({pools_.MakeSequence(max_context_tokens_), SequenceIndex(-1)});
    free_slots_.push_back(SlotId(num_slots - 1 - i));
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
  if (request.send) {
    if (ledger_.has_send(*request.send)) {
      return InvalidArgumentError("send {} exists", *request.send);
    }
    request = OnlyThePrompt(std::move(request));
  }
  if (waiting() + sending() >= config_.max_queue) {
    return ResourceExhaustedError("{} requests wait, no more are accepted now", waiting());
  }
  TimeNs start_by = 0;
  if (config_.heed_deadlines) TANDEM_RETURN_IF_ERROR(CheckDeadlines(request, now, &start_by));
  const Load load = LoadOf(request);
  predictor_.Accepted(cost_, load, now);
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t most = request.max_output_tokens.value_or(max_context_tokens_ - prompt);
  const std::optional<SendId> send = request.send;
  const SequenceIndex index = store_.Add(std::move(request), most, start_by);
  Sequence& s = store_.at(index);
  s.expected_cached = load.history;
  s.expected_held = load.held;
  if (send) ledger_.OpenSend(*send, {index, s.serial});
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
  EraseFrom(IsRunning(s.state) ? &running_ : &awaiting_kv_, index);
}

void Scheduler::End(SequenceIndex index, RequestState end, const Status& why) {
  TANDEM_CHECK(IsEnd(end));
  Sequence& s = store_.at(index);
  if (s.request.send) {
    EndSend(s, end, why);
  } else if (end == RequestState::kFinished) {
    predictor_.lengths().Observe(s.outputs(), s.request.max_output_tokens);
  }
  if (HoldsSlot(s.state)) {
    if (s.state == RequestState::kAwaitingKv && ledger_.Settle(s.fetch)) {
      port_->CancelFetch(s.fetch);
    }
    LeaveSlot(index);
  } else if (s.state == RequestState::kAwaitingPrefix) {
    EraseFrom(&awaiting_, index);
  } else if (s.state == RequestState::kSending) {
    EraseFrom(&sending_, index);
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
  return config_.reservation == Reservation::kFull || s.request.send.has_value() ||
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
