#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

// The longest row of one sequence.
int32_t MaxRowTokens(const SchedulerConfig& config) {
  return std::min(config.chunk_tokens, config.token_budget);
}

int32_t StepsInFlight(const SchedulerConfig& config) { return config.pipeline_depth + 1; }

Status ValidateSampling(const SamplingParams& p) {
  if (!std::isfinite(p.temperature) || p.temperature < 0) {
    return InvalidArgumentError("temperature is {}, must be at least 0", p.temperature);
  }
  if (p.top_k < 0) return InvalidArgumentError("top_k is {}, must be at least 0", p.top_k);
  if (!(p.top_p > 0 && p.top_p <= 1)) {
    return InvalidArgumentError("top_p is {}, must be above 0 and at most 1", p.top_p);
  }
  if (!(p.min_p >= 0 && p.min_p <= 1)) {
    return InvalidArgumentError("min_p is {}, must be from 0 to 1", p.min_p);
  }
  if (!std::isfinite(p.repetition_penalty) || p.repetition_penalty <= 0) {
    return InvalidArgumentError("the repetition penalty is {}, must be above 0",
                                p.repetition_penalty);
  }
  if (!std::isfinite(p.presence_penalty) || !std::isfinite(p.frequency_penalty)) {
    return InvalidArgumentError("presence and frequency penalty are {} and {}, must be finite",
                                p.presence_penalty, p.frequency_penalty);
  }
  if (p.min_tokens < 0) {
    return InvalidArgumentError("the least tokens are {}, must be at least 0", p.min_tokens);
  }
  if (p.top_logprobs > kMaxTopLogprobs) {
    return InvalidArgumentError("{} likeliest tokens, at most {} are allowed", p.top_logprobs,
                                kMaxTopLogprobs);
  }
  return OkStatus();
}

