// What: EventRecorder: takes down every input of a live engine and every plan that it makes;
//   RecordingExecutor, through which it sees the plans; TokenRenaming, which hides the tokens.
// Not here: the bytes (event_log.h), the thread that writes them to a file (cli/record.h).
// Threads: On... from the engine's thread; Take and lost from the writer's. The engine's thread
//   never waits: when the ring is full, records are dropped and counted.
// Cost: an encoding and a copy per record; nothing is allocated once the buffer has grown.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/event.h"
#include "core/step_executor.h"
#include "kv/keyed_hash.h"
#include "plan/byte_ring.h"
#include "plan/event_log.h"

namespace tandem {

// Gives every token of a vocabulary the number of another, and every salt a hash, in a way that
// only the key tells. Equal ones stay equal and different ones different, so a replay finds the
// same prefixes and the same stop tokens. It is no encryption: how often a token comes and what
// repeats can be seen.
class TokenRenaming final : public TokenCoder {
 public:
  TokenRenaming(int32_t vocab_size, HashKey key);
  // Of tokens outside the vocabulary, which no engine accepts: the token itself.
  TokenId CodeToken(TokenId token) const override;
  std::string CodeSalt(std::string_view salt) const override;

 private:
  std::vector<int32_t> names_;
  HashKey salt_key_;
};

class EventRecorder {
 public:
  // `coder` outlives the recorder.
  EventRecorder(const TokenCoder* coder, size_t ring_bytes);

  // Engine::Handle has taken `event` and returned a status with this code.
  void OnEvent(const EngineEvent& event, StatusCode outcome);
  // Engine::Advance is about to be called.
  void OnAdvance(TimeNs now);
  void OnPlan(const StepPlan& plan, StatusCode outcome);

  // Appends all records since the last call.
  void Take(std::string* records) { ring_.ReadAll(records); }
  // Records dropped so far.
  uint64_t lost() const { return lost_total_.load(std::memory_order_relaxed); }
  // Of these, those that no record among the taken ones tells of. Only once nothing is recorded any
  // more.
  uint64_t lost_at_end() const { return lost_; }

 private:
  // Gives the record in buffer_ to the ring.
  void Push();

  const TokenCoder* const coder_;
  ByteRing ring_;
  std::string buffer_;
  uint64_t lost_ = 0;  // since the last record that was kept
  std::atomic<uint64_t> lost_total_{0};
};

// Passes everything on and tells `recorder` of each plan.
class RecordingExecutor final : public StepExecutor {
 public:
  // Both outlive it.
  RecordingExecutor(StepExecutor* executor, EventRecorder* recorder)
      : executor_(executor), recorder_(recorder) {}

  ExecutorLimits limits() const override { return executor_->limits(); }
  Status Submit(const StepPlan& plan) override {
    Status status = executor_->Submit(plan);
    recorder_->OnPlan(plan, status.code());
    return status;
  }
  bool Poll(StepResult* result) override { return executor_->Poll(result); }
  void SetOnFinished(std::function<void()> callback) override {
    executor_->SetOnFinished(std::move(callback));
  }

 private:
  StepExecutor* const executor_;
  EventRecorder* const recorder_;
};

}  // namespace tandem
