// What: EngineDriver: an Engine with a VerifyingExecutor and a recording sink, driven call by call;
//   after each call it checks integrity, the executor's findings, and what the engine promises
//   about preemption.
// Not here: the scripts (trace_test.cc), random inputs (engine_test.cc, engine_fuzz.cc).
// Threads: one.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/fake_handoff.h"
#include "engine/testing/verifying_executor.h"

namespace tandem::testing {

class EngineDriver final : public EngineOutputSink {
 public:
  struct Record {
    Request request;
    std::vector<TokenId> answer;
    std::vector<TokenLogprob> logprobs;         // of the answer
    std::vector<TokenLogprob> prompt_logprobs;  // of the prompt
    std::optional<FinishReason> finish;
    Status status;
    RequestTimes times;
    RequestState state = RequestState::kQueued;  // as last seen while it was live
    uint64_t admission = 0;  // place in the order of first admission; 0: never admitted
    int32_t preemptions = 0;
  };

  // Requires a configuration that Engine::Create accepts.
  explicit EngineDriver(const EngineConfig& config)
      : config_(config),
        executor_(config.groups, {config.num_slots(), config.pipeline_depth + 1},
                  config.vocab_size),
        port_(&executor_),
        engine_(Engine::Create(config, &executor_, this, &port_).value()) {}

  Status Arrive(Request request) {
    request.arrival = now_;
    const RequestId id = request.id;
    if (request.send) port_.ExpectSend(*request.send, request.prompt);
    const Status status = engine_->Handle({now_, ArrivalEvent{request}});
    if (status.ok()) {
      records_[id].request = std::move(request);
      live_.insert(id);
    }
    CheckAll();
    return status;
  }
  void Cancel(RequestId id) {
    Note(engine_->Handle({now_, CancelEvent{id}}));
    CheckAll();
  }
  void Handoff(const HandoffEvent& event) {
    Note(engine_->Handle({now_, event}));
    CheckAll();
  }
  void Advance() {
    engine_->Advance(now_);
    CheckAll();
  }
  // The oldest running step finishes and its result is handled. False when none runs.
  bool FinishStep() {
    if (!executor_.FinishOne(now_)) return false;
    EngineEvent event{now_, ResultEvent{}};
    if (!executor_.Poll(&std::get<ResultEvent>(event.body).result))
      Note(InternalError("no result"));
    Note(engine_->Handle(event));
    CheckAll();
    return true;
  }
  // Advances and finishes steps until nothing is left to do, at most `max_steps`.
  void Drain(int64_t max_steps) {
    Advance();
    while (max_steps-- > 0 && FinishStep()) {
      ++now_;
      Advance();
    }
    if (engine_->HasWork() || engine_->steps_in_flight() > 0) Note(InternalError("work is left"));
    if (engine_->open_handoffs() == 0 && engine_->stats(now_).blocks_in_use != 0) {
      Note(InternalError("blocks are left"));
    }
  }

