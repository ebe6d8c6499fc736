#include "plan/replay.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine/engine.h"
#include "plan/plan_terms.h"

namespace tandem {
namespace {

std::string OutcomeText(StatusCode code, std::string_view what) {
  return code == StatusCode::kOk
             ? fmt::format("{} is accepted\n", what)
             : fmt::format("{} is refused (code {})\n", what, static_cast<int>(code));
}

// Is given the recorded plans of the Advance to come, and compares.
class ReplayExecutor final : public StepExecutor {
 public:
  ReplayExecutor(const SchedulerConfig& config, ReplayReport* report)
      : limits_{config.num_slots(), config.pipeline_depth + 1},
        report_(report),
        terms_(config.num_slots()) {}

  struct Expected {
    int64_t record = 0;
    LoggedPlan logged;
  };
  // The plans that the next Advance submitted; with `open` the log ends before its next event, and
  // it may have submitted more.
  void Expect(std::deque<Expected> plans, int64_t record, bool open) {
    expected_ = std::move(plans);
    record_ = record;
    open_ = open;
  }
  // After the Advance: it has submitted all of them.
  void CheckAllCame() {
    if (expected_.empty() || report_->difference) return;
    report_->difference = {expected_.front().record, PlanText(expected_.front().logged.plan),
                           "no plan\n"};
  }

  ExecutorLimits limits() const override { return limits_; }
  void SetOnFinished(std::function<void()>) override {}
  bool Poll(StepResult*) override { return false; }  // results come from the log

  Status Submit(const StepPlan& plan) override {
    const Status stopped = UnavailableError("the replay has ended");
    if (report_->difference) return stopped;
    if (expected_.empty()) {
      if (!open_) report_->difference = {record_, "no plan\n", PlanText(plan)};
      return stopped;
    }
    const Expected expected = std::move(expected_.front());
    expected_.pop_front();
    if (Bytes(plan) != Bytes(expected.logged.plan)) {
      report_->difference = {expected.record, PlanText(expected.logged.plan), PlanText(plan)};
      return stopped;
    }
    ++report_->plans;
    if (expected.logged.outcome != StatusCode::kOk) {
      return Status(expected.logged.outcome, "as in the recorded run");
    }
    in_flight_.push_back(terms_.Of(plan));
    return OkStatus();
  }

  // The engine has taken the result of the oldest step.
  void Completed(const StepResult& result) {
    if (result.status.ok()) {
      report_->cost.Observe(in_flight_.front(), result.finished - result.started,
                            result.finished - last_finished_);
    }
    last_finished_ = result.finished;
    in_flight_.pop_front();
  }

 private:
  static std::string Bytes(const StepPlan& plan) {
    std::string bytes;
    AppendPlan(plan, StatusCode::kOk, &bytes);
    return bytes;
  }

  const ExecutorLimits limits_;
  ReplayReport* const report_;
  PlanTerms terms_;
  std::deque<StepTerms> in_flight_;
  TimeNs last_finished_ = 0;
  std::deque<Expected> expected_;
  int64_t record_ = 0;
  bool open_ = false;
};

// What came of its orders is in the log.
class ReplayPort final : public HandoffPort {
 public:
  void Fetch(FetchOrder) override {}
  void CancelFetch(FetchId) override {}
  void ChunkSubmitted(SendChunk) override {}
  void SendFailed(SendId, const Status&) override {}
};

class Replayer final : public EngineOutputSink {
 public:
  Replayer(const SchedulerConfig& config, ReplayReport* report)
      : report_(report), executor_(config, report) {}

  Status Run(EventLogReader* log) {
    TANDEM_ASSIGN_OR_RETURN(engine_,
                            Engine::Create(log->header().config, &executor_, this, &port_));
    LogRecord record;
    for (record_ = 1;; ++record_) {
      TANDEM_ASSIGN_OR_RETURN(const bool more, log->Next(&record));
      if (!more) {
        Advance(/*open=*/true);
        report_->cut_off = log->cut_off();
        break;
      }
      TANDEM_RETURN_IF_ERROR(Take(&record));
      if (report_->difference || report_->missing_records > 0) break;
    }
    report_->summary = figures_.Summary(engine_->stats(now_));
    return engine_->CheckIntegrity();
  }

