// What: EngineHost: the live loop around an Engine: one thread, one queue of events, a clock; and
//   the EngineClient that others talk to.
// Not here: decisions (engine/, sched/), devices.
// Threads: EngineClient's methods from any thread; the engine and the executor belong to the host's
//   own thread.
// Invariants: every input reaches the engine as a timestamped event in the order in which it came.
//   Every accepted request's sink gets exactly one last output, at the latest when the host is
//   destroyed. Whether the queue is full is the scheduler's decision, which its sink hears of (and
//   a record shows); the host itself refuses only what comes faster than its thread takes it.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "core/engine_client.h"
#include "core/step_executor.h"
#include "engine/engine.h"
#include "plan/event_recorder.h"

namespace tandem {

class EngineHost final : public EngineClient, private EngineOutputSink {
 public:
  // `executor`, `clock`, `recorder`, which takes down every input if it is there, and `port`, which
  // moves state between nodes if it is there, outlive the host.
  static Result<std::unique_ptr<EngineHost>> Create(const EngineConfig& config,
                                                    StepExecutor* executor, const Clock* clock,
                                                    EventRecorder* recorder = nullptr,
                                                    HandoffPort* port = nullptr);
  // Cancels what still runs and waits until the executor is idle. Requires that nobody outside
  // touches the blocks any more.
  ~EngineHost() override;

  Result<RequestId> Submit(Request request, std::unique_ptr<RequestSink> sink) override;
  void Cancel(RequestId id) override;
  int32_t max_context_tokens() const override;
  EngineStats stats() const override;

  // What has come of the port's orders. From any thread; events of one thread keep their order.
  void Deliver(HandoffEvent event);

  // Refuses new requests from now on (UNAVAILABLE); those accepted run to their end.
  void StopAdmission();

 private:
  struct Input {
    EngineEvent event;
    std::unique_ptr<RequestSink> sink;  // of an arrival
  };

  EngineHost(const EngineConfig& config, StepExecutor* executor, const Clock* clock,
             EventRecorder* recorder);
  void AddCancel(RequestId id, std::vector<Input>* inputs) const;
  void Loop();
  // Waits for something to do and takes it; false when the host is to end and the engine is idle.
  bool TakeInputs(std::vector<Input>* inputs);
  void Handle(Input input);
  void FailRefused(RequestId id, const Status& status);
  void PollResults();
  Status HandleEvent(const EngineEvent& event);
  void PublishStats();
  void OnOutput(const RequestOutput& output) override;
  void Wake();

  const int32_t max_queue_;
  StepExecutor* const executor_;
  const Clock* const clock_;
  EventRecorder* const recorder_;  // null: none
  std::atomic<uint64_t> next_id_{1};
  std::atomic<int64_t> refused_{0};

  // The host's thread only.
  std::unique_ptr<Engine> engine_;
  std::unordered_map<RequestId, std::unique_ptr<RequestSink>>
      sinks_;  // never iterated for decisions
  StepResult result_;

  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<Input> inbox_ TANDEM_GUARDED_BY(mutex_);
  int32_t arrivals_ TANDEM_GUARDED_BY(mutex_) = 0;  // of these
  bool step_finished_ TANDEM_GUARDED_BY(mutex_) = false;
  bool admission_stopped_ TANDEM_GUARDED_BY(mutex_) = false;
  bool ending_ TANDEM_GUARDED_BY(mutex_) = false;
  EngineStats stats_ TANDEM_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem
