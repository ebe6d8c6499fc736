// What: ModelUnderTest: a real model on the real executor and engine, driven step by step by a
//   test, in any configuration that must not change its numbers.
// Not here: the live host and the server (tests/openai).
// Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/step_executor.h"
#include "engine/engine.h"
#include "exec/device_executor.h"
#include "exec/in_process_group.h"
#include "model/weights.h"

namespace tandem {

struct TestConfig {
  std::string model_path;      // a file or a folder, as ModelSource::Open takes it
  int32_t tokenizer_size = 0;  // of a folder, whose configuration does not know it; 0: vocab_size
  Numerics numerics = Numerics::kExact;
  int32_t threads = 1;
  int32_t world = 1;  // tensor-parallel ranks
  int32_t pipeline_depth = 0;
  int32_t chunk_tokens = 256;
  int32_t block_tokens = kDefaultTokensPerBlock;
  int32_t max_context = 512;
  int32_t num_blocks = 0;  // of each state group; 0: enough for all slots
  SlabLimits slab;

  std::string ToText() const;
};

struct TestRequest {
  std::vector<TokenId> prompt;
  // Exactly, when no stop token comes. 0: until the context is full, and the request may be
  // preempted.
  int32_t output_tokens = 0;
  SamplingParams sampling = {.temperature = 0};
  std::vector<TokenId> stop_tokens = {};
  std::vector<LogitBias> logit_bias = {};
  bool prompt_logprobs = false;
};

struct TestAnswer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenLogprob> prompt_logprobs;
  bool operator==(const TestAnswer&) const = default;
};

class ModelUnderTest {
 public:
  // Aborts the test process when the model cannot be built: there is nothing to test then.
  explicit ModelUnderTest(const TestConfig& config);
  ~ModelUnderTest();

  const ModelSpec& spec() const { return spec_; }
  // Of Logits. Generate runs on an executor of its own, as an engine expects it: empty.
  DeviceExecutor& executor() { return *executor_; }

  // Logits after each of `tokens`, run in chunks of `chunk` tokens (0: in one piece). [tokens,
  // vocab_size]
  std::vector<float> Logits(const std::vector<TokenId>& tokens, int32_t chunk);

  // Runs one plan to its end on the executor of Logits. Aborts when it is refused.
  StepResult RunPlan(const StepPlan& plan);

  // Runs the requests together through a fresh engine; what each answers.
  std::vector<TestAnswer> Answer(const std::vector<TestRequest>& requests);
  // The same, tokens only.
  std::vector<std::vector<TokenId>> Generate(const std::vector<TestRequest>& requests);
  // Tokens that the last Answer or Generate had to run again after preemptions.
  int64_t recomputed_tokens() const { return recomputed_tokens_; }

  // For tests that drive engines themselves: an empty executor, and the configuration that Answer
  // gives an engine on one.
  std::unique_ptr<DeviceExecutor> NewExecutor();
  EngineConfig NewEngineConfig() const;

 private:
  const TestConfig config_;
  ModelSpec spec_;
  std::vector<std::unique_ptr<ModelWeights>> weights_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<InProcessGroup> group_;
  SingleRank single_;
  RankShape shape_;
  std::unique_ptr<DeviceExecutor> executor_;
  uint64_t last_step_ = 0;
  int64_t recomputed_tokens_ = 0;
};

// tests/golden/NAME in the source tree.
std::string GoldenPath(const std::string& name);
std::string ReadTextFile(const std::string& path);
std::vector<TokenId> TokensOf(const std::vector<int32_t>& ids);

// The SmolLM2 file that ./test provides ($TANDEM_TEST_MODEL); empty when there is none.
std::string SmolLm2Path();

}  // namespace tandem
