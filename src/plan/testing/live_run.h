// What: LiveRun: an engine with a recorder, as a live host drives it, on a clock that the test
//   moves; and random runs of it: arrivals (also of follow-up turns and of several tenants),
//   cancels, failed and refused steps.
// Not here: what is tested.
// Threads: one.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/testing/fake_handoff.h"
#include "engine/testing/verifying_executor.h"
#include "plan/event_recorder.h"

namespace tandem::testing {

inline EventLogReader::Source SourceOf(std::string_view bytes) {
  return [bytes](int64_t offset, std::span<std::byte> out) -> Result<size_t> {
    const size_t at = std::min(static_cast<size_t>(offset), bytes.size());
    const size_t size = std::min(out.size(), bytes.size() - at);
    std::memcpy(out.data(), bytes.data() + at, size);
    return size;
  };
}

class LiveRun final : public EngineOutputSink {
 public:
  explicit LiveRun(const EngineConfig& config, size_t ring_bytes = size_t{1} << 22,
                   bool true_tokens = false)
      : config_(config),
        renaming_(config.vocab_size, {3, 4}),
        inner_(config.groups, {config.num_slots(), config.pipeline_depth + 1}, config.vocab_size),
        port_(&inner_),
        recorder_(true_tokens ? &as_they_are_ : &renaming_, ring_bytes),
        executor_(&inner_, &recorder_),
        engine_(Engine::Create(config, &executor_, this, &port_).value()) {
    LogHeader header{.version = "test",
                     .model = "fake",
                     .model_identity = {1, 2},
                     .numerics = "fast",
                     .true_tokens = true_tokens,
                     .config = config};
    std::string records;
    AppendHeader(header, &records);
    log_ = LogFileHead() + LogBatch(batches_++, records);
  }

  bool Arrive(Request request) {
    request.arrival = now_;
    if (request.send) port_.ExpectSend(*request.send, request.prompt);
    return Handle({now_, ArrivalEvent{std::move(request)}}).ok();
  }
  void Cancel(RequestId id) { (void)Handle({now_, CancelEvent{id}}); }
  void Advance() {
    recorder_.OnAdvance(now_);
    engine_->Advance(now_);
  }
  // The oldest step finishes after having taken `took`.
  bool FinishStep(TimeNs took) {
    if (!inner_.FinishOne(now_)) return false;
    EngineEvent event{now_, ResultEvent{}};
    StepResult& result = std::get<ResultEvent>(event.body).result;
    EXPECT_TRUE(inner_.Poll(&result));
    result.started = now_ - took;
    EXPECT_TRUE(Handle(event).ok());
    return true;
  }
  // What was recorded since becomes a batch.
  void Flush() {
    std::string records;
    recorder_.Take(&records);
    if (!records.empty()) log_ += LogBatch(batches_++, records);
  }
  // The whole log.
  std::string Finish() {
    Flush();
    std::string records;
    if (recorder_.lost_at_end() > 0) AppendLoss(recorder_.lost_at_end(), &records);
    AppendEnd(&records);
    return log_ + LogBatch(batches_, records);
  }
  // The log of a process that was killed after the last Flush.
  const std::string& log() const { return log_; }

  void OnOutput(const RequestOutput& output) override {
    auto& tokens = conversations_[output.id];
    tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    if (output.finish) ++ends_;
  }

  // Of `actions` random inputs, until all has ended.
  void Random(uint64_t seed, int actions) {
    SplitMix64 random(seed);
    for (int i = 0; i < actions; ++i) {
      RandomInput(&random);
      if (random.Below(16) == 0) Flush();
    }
    Advance();
    while (FinishStep(Tick(&random)) || SettleHandoffs()) Advance();
    EXPECT_FALSE(engine_->HasWork());
    EXPECT_EQ(inner_.violation(), "");
    EXPECT_EQ(port_.violation(), "");
  }