  void OnOutput(const RequestOutput& output) override {
    // What a stopped replay does to the requests is nobody's figure.
    if (stopping_ || report_->difference) return;
    figures_.Note(output, now_);
    const auto at = index_.find(output.id);
    if (at == index_.end()) return;
    RecordedRequest& r = report_->requests[at->second];
    r.answer.insert(r.answer.end(), output.tokens.begin(), output.tokens.end());
    r.finish = output.finish;
    if (output.finish) index_.erase(at);
  }

 private:
  Status Take(LogRecord* record) {
    if (auto* logged = std::get_if<LoggedPlan>(record)) {
      if (!advance_) return DataLossError("record {}: a plan that nothing led to", record_);
      plans_.push_back({record_, std::move(*logged)});
      return OkStatus();
    }
    const auto* loss = std::get_if<LoggedLoss>(record);
    Advance(/*open=*/loss != nullptr);
    if (report_->difference) return OkStatus();
    if (loss != nullptr) {
      report_->missing_records = std::max<uint64_t>(1, loss->records);
    } else if (const auto* event = std::get_if<LoggedEvent>(record)) {
      Handle(*event);
    } else if (const auto* advance = std::get_if<LoggedAdvance>(record)) {
      advance_ = advance->at;
      advance_record_ = record_;
    } else if (std::holds_alternative<LogHeader>(*record)) {
      return DataLossError("record {}: a second header", record_);
    }
    return OkStatus();
  }

  // The Advance that was read last, now that its plans are known.
  void Advance(bool open) {
    if (!advance_) return;
    now_ = std::max(now_, *advance_);
    executor_.Expect(std::move(plans_), advance_record_, open);
    plans_.clear();
    // Behind the last plan of a log that is cut off the engine may want to go on.
    stopping_ = open;
    engine_->Advance(*advance_);
    stopping_ = false;
    executor_.CheckAllCame();
    advance_.reset();
  }

  void Handle(const LoggedEvent& logged) {
    now_ = std::max(now_, logged.event.at);
    ++report_->events;
    const Request* arrived = nullptr;
    if (const auto* arrival = std::get_if<ArrivalEvent>(&logged.event.body)) {
      arrived = &arrival->request;
    } else if (const auto* cancel = std::get_if<CancelEvent>(&logged.event.body)) {
      const auto at = index_.find(cancel->request);
      if (at != index_.end()) report_->requests[at->second].cancel_at = now_;
    }
    const Status status = engine_->Handle(logged.event);
    if (status.code() != logged.outcome) {
      report_->difference = {record_, OutcomeText(logged.outcome, "the event"),
                             OutcomeText(status.code(), "the event") + status.ToString() + "\n"};
      return;
    }
    if (arrived != nullptr) {
      Keep(*arrived, status.ok());
    } else if (const auto* result = std::get_if<ResultEvent>(&logged.event.body)) {
      if (status.ok()) executor_.Completed(result->result);
    }
  }

  void Keep(const Request& request, bool accepted) {
    figures_.Arrived(request, accepted);
    // An id is free again when its request has ended; only one request of an id can be followed.
    if (!ids_.insert(request.id).second) return;
    if (accepted) index_[request.id] = report_->requests.size();
    RecordedRequest& kept = report_->requests.emplace_back();
    kept.request = request;
    kept.came = now_;
    kept.accepted = accepted;
  }

  ReplayReport* const report_;
  ReplayExecutor executor_;
  ReplayPort port_;
  std::unique_ptr<Engine> engine_;
  RunFigures figures_;
  std::unordered_map<RequestId, size_t> index_;  // of live requests; looked up only
  std::unordered_set<RequestId> ids_;
  TimeNs now_ = std::numeric_limits<TimeNs>::min();
  int64_t record_ = 0;
  std::optional<TimeNs> advance_;
  int64_t advance_record_ = 0;
  std::deque<ReplayExecutor::Expected> plans_;
  bool stopping_ = false;
};

}  // namespace

Result<ReplayReport> Replay(EventLogReader* log) {
  const SchedulerConfig& config = log->header().config;
  ReplayReport report{.cost = CostModel(std::nullopt, config.prepared_tokens)};
  Replayer replayer(config, &report);
  TANDEM_RETURN_IF_ERROR(replayer.Run(log));
  return report;
}

}  // namespace tandem
