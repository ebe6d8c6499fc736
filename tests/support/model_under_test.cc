#include "tests/support/model_under_test.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "device/cpu_device.h"
#include "model/model_source.h"

namespace tandem {
namespace {

constexpr int32_t kNumSlots = 16;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.status().ToString());
    std::abort();
  }
  return std::move(result).value();
}

class CollectAnswers final : public EngineOutputSink {
 public:
  explicit CollectAnswers(size_t num_requests) : answers(num_requests) {}
  void OnOutput(const RequestOutput& output) override {
    const auto append = [](auto* to, const auto& from) {
      to->insert(to->end(), from.begin(), from.end());
    };
    TestAnswer& mine = answers[output.id.value() - 1];
    append(&mine.tokens, output.tokens);
    append(&mine.logprobs, output.logprobs);
    append(&mine.prompt_logprobs, output.prompt_logprobs);
    if (output.finish == FinishReason::kFailed) {
      fmt::print(stderr, "{}\n", output.status.ToString());
      std::abort();
    }
  }
  std::vector<TestAnswer> answers;
};

Request MakeRequest(uint64_t id, const TestRequest& test) {
  Request request;
  request.id = RequestId(id);
  request.prompt = test.prompt;
  if (test.output_tokens > 0) request.max_output_tokens = test.output_tokens;
  request.sampling = test.sampling;
  request.stop_tokens = test.stop_tokens;
  request.logit_bias = test.logit_bias;
  request.prompt_logprobs = test.prompt_logprobs;
  return request;
}

}  // namespace

std::string TestConfig::ToText() const {
  return fmt::format("numerics={} threads={} world={} depth={} chunk={} block={} slab={},{},{}",
                     NameOf(numerics), threads, world, pipeline_depth, chunk_tokens, block_tokens,
                     slab.max_tokens, slab.max_logits, slab.max_pass_tokens);
}

ModelUnderTest::ModelUnderTest(const TestConfig& config) : config_(config) {
  const auto source = Must(ModelSource::Open(RealFileSystem(), config.model_path));
  spec_ = source->spec();
  if (config.tokenizer_size > 0) spec_.tokenizer_size = config.tokenizer_size;
  shape_.spec = spec_;
  shape_.numerics = config.numerics;
  shape_.tokens_per_block = config.block_tokens;
  shape_.num_slots = kNumSlots;
  shape_.max_context = config.max_context;
  shape_.max_in_flight = config.pipeline_depth + 1;
  shape_.num_threads = config.threads;
  shape_.slab = config.slab;
  const auto groups =
      Must(MakeStateGroups(spec_, config.numerics, config.block_tokens, {0, config.world}));
  for (const StateGroup& group : groups) {
    shape_.num_blocks.push_back(config.num_blocks > 0
                                    ? config.num_blocks
                                    : static_cast<int32_t>(group.BlocksFor(config.max_context)) *
                                          kNumSlots);
  }

  std::vector<Device*> devices;
  for (int32_t rank = 0; rank < config.world; ++rank) {
    WeightsOptions options;
    options.use_cache = false;
    options.shard = {rank, config.world};
    weights_.push_back(Must(ModelWeights::Open(RealFileSystem(), *source, options)));
    devices_.push_back(MakeCpuDevice({config.threads, {}}));
    devices.push_back(devices_.back().get());
  }
  if (config.world > 1) {
    group_ =
        Must(InProcessGroup::Create(devices, int64_t{config.slab.max_tokens} * spec_.hidden_dim));
  }
  executor_ = NewExecutor();
}

ModelUnderTest::~ModelUnderTest() = default;

std::unique_ptr<DeviceExecutor> ModelUnderTest::NewExecutor() {
  std::vector<RankConfig> ranks;
  for (size_t rank = 0; rank < devices_.size(); ++rank) {
    Communicator* communicator = &single_;
    if (group_ != nullptr) communicator = group_->communicator(static_cast<int32_t>(rank));
    ranks.push_back({devices_[rank].get(), weights_[rank].get(), communicator});
  }
  return Must(DeviceExecutor::Create(ranks, shape_));
}

StepResult ModelUnderTest::RunPlan(const StepPlan& plan) {
  const Status status = executor_->Submit(plan);
  if (!status.ok()) {
    fmt::print(stderr, "{}\n{}", status.ToString(), plan.ToText());
    std::abort();
  }
  StepResult result;
  while (!executor_->Poll(&result)) std::this_thread::yield();
  return result;
}

std::vector<float> ModelUnderTest::Logits(const std::vector<TokenId>& tokens, int32_t chunk) {
  if (chunk == 0) chunk = static_cast<int32_t>(tokens.size());
  std::vector<float> logits;
  const SlotId slot(0);
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk)) {
    StepPlan plan;
    plan.step = StepId(++last_step_);
    if (begin == 0) {
      plan.joins.push_back({slot, RequestId(1), 0, {}});
      for (size_t g = 0; g < shape_.num_blocks.size();
           ++g) {  // blocks in descending order: not the identity
        const int32_t needed =
            static_cast<int32_t>(tokens.size() + static_cast<size_t>(config_.block_tokens) - 1) /
            config_.block_tokens;
        for (int32_t b = 0; b < needed; ++b) {
          plan.appends.push_back(
              {slot, GroupId(static_cast<int32_t>(g)), BlockId(shape_.num_blocks[g] - 1 - b)});
        }
      }
    }
    const size_t end = std::min(tokens.size(), begin + static_cast<size_t>(chunk));
    plan.tokens.assign(tokens.begin() + static_cast<int64_t>(begin),
                       tokens.begin() + static_cast<int64_t>(end));
    PlanRow row;
    row.slot = slot;
    row.position = static_cast<int32_t>(begin);
    row.num_tokens = static_cast<int32_t>(end - begin);
    row.return_logits = row.num_tokens;
    plan.rows.push_back(row);
    const StepResult result = RunPlan(plan);
    logits.insert(logits.end(), result.logits.begin(), result.logits.end());
  }
  StepPlan leave;
  leave.step = StepId(++last_step_);
  leave.leaves.push_back(slot);
  RunPlan(leave);
  return logits;
}

std::vector<std::vector<TokenId>> ModelUnderTest::Generate(
    const std::vector<TestRequest>& requests) {
  std::vector<std::vector<TokenId>> tokens;
  for (TestAnswer& answer : Answer(requests)) tokens.push_back(std::move(answer.tokens));
  return tokens;
}

EngineConfig ModelUnderTest::NewEngineConfig() const {
  EngineConfig config;
  const auto groups =
      Must(MakeStateGroups(spec_, config_.numerics, config_.block_tokens, {0, config_.world}));
  for (size_t g = 0; g < groups.size(); ++g)
    config.groups.push_back({groups[g], shape_.num_blocks[g]});
  config.context_length = config_.max_context;
  config.vocab_size = spec_.vocab_size;
  config.pipeline_depth = config_.pipeline_depth;
  config.max_running = kNumSlots;
  config.token_budget = std::max(config_.chunk_tokens, kNumSlots);
  config.chunk_tokens = config_.chunk_tokens;
  config.reserve_tokens = 0;
  return config;
}

std::vector<TestAnswer> ModelUnderTest::Answer(const std::vector<TestRequest>& requests) {
  CollectAnswers sink(requests.size());
  const std::unique_ptr<DeviceExecutor> executor = NewExecutor();
  const std::unique_ptr<Engine> engine =
      Must(Engine::Create(NewEngineConfig(), executor.get(), &sink));
  TimeNs now = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status status = engine->Handle({++now, ArrivalEvent{MakeRequest(i + 1, requests[i])}});
    TANDEM_CHECK(status.ok());
  }
  StepResult result;
  while (engine->HasWork() || engine->steps_in_flight() > 0) {
    engine->Advance(++now);
    while (!executor->Poll(&result)) std::this_thread::yield();
    TANDEM_CHECK(engine->Handle({++now, ResultEvent{result}}).ok());
    TANDEM_CHECK(engine->CheckIntegrity().ok());
  }
  recomputed_tokens_ = engine->stats(now).recomputed_tokens;
  return sink.answers;
}

std::string GoldenPath(const std::string& name) {
  return std::string(TANDEM_SOURCE_DIR) + "/tests/golden/" + name;
}

std::string ReadTextFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  TANDEM_CHECK(in.good());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<TokenId> TokensOf(const std::vector<int32_t>& ids) {
  std::vector<TokenId> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) tokens.push_back(TokenId(id));
  return tokens;
}

std::string SmolLm2Path() {
  const char* path = std::getenv("TANDEM_TEST_MODEL");
  return path == nullptr ? "" : path;
}

}  // namespace tandem