Status ValidateLogitBias(const Request& request, int32_t vocab_size) {
  if (request.logit_bias.size() > static_cast<size_t>(kMaxLogitBias)) {
    return InvalidArgumentError("{} logit biases, at most {} are allowed",
                                request.logit_bias.size(), kMaxLogitBias);
  }
  for (const LogitBias& entry : request.logit_bias) {
    if (entry.token.value() < 0 || entry.token.value() >= vocab_size) {
      return InvalidArgumentError(
          "token {} of the logit bias is not one of the {} of the vocabulary", entry.token,
          vocab_size);
    }
    if (!std::isfinite(entry.bias)) {
      return InvalidArgumentError("the logit bias of token {} is not finite", entry.token);
    }
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerConfig& config) {
  TANDEM_RETURN_IF_ERROR(config.Validate());
  const StatePools pools(config.groups, StepsInFlight(config) * MaxRowTokens(config),
                         StepsInFlight(config));
  // The last output is never run, so a request of n tokens needs blocks for n - 1.
  const auto most = static_cast<int32_t>(pools.MaxTokens(config.context_length - 1) + 1);
  if (most < 2) return ResourceExhaustedError("the KV pools hold no token");
  return std::unique_ptr<Scheduler>(new Scheduler(config, most));
}

Scheduler::Scheduler(const SchedulerConfig& config, int32_t max_context_tokens)
    : config_(config),
      max_context_tokens_(max_context_tokens),
      pools_(config_.groups, StepsInFlight(config_) * MaxRowTokens(config_),
             StepsInFlight(config_)),
      store_(config_.max_queue + config_.max_running) {
  const auto running = static_cast<size_t>(config_.max_running);
  slots_.reserve(running);
  for (size_t i = 0; i < running; ++i) {
    slots_.push_back({pools_.MakeSequence(max_context_tokens_), SequenceIndex(-1)});
    free_slots_.push_back(SlotId(config_.max_running - 1 - static_cast<int32_t>(i)));
  }
  running_.reserve(running);
  pending_leaves_.reserve(running);
  flights_.resize(static_cast<size_t>(StepsInFlight(config_)));
  for (Flight& flight : flights_) flight.rows.reserve(running);
  outcome_.rows.reserve(running);
  outcome_.failed.reserve(running);
}

Status Scheduler::Validate(const Request& request) const {
  if (request.prompt.empty()) return InvalidArgumentError("the prompt is empty");
  if (request.max_output_tokens && *request.max_output_tokens < 1) {
    return InvalidArgumentError("the most output tokens are {}, must be at least 1",
                                *request.max_output_tokens);
  }
  if (request.stop_tokens.size() > static_cast<size_t>(kMaxStopTokens)) {
    return InvalidArgumentError("{} stop tokens, at most {} are allowed",
                                request.stop_tokens.size(), kMaxStopTokens);
  }
  TANDEM_RETURN_IF_ERROR(ValidateSampling(request.sampling));
  TANDEM_RETURN_IF_ERROR(ValidateLogitBias(request, config_.vocab_size));
  if (request.prompt_logprobs && !request.sampling.wants_logprobs()) {
    return InvalidArgumentError("log probabilities of the prompt need those of the answer");
  }
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t output = request.max_output_tokens.value_or(1);
  if (prompt + output > max_context_tokens_) {
    return OutOfRangeError(
        "the request needs {} tokens (prompt {}, output {}{}), at most {} fit (the model's context "
        "is "
        "{}, the KV memory holds {})",
        prompt + output, prompt, request.max_output_tokens ? "" : "at least ", output,
        max_context_tokens_, config_.context_length, pools_.MaxTokens(int64_t{1} << 40));
  }
  for (TokenId token : request.prompt) {
    if (token.value() < 0 || token.value() >= config_.vocab_size) {
      return InvalidArgumentError("prompt token {} is not one of the {} of the vocabulary", token,
                                  config_.vocab_size);
    }
  }
  return OkStatus();
}

Status Scheduler::Enqueue(Request request) {
  TANDEM_RETURN_IF_ERROR(Validate(request));
  if (store_.Find(request.id)) return InvalidArgumentError("request {} exists", request.id);
  if (waiting() >= config_.max_queue) {
    return ResourceExhaustedError("{} requests wait, no more are accepted now", waiting());
  }
  const auto prompt = static_cast<int32_t>(request.prompt.size());
  const int32_t most = request.max_output_tokens.value_or(max_context_tokens_ - prompt);
  store_.Add(std::move(request), most);
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
  pools_.Release(&slot.blocks, s.last_step);
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
  if (IsRunning(s.state)) {
    LeaveSlot(index);
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
  store_.PushHead(index);
  ++preemptions_;
}

int64_t Scheduler::TokensToReserve(const Sequence& s) const {
  const int64_t ever = int64_t{s.prompt_tokens} + s.outputs_max - 1;
  if (s.has_limit()) return ever;
  const int64_t promised = int64_t{s.prompt_tokens} + config_.reserve_tokens;
  return std::min(ever, std::max<int64_t>(promised, s.known()));
}

bool Scheduler::PlanStep(TimeNs now, StepPlan* plan) {
  TANDEM_CHECK(!planning_);
  TANDEM_CHECK_LE(flights_count_, config_.pipeline_depth);
  plan->Clear();
  Draft draft;
  draft.plan = plan;
  draft.flight = &FlightAt(flights_count_);
  draft.budget_left = config_.token_budget;
  plan->step = StepId(last_step_.value() + 1);
  draft.flight->step = plan->step;
  draft.flight->rows.clear();

  PlanDecodes(&draft);
  PlanPrefills(&draft);
  AdmitFromQueue(now, &draft);

  if (plan->rows.empty()) {
    plan->Clear();
    return false;
  }
  plan->leaves.assign(pending_leaves_.begin(), pending_leaves_.end());
  pending_leaves_.clear();
  planning_ = true;
  return true;
}

void Scheduler::PlanDecodes(Draft* draft) {
  for (size_t i = 0; i < running_.size();) {
    const SequenceIndex index = running_[i];
    const Sequence& s = store_.at(index);
    if (s.state != RequestState::kDecode || !s.runnable()) {
      ++i;
      continue;
    }
    const Blocks blocks = EnsureBlocks(index, draft);
    if (blocks == Blocks::kPreempted) continue;  // running_[i] is the next one now
    if (blocks == Blocks::kReady) AddRow(index, 1, draft);
    ++i;
  }
}

Scheduler::Blocks Scheduler::EnsureBlocks(SequenceIndex index, Draft* draft) {
  for (;;) {
    const Sequence& s = store_.at(index);
    SequenceBlocks* blocks = &slots_[static_cast<size_t>(s.slot.value())].blocks;
    const Growth growth = pools_.Grow(blocks, s.next_position + 1, s.slot, &draft->plan->appends);
    if (growth == Growth::kDone) return Blocks::kReady;
    // Whoever lacks a block comes before whoever has not started, however little that one needs.
    draft->admit = false;
    if (growth == Growth::kWait) return Blocks::kWait;
    const std::optional<SequenceIndex> victim = PickVictim(index);
    if (!victim) return Blocks::kWait;
    Preempt(*victim);
    if (*victim == index) return Blocks::kPreempted;
  }
}

std::optional<SequenceIndex> Scheduler::PickVictim(SequenceIndex index) const {
  const auto preemptible = [this](SequenceIndex i) { return !store_.at(i).has_limit(); };
  const auto last = std::find_if(running_.rbegin(), running_.rend(), preemptible);
  if (last == running_.rend()) return std::nullopt;
  if (*last != index) return *last;
  // The last one itself. Its blocks help only another request that grows on demand; if there is
  // none, it keeps them and waits for one with a limit to finish.
  const bool alone = std::find_if(last + 1, running_.rend(), preemptible) == running_.rend();
  return alone ? std::nullopt : std::optional(index);
}

void Scheduler::PlanPrefills(Draft* draft) {
  for (SequenceIndex index : running_) {
    if (draft->budget_left == 0) return;
    if (store_.at(index).state == RequestState::kPrefill) PlanChunk(index, draft);
  }
}

void Scheduler::AdmitFromQueue(TimeNs now, Draft* draft) {
  while (draft->admit && draft->budget_left > 0 && !store_.queue_empty() &&
         running() < config_.max_running) {
    const SequenceIndex index = store_.queue_head();
    Sequence& s = store_.at(index);
    // A preempted sequence comes back once all its tokens are known.
    if (s.rows_in_flight > 0) return;
    const SlotId slot_id = free_slots_.back();
    Slot& slot = slots_[static_cast<size_t>(slot_id.value())];
    const int64_t tokens = TokensToReserve(s);
    if (!pools_.Reserve(&slot.blocks, tokens)) return;
    free_slots_.pop_back();
    slot.sequence = index;
    store_.Unlink(index);
    running_.push_back(index);
    if (s.state == RequestState::kQueued) s.times.admitted = now;
    Move(&s, RequestState::kPrefill);
    s.slot = slot_id;
    s.joined = true;
    s.tokens.reserve(static_cast<size_t>(tokens) + 1);
    AddJoin(s, slot_id, draft->plan);
    PlanChunk(index, draft);
  }
}

void Scheduler::AddJoin(const Sequence& s, SlotId slot, StepPlan* plan) {
  SlotJoin join{.slot = slot,
                .request = s.request.id,
                .sample_index = s.request.sample_index,
                .sampling = s.request.sampling,
                .logit_bias = s.request.logit_bias,
                .prompt_tokens = s.prompt_tokens};
  if (join.sampling.min_tokens > 0) join.stop_tokens = s.request.stop_tokens;
  plan->joins.push_back(std::move(join));
}

void Scheduler::PlanChunk(SequenceIndex index, Draft* draft) {
  const Sequence& s = store_.at(index);
  const int32_t n =
      std::min({config_.chunk_tokens, draft->budget_left, s.known() - s.next_position});
  SequenceBlocks* blocks = &slots_[static_cast<size_t>(s.slot.value())].blocks;
  // All known tokens are promised.
  TANDEM_CHECK(pools_.Grow(blocks, s.next_position + n, s.slot, &draft->plan->appends) ==
               Growth::kDone);
  AddRow(index, n, draft);
}

void Scheduler::AddRow(SequenceIndex index, int32_t num_tokens, Draft* draft) {
  Sequence& s = store_.at(index);
  StepPlan& plan = *draft->plan;
  PlanRow row;
  row.slot = s.slot;
  row.position = s.next_position;
  row.num_tokens = num_tokens;
  if (s.next_position < s.known()) {
    row.tokens_begin = static_cast<int32_t>(plan.tokens.size());
    const auto begin = s.tokens.begin() + s.next_position;
    plan.tokens.insert(plan.tokens.end(), begin, begin + num_tokens);
  } else {
    TANDEM_CHECK_EQ(num_tokens, 1);
    row.tokens_begin = -1;
    row.from_step = s.sampled_step;
    row.from_row = s.sampled_row;
  }
  s.next_position += num_tokens;
  row.sample = s.next_position == s.length();
  const bool prefill = s.state == RequestState::kPrefill;
  if (row.sample) {
    s.sampled_step = plan.step;
    s.sampled_row = static_cast<int32_t>(plan.rows.size());
    ++s.samples_in_flight;
    Move(&s, RequestState::kDecode);
  }
  ++s.rows_in_flight;
  draft->budget_left -= num_tokens;
  row.score = s.ScoresWanted(row.position, s.next_position);
  if (row.score > 0) {
    s.scored = s.next_position;
    if (!row.sample) row.next_token = s.tokens[static_cast<size_t>(s.next_position)];
  }
  const SamplingParams& sampling = s.request.sampling;
  const int32_t entries = sampling.wants_logprobs() ? 1 + sampling.top_logprobs : 0;
  draft->flight->rows.push_back({index, s.serial, s.slot, row.position, num_tokens, prefill,
                                 row.sample, row.score * entries, row.sample ? entries : 0});
  plan.rows.push_back(row);
}

void Scheduler::Submitted(const StepPlan& plan) {
  TANDEM_CHECK(planning_);
  planning_ = false;
  last_step_ = plan.step;
  for (const FlightRow& row : FlightAt(flights_count_).rows) {
    store_.at(row.sequence).last_step = plan.step;
  }
  ++flights_count_;
}

const StepOutcome& Scheduler::Refused(const StepPlan& plan) {
  TANDEM_CHECK(planning_);
  planning_ = false;
  outcome_.rows.clear();
  outcome_.failed.clear();
  outcome_.prefill_tokens = 0;
  outcome_.recomputed_tokens = 0;
  pending_leaves_.assign(plan.leaves.begin(), plan.leaves.end());
  for (const SlotJoin& join : plan.joins) {
    store_.at(slots_[static_cast<size_t>(join.slot.value())].sequence).joined = false;
  }
  for (const FlightRow& row : FlightAt(flights_count_).rows) {
    outcome_.failed.push_back(row.sequence);
  }
  return outcome_;
}

Status Scheduler::CheckResult(const StepResult& result) const {
  if (flights_count_ == 0)
    return InternalError("result of step {}, none is in flight", result.step);
  const Flight& flight = FlightAt(0);
  if (result.step != flight.step) {
    return InternalError("result of step {}, expected {}", result.step, flight.step);
  }
  if (!result.status.ok()) return OkStatus();
  if (result.rows.size() != flight.rows.size()) {
    return InternalError("result of step {} has {} rows, the plan {}", result.step,
                         result.rows.size(), flight.rows.size());
  }
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    if (result.rows[i].slot != flight.rows[i].slot ||
        result.rows[i].sampled != flight.rows[i].sample) {
      return InternalError("result of step {}: row {} is not the plan's", result.step, i);
    }
    const int64_t begin = result.rows[i].logprobs_begin;
    const int64_t count = result.rows[i].num_logprobs;
    if (count != flight.rows[i].prompt_logprobs + flight.rows[i].token_logprobs || begin < 0 ||
        begin + count > static_cast<int64_t>(result.logprobs.size())) {
      return InternalError("result of step {}: row {} has not the log probabilities asked for",
                           result.step, i);
    }
  }
  return OkStatus();
}

const StepOutcome& Scheduler::Commit(const StepResult& result) {
  TANDEM_CHECK(!planning_);
  TANDEM_CHECK_GT(flights_count_, 0);
  outcome_.rows.clear();
  outcome_.failed.clear();
  outcome_.prefill_tokens = 0;
  outcome_.recomputed_tokens = 0;
  const Flight& flight = FlightAt(0);
  flights_head_ = static_cast<int32_t>(static_cast<size_t>(flights_head_ + 1) % flights_.size());
  --flights_count_;
  pools_.CompleteSteps(flight.step);
  for (size_t i = 0; i < flight.rows.size(); ++i) CommitRow(flight.rows[i], result, i);
  return outcome_;
}

void Scheduler::CommitRow(const FlightRow& row, const StepResult& result, size_t row_index) {
  const bool ok = result.status.ok();
  if (ok && row.prefill) outcome_.prefill_tokens += row.num_tokens;
  Sequence* s = store_.FindSerial(row.sequence, row.serial);
  if (s == nullptr) return;  // ended meanwhile: the row is discarded
  --s->rows_in_flight;
  s->samples_in_flight -= row.sample;
  if (!ok) {
    outcome_.failed.push_back(row.sequence);
    return;
  }
  const int32_t end = row.position + row.num_tokens;
  outcome_.recomputed_tokens += std::max(0, std::min(end, s->computed) - row.position);
  s->computed = std::max(s->computed, end);
  // A preempted sequence has given up its blocks, but keeps what its rows in flight chose.
  if (IsRunning(s->state)) {
    pools_.ReleasePassed(&slots_[static_cast<size_t>(s->slot.value())].blocks, end, result.step);
  }
  if (!row.sample && row.prompt_logprobs == 0) return;
  const StepResult::Row& got = result.rows[row_index];
  outcome_.rows.push_back({row.sequence, row.sample ? std::optional(got.token) : std::nullopt,
                           got.logprobs_begin, row.prompt_logprobs, row.token_logprobs});
}

Status Scheduler::CheckSequences() const {
  std::vector<int32_t> rows(static_cast<size_t>(store_.capacity()), 0);
  std::vector<int32_t> samples(rows.size(), 0);
  for (int32_t age = 0; age < flights_count_; ++age) {
    for (const FlightRow& row : FlightAt(age).rows) {
      const auto i = static_cast<size_t>(row.sequence.value());
      if (store_.at(row.sequence).serial != row.serial) continue;
      ++rows[i];
      samples[i] += row.sample;
    }
  }
  for (int32_t i = 0; i < store_.capacity(); ++i) {
    const Sequence& s = store_.at(SequenceIndex(i));
    if (s.serial == 0) continue;
    if (rows[static_cast<size_t>(i)] != s.rows_in_flight ||
        samples[static_cast<size_t>(i)] != s.samples_in_flight) {
      return InternalError("sequence {} counts {} rows in flight, {} found", i, s.rows_in_flight,
                           rows[static_cast<size_t>(i)]);
    }
    if (IsRunning(s.state) != (s.slot != kNoSlot)) {
      return InternalError("sequence {} is {} with slot {}", i, NameOf(s.state), s.slot);
    }
    if (IsRunning(s.state) &&
        slots_[static_cast<size_t>(s.slot.value())].sequence != SequenceIndex(i)) {
      return InternalError("slot {} does not hold sequence {}", s.slot, i);
    }
    const bool decode = s.state == RequestState::kDecode;
    if (s.outputs() > s.outputs_max || s.next_position >= s.length() ||
        (decode && s.length() - s.next_position != 1) ||
        (s.state == RequestState::kPrefill && s.samples_in_flight != 0)) {
      return InternalError("sequence {} is {} at position {} of {}", i, NameOf(s.state),
                           s.next_position, s.length());
    }
  }
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  TANDEM_RETURN_IF_ERROR(store_.CheckIntegrity());
  TANDEM_RETURN_IF_ERROR(CheckSequences());
  std::vector<const SequenceBlocks*> blocks;
  size_t taken = 0;
  for (const Slot& slot : slots_) {
    blocks.push_back(&slot.blocks);
    taken += slot.sequence != SequenceIndex(-1);
  }
  if (taken != running_.size() || taken + free_slots_.size() != slots_.size() ||
      running() + waiting() != store_.size()) {
    return InternalError("{} running, {} waiting, {} slots taken, {} free, {} sequences", running(),
                         waiting(), taken, free_slots_.size(), store_.size());
  }
  return pools_.CheckIntegrity(blocks);
}

}  // namespace tandem
