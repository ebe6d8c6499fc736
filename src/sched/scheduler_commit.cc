#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/scheduler.h"

namespace tandem {

void Scheduler::Submitted(const StepPlan& plan) {
  TANDEM_CHECK(planning_);
  planning_ = false;
  last_step_ = plan.step;
  // A sequence may be restored in a plan that has no row of it yet.
  for (const SlotJoin& join : plan.joins) {
    Sequence& s = store_.at(slots_[static_cast<size_t>(join.slot.value())].sequence);
    s.last_step = plan.step;
    if (s.request.send && join.num_restored > 0) Announce(&s, StepId(0), join.num_restored);
  }
  for (const FlightRow& row : FlightAt(flights_count_).rows) {
    Sequence& s = store_.at(row.sequence);
    s.last_step = plan.step;
    if (s.request.send) Announce(&s, plan.step, row.position + row.num_tokens);
  }
  ++flights_count_;
}

const StepOutcome& Scheduler::Refused(const StepPlan& plan) {
  TANDEM_CHECK(planning_);
  planning_ = false;
  outcome_.rows.clear();
  outcome_.failed.clear();
  outcome_.sent.clear();
  outcome_.prefill_tokens = 0;
  outcome_.recomputed_tokens = 0;
  pending_leaves_.assign(plan.leaves.begin(), plan.leaves.end());
  for (const FlightRow& row : FlightAt(flights_count_).rows) {
    outcome_.failed.push_back(row.sequence);
  }
  for (const SlotJoin& join : plan.joins) {
    const SequenceIndex index = slots_[static_cast<size_t>(join.slot.value())].sequence;
    store_.at(index).joined = false;
    const auto& failed = outcome_.failed;
    if (std::find(failed.begin(), failed.end(), index) == failed.end()) {
      outcome_.failed.push_back(index);
    }
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
  outcome_.sent.clear();
  outcome_.prefill_tokens = 0;
  outcome_.recomputed_tokens = 0;
  const Flight& flight = FlightAt(0);
  flights_head_ = static_cast<int32_t>(static_cast<size_t>(flights_head_ + 1) % flights_.size());
  --flights_count_;
  pools_.CompleteSteps(flight.step);
  if (result.status.ok()) {
    cost_.Observe(flight.terms, result.finished - result.started, result.finished - last_finished_);
    predictor_.ObserveStep(flight.terms);
  }
  last_finished_ = result.finished;
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
  const int32_t again = std::max(0, std::min(end, s->computed) - row.position);
  outcome_.recomputed_tokens += again;
  s->recomputed += again;
  s->computed = std::max(s->computed, end);
  // A preempted sequence has given up its blocks, but keeps what its rows in flight chose.
  if (IsRunning(s->state)) KeepCommitted(*s, end, result.step);
  if (row.prefill) WakeWaiters(row.serial, end);
  if (s->request.send && end == s->known()) return AllIsRun(row.sequence);
  if (!row.sample && row.prompt_logprobs == 0) return;
  const StepResult::Row& got = result.rows[row_index];
  outcome_.rows.push_back({row.sequence, row.sample ? std::optional(got.token) : std::nullopt,
                           got.logprobs_begin, row.prompt_logprobs, row.token_logprobs});
}

}  // namespace tandem