  void OnOutput(const RequestOutput& output) override {
    Record& record = records_[output.id];
    if (record.finish) Note(InternalError("output after the end of {}", output.id));
    record.answer.insert(record.answer.end(), output.tokens.begin(), output.tokens.end());
    record.logprobs.insert(record.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    record.prompt_logprobs.insert(record.prompt_logprobs.end(), output.prompt_logprobs.begin(),
                                  output.prompt_logprobs.end());
    if (static_cast<size_t>(output.output_tokens) != record.answer.size()) {
      Note(InternalError("{} counts {} outputs", output.id, output.output_tokens));
    }
    record.finish = output.finish;
    record.status = output.status;
    record.times = output.times;
    outputs_.push_back(output);
  }

  // A finished request has the answer it would have alone; an unfinished one has a beginning of it.
  void CheckAnswer(const Record& record) {
    if (record.request.send) {
      if (!record.answer.empty()) Note(InternalError("{} samples", record.request.id));
      return;
    }
    const std::vector<TokenId> alone =
        ExpectedAnswer(record.request, engine_->max_context_tokens(), config_.vocab_size);
    const bool complete =
        record.finish == FinishReason::kStop || record.finish == FinishReason::kLength;
    if (record.answer.size() > alone.size() || (complete && record.answer.size() != alone.size()) ||
        !std::equal(record.answer.begin(), record.answer.end(), alone.begin())) {
      Note(InternalError("request {} has another answer than alone", record.request.id));
    }
    CheckLogprobs(record, complete);
  }

  // Each token of the prompt but the first is reported once and in order, and each of the answer
  // with its token; the stop token is not.
  void CheckLogprobs(const Record& record, bool complete) {
    const ExpectedLogprobs expected = LogprobsOf(record.request, record.answer, config_.vocab_size);
    const bool some_answered = complete || !record.answer.empty();
    if (record.logprobs != expected.answer ||
        record.prompt_logprobs.size() > expected.prompt.size() ||
        (some_answered && record.prompt_logprobs.size() != expected.prompt.size()) ||
        !std::equal(record.prompt_logprobs.begin(), record.prompt_logprobs.end(),
                    expected.prompt.begin())) {
      Note(InternalError("request {} has other log probabilities than alone", record.request.id));
    }
  }

  Engine& engine() { return *engine_; }
  VerifyingExecutor& executor() { return executor_; }
  FakeHandoffPort& port() { return port_; }
  const std::map<RequestId, Record>& records() const { return records_; }
  std::vector<RequestOutput>& outputs() { return outputs_; }
  TimeNs now() const { return now_; }
  void SetNow(TimeNs now) { now_ = now; }
  // The first fault that was found; OK while all is well.
  const Status& fault() const { return fault_; }

 private:
  void Note(const Status& status) {
    if (fault_.ok() && !status.ok()) fault_ = status;
  }

  void CheckAll() {
    Note(engine_->CheckIntegrity());
    if (!executor_.violation().empty()) Note(InternalError("{}", executor_.violation()));
    if (!port_.violation().empty()) Note(InternalError("{}", port_.violation()));
    // Before those that ended in this call are forgotten: a victim may have given way to one of
    // them.
    for (RequestId id : live_) NoteAdmission(id);
    for (RequestId id : live_) NotePreemption(id);
    std::erase_if(live_, [this](RequestId id) { return records_[id].finish.has_value(); });
  }

  void NoteAdmission(RequestId id) {
    const std::optional<SequenceIndex> index = engine_->scheduler().Find(id);
    if (index) records_[id].admission = engine_->scheduler().sequence(*index).admission;
  }

  // Is promised all that it can ever need.
  bool FullyReserved(const Record& record) const {
    return config_.reservation == Reservation::kFull || record.request.send.has_value() ||
           (config_.reservation == Reservation::kReserveTokens &&
            record.request.max_output_tokens.has_value());
  }

  void NotePreemption(RequestId id) {
    Record& record = records_[id];
    if (record.finish) return;
    const std::optional<SequenceIndex> index = engine_->scheduler().Find(id);
    if (!index) return Note(InternalError("request {} is lost", id));
    const RequestState state = engine_->scheduler().sequence(*index).state;
    const bool preempted = state == RequestState::kPreempted;
    if (!preempted || record.state == state) {
      record.state = state;
      return;
    }
    record.state = state;
    ++record.preemptions;
    if (FullyReserved(record)) {
      return Note(InternalError("request {} is fully reserved and is preempted", id));
    }
    const bool first = std::none_of(live_.begin(), live_.end(), [&](RequestId other) {
      const Record& r = records_[other];
      return r.admission != 0 && r.admission < record.admission && !FullyReserved(r);
    });
    if (first) Note(InternalError("request {} entered first and is preempted", id));
  }

  const EngineConfig config_;
  VerifyingExecutor executor_;
  FakeHandoffPort port_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, Record> records_;
  std::set<RequestId> live_;  // accepted, without a last output
  std::vector<RequestOutput> outputs_;
  TimeNs now_ = 0;
  Status fault_;
};

}  // namespace tandem::testing
