#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "cli/bench_limits.h"
#include "cli/bench_model.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Answers on a thread of its own, as the engine does: token i of every request is its prompt's last
// token + i. Knows a few ways to misbehave.
class FakeEngine final : public EngineClient {
 public:
  enum class Fault { kNone, kRefuseSecond, kFailThird, kStopEarly, kOtherTokensLater };

  explicit FakeEngine(Fault fault = Fault::kNone) : fault_(fault) {}
  ~FakeEngine() override {
    for (std::thread& thread : threads_) thread.join();
  }

  Result<RequestId> Submit(Request request, std::unique_ptr<RequestSink> sink) override {
    ++submitted_;
    if (fault_ == Fault::kRefuseSecond && submitted_ % 2 == 0) {
      return ResourceExhaustedError("the queue is full");
    }
    const RequestId id(static_cast<uint64_t>(submitted_));
    prompts_.push_back(request.prompt);
    EXPECT_TRUE(request.sampling.greedy());
    EXPECT_TRUE(request.stop_tokens.empty());
    threads_.emplace_back([this, id, request = std::move(request), sink = std::move(sink)] {
      Answer(id, request, *sink);
    });
    return id;
  }
  void Cancel(RequestId id) override { cancelled_.push_back(id); }
  int32_t max_context_tokens() const override { return 1024; }
  EngineStats stats() const override { return {}; }

  const std::vector<RequestId>& cancelled() const { return cancelled_; }
  const std::vector<std::vector<TokenId>>& prompts() const { return prompts_; }

 private:
  void Answer(RequestId id, const Request& request, RequestSink& sink) {
    const int32_t most = request.max_output_tokens.value();
    for (int32_t i = 0; i < most; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      RequestOutput output;
      output.id = id;
      int32_t token = request.prompt.back().value() + i;
      if (fault_ == Fault::kOtherTokensLater && id.value() > 4) ++token;
      output.tokens = {TokenId(token)};
      if (i + 1 == most) output.finish = FinishReason::kLength;
      if (fault_ == Fault::kStopEarly && i == 1) output.finish = FinishReason::kStop;
      if (fault_ == Fault::kFailThird && id.value() == 3) {
        output.finish = FinishReason::kFailed;
        output.status = InternalError("out of luck");
      }
      sink.OnOutput(output);
      if (output.finish) return;
    }
  }

  const Fault fault_;
  int submitted_ = 0;
  std::vector<std::vector<TokenId>> prompts_;
  std::vector<RequestId> cancelled_;
  std::vector<std::thread> threads_;
};

ModelCost TestCost() {
  ModelCost cost;
  cost.layer_weight_bytes = 1000;
  cost.output_weight_bytes = 100;
  cost.macs_per_token = 50;
  cost.macs_per_logits = 7;
  cost.macs_per_pair = 3;
  cost.kv_bytes_per_token = 10;
  return cost;
}

BenchSubject SubjectOf(FakeEngine& engine) {
  BenchSubject subject;
  subject.engine = &engine;
  subject.model_name = "test";
  subject.vocab_size = 100;
  subject.cost = TestCost();
  subject.numerics = "fast";
  subject.threads = 2;
  subject.compute = ComputeKind::kInt8;
  return subject;
}

BenchOptions OptionsOf(const char* what) {
  BenchOptions options;
  options.what = what;
  options.batch = 2;
  options.prompt_tokens = 4;
  options.output_tokens = 12;
  options.repeat = 3;
  return options;
}

BenchLimits SomeLimits() { return {10, 20, 1000}; }

TEST(ModelBench, DecodeReportsRatesLimitsAndOneHash) {
  FakeEngine engine;
  int probes = 0;
  const auto report = RunModelBench(OptionsOf("decode"), SubjectOf(engine), [&] {
    ++probes;
    return BenchLimits{static_cast<double>(probes), 20, 1000};
  });
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(probes, 4);  // before, between and after three runs
  ASSERT_EQ(report->runs.size(), 3u);
  EXPECT_DOUBLE_EQ(report->runs[1].limits.memory_read_gb_s, 2.5);
  for (const BenchRun& run : report->runs) {
    EXPECT_GT(run.tokens_per_s, 0);
    EXPECT_LT(run.tokens_per_s, 2000);  // two sequences, a token in at least a millisecond each
    EXPECT_EQ(run.result_hash, report->runs[0].result_hash);
  }
  const auto json = nlohmann::json::parse(BenchJson(*report));
  EXPECT_EQ(json["batch"], 2);
  EXPECT_EQ(json["runs"].size(), 3u);
  EXPECT_EQ(json["result_hash"], report->runs[0].result_hash);
  EXPECT_LE(json["tokens_per_s"]["min"], json["tokens_per_s"]["median"]);
  EXPECT_THAT(BenchText(*report), HasSubstr(report->runs[0].result_hash));
}

TEST(ModelBench, PromptsAreRepeatedAndDifferPerSequence) {
  FakeEngine engine;
  ASSERT_TRUE(RunModelBench(OptionsOf("prefill"), SubjectOf(engine), SomeLimits).ok());
  const auto& prompts = engine.prompts();
  ASSERT_EQ(prompts.size(), 8u);  // warm-up and three runs of two
  EXPECT_NE(prompts[0], prompts[1]);
  for (size_t i = 2; i < prompts.size(); ++i) EXPECT_EQ(prompts[i], prompts[i % 2]);
  for (const TokenId token : prompts[0]) {
    EXPECT_GE(token.value(), 0);
    EXPECT_LT(token.value(), 100);
  }
}

TEST(ModelBench, OtherTokensInALaterRunAreAnError) {
  FakeEngine engine(FakeEngine::Fault::kOtherTokensLater);
  const auto report = RunModelBench(OptionsOf("decode"), SubjectOf(engine), SomeLimits);
  // Ids 1 and 2 warm up, 3 and 4 are the first run.
  EXPECT_EQ(report.status().code(), StatusCode::kInternal);
  EXPECT_THAT(report.status().message(), HasSubstr("run 2"));
}

TEST(ModelBench, ARefusedRequestCancelsTheOthersAndIsReported) {
  FakeEngine engine(FakeEngine::Fault::kRefuseSecond);
  const auto report = RunModelBench(OptionsOf("decode"), SubjectOf(engine), SomeLimits);
  EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(engine.cancelled(), ::testing::ElementsAre(RequestId(1)));
}

TEST(ModelBench, AFailedOrShortSequenceIsAnError) {
  FakeEngine failing(FakeEngine::Fault::kFailThird);
  const auto failed = RunModelBench(OptionsOf("decode"), SubjectOf(failing), SomeLimits);
  EXPECT_THAT(failed.status().message(), HasSubstr("out of luck"));
  FakeEngine stopping(FakeEngine::Fault::kStopEarly);
  const auto stopped = RunModelBench(OptionsOf("decode"), SubjectOf(stopping), SomeLimits);
  EXPECT_THAT(stopped.status().message(), HasSubstr("after 2 of 8 tokens"));
}

TEST(ModelBench, LengthsBeyondTheContextAreNamed) {
  FakeEngine engine;
  BenchOptions options = OptionsOf("prefill");
  options.prompt_tokens = 1024;
  const auto report = RunModelBench(options, SubjectOf(engine), SomeLimits);
  EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(report.status().message(), HasSubstr("--prompt-tokens 1024"));
  EXPECT_TRUE(engine.prompts().empty());
}

SequenceTrace TraceAt(std::vector<TimeNs> times) {
  SequenceTrace trace;
  trace.tokens.resize(times.size());
  trace.times = std::move(times);
  return trace;
}

TEST(DecodeWindow, BeginsWhenAllHaveATokenAndEndsWithTheFirstToEnd) {
  // The second joins while the first decodes; outputs of one step come at slightly different times.
  const std::vector<SequenceTrace> traces = {TraceAt({100, 200, 300, 400, 500}),
                                             TraceAt({301, 401, 501, 601, 701})};
  const auto window = FindDecodeWindow(traces);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->begin, 301);
  EXPECT_EQ(window->end, 501);
  EXPECT_EQ(window->steps, 2);
  EXPECT_THAT(window->first_token, ::testing::ElementsAre(3, 1));
}

TEST(DecodeWindow, SequencesThatDoNotMeetAreRefused) {
  const std::vector<SequenceTrace> apart = {TraceAt({100, 200}), TraceAt({300, 400})};
  EXPECT_EQ(FindDecodeWindow(apart).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(FindDecodeWindow({}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(FindDecodeWindow({TraceAt({})}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(DecodeWindow, CostCountsWeightsPerStepAndStatePerPosition) {
  DecodeWindow window;
  window.steps = 2;
  window.first_token = {3, 1};
  const StepCost cost = CostOfWindow(TestCost(), window, 16);
  EXPECT_EQ(cost.new_tokens, 4);
  EXPECT_EQ(cost.weight_bytes, 2 * 1100);
  // Rows at positions 18, 19 and 16, 17: each reads its history and itself and writes itself.
  EXPECT_EQ(cost.kv_bytes, 10 * ((18 + 2) + (19 + 2) + (16 + 2) + (17 + 2)));
  EXPECT_DOUBLE_EQ(cost.flops, 2.0 * (4 * 57 + 3 * (19 + 20 + 17 + 18)));
}

TEST(LimitsReport, TextAndJsonSayWhatIsAbsent) {
  LimitsReport report;
  report.memory_bytes = int64_t{1} << 30;
  report.cache_bytes = int64_t{512} << 10;
  report.limits.resize(2);
  report.limits[0].threads = 1;
  report.limits[0].memory_read_gb_s = 14.5;
  report.limits[1].threads = 2;
  report.limits[1].int8_gop_s = 1306.25;
  const std::string text = LimitsText(report);
  EXPECT_THAT(text, HasSubstr("1 thread "));
  EXPECT_THAT(text, HasSubstr("2 threads"));
  EXPECT_THAT(text, HasSubstr("absent"));
  EXPECT_THAT(text, HasSubstr("1306.2"));
  EXPECT_THAT(text, HasSubstr("memory read, 1.0 GiB"));
  const auto json = nlohmann::json::parse(LimitsJson(report));
  EXPECT_EQ(json["limits"][0]["memory_read_gb_s"], 14.5);
  EXPECT_TRUE(json["limits"][0]["int8_gop_s"].is_null());
  EXPECT_EQ(json["limits"][1]["int8_gop_s"], 1306.25);
}

TEST(LimitsReport, MeasuresOneAndAllThreads) {
  const auto report = MeasureLimitsReport(2);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->limits.size(), 2u);
  EXPECT_EQ(report->limits[0].threads, 1);
  EXPECT_EQ(report->limits[1].threads, 2);
  EXPECT_GT(report->limits[1].memory_read_gb_s, 0);
}

}  // namespace
}  // namespace tandem