  // Prompt (1 to 40 tokens of few kinds, or an earlier conversation and more), limit, stops.
  Request RandomRequest(SplitMix64* random) {
    const auto below = [&](uint64_t n) { return static_cast<int32_t>(random->Below(n)); };
    Request request;
    request.id = RequestId(++last_id_);
    if (!conversations_.empty() && below(3) == 0) {
      auto at = conversations_.begin();
      std::advance(at, below(conversations_.size()));
      request.prompt = at->second;
      if (request.prompt.size() > 60) request.prompt.resize(60);
    } else {
      const int32_t kind = below(3);
      for (int32_t i = below(30); i > 0; --i)
        request.prompt.push_back(TokenId((kind * 5 + i) % 29));
    }
    for (int32_t i = below(8); i >= 0; --i) request.prompt.push_back(TokenId(below(29)));
    conversations_[request.id] = request.prompt;
    request.sampling.seed = static_cast<uint64_t>(below(4));
    if (below(3) > 0) request.max_output_tokens = 1 + below(20);
    if (below(20) == 0) request.max_output_tokens = 0;  // refused
    if (below(2) == 0) request.stop_tokens = {TokenId(below(29)), TokenId(below(29))};
    if (below(4) == 0) request.sampling.top_logprobs = below(3);
    if (below(8) == 0) request.prompt_logprobs = true;  // refused without the other
    if (below(4) == 0) request.cache_salt = below(2) == 0 ? "a" : "b";
    if (below(6) == 0) request.deadline = 1 + below(4000);
    request.sample_index = static_cast<uint32_t>(below(3));
    if (below(8) == 0) request.ttft_target = 1 + below(1000);
    if (config_.fetch.max_fetches > 0 && below(4) == 0) request.send = SendId(last_id_);
    return request;
  }

  Engine& engine() { return *engine_; }
  EventRecorder& recorder() { return recorder_; }
  VerifyingExecutor& inner() { return inner_; }
  const EngineConfig& config() const { return config_; }
  int64_t ends() const { return ends_; }
  TimeNs now() const { return now_; }
  void SetNow(TimeNs now) { now_ = now; }

 private:
  Status Handle(const EngineEvent& event) {
    Status status = engine_->Handle(event);
    recorder_.OnEvent(event, status.code());
    return status;
  }

  TimeNs Tick(SplitMix64* random) {
    const auto took = static_cast<TimeNs>(1 + random->Below(50));
    now_ += took;
    return took;
  }

  void RandomInput(SplitMix64* random) {
    switch (random->Below(12)) {
      case 0:
      case 1:
      case 2: (void)Arrive(RandomRequest(random)); break;
      case 3: Cancel(RequestId(1 + random->Below(last_id_ + 1))); break;
      case 4: Advance(); break;
      case 5:
        if (random->Below(8) == 0) inner_.FailNext();
        if (random->Below(8) == 0) inner_.RefuseNext();
        break;
      case 6:
        if (config_.fetch.max_fetches == 0) break;
        (void)Handle({now_, FakeHandoffPort::Peers(random->Below(4) > 0 ? 1 : 0)});
        if (random->Below(2) == 0) SettleHandoffs();
        if (random->Below(4) == 0 && !port_.fetches().empty()) {
          const auto& [id, fetch] = *port_.fetches().begin();
          if (!fetch.settled) (void)Handle({now_, port_.Fail(id)});
        }
        break;
      default: FinishStep(Tick(random)); Advance();
    }
  }

  // Whatever another node has to do is done. False when there was nothing.
  bool SettleHandoffs() {
    bool any = false;
    while (!port_.fetches().empty()) {
      const auto [id, fetch] = *port_.fetches().begin();
      if (!fetch.settled) (void)Handle({now_, port_.Arrive(id)});
      (void)Handle({now_, port_.Drain(id)});
      any = true;
    }
    std::vector<SendId> sends;
    for (const auto& [id, send] : port_.sends()) {
      if (send.failed || port_.AllHandedOver(id)) sends.push_back(id);
    }
    for (const SendId id : sends) {
      const bool delivered = !port_.sends().at(id).failed;
      (void)Handle({now_, port_.DrainSend(id, delivered)});
      any = true;
    }
    return any;
  }

  const EngineConfig config_;
  const TokenCoder as_they_are_;
  const TokenRenaming renaming_;
  VerifyingExecutor inner_;
  FakeHandoffPort port_;
  EventRecorder recorder_;
  RecordingExecutor executor_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<TokenId>> conversations_;  // prompts and answers
  std::string log_;
  uint64_t batches_ = 0;
  uint64_t last_id_ = 0;
  int64_t ends_ = 0;
  TimeNs now_ = TimeNs{7} * kNsPerS;
};

inline EngineConfig SmallConfig(int32_t depth, bool caching) {
  EngineConfig config;
  config.groups = {PagedGroup(4, 60)};
  config.context_length = 96;
  config.vocab_size = 29;
  config.pipeline_depth = depth;
  config.max_running = 4;
  config.token_budget = 24;
  config.chunk_tokens = 16;
  config.reserve_tokens = 8;
  config.max_queue = 6;
  if (caching) config.prefix_cache = PrefixCaching{.key = {1, 2}};
  return config;
}

}  // namespace tandem::testing
