// A prefill engine and a decode engine in one process: pages go from one to the other as the layer
// counter advances. The text is that of a single engine, bit by bit.
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>
#include <set>
#include <thread>

#include "core/layer_counter.h"
#include "tests/support/model_under_test.h"
#include "tests/support/workload.h"

namespace tandem {
namespace {

constexpr int32_t kBlock = 16;
constexpr int32_t kFetches = 4;
constexpr int32_t kOutputs = 16;

class Node final : public EngineOutputSink {
 public:
  Node(ModelUnderTest& model, const EngineConfig& config, HandoffPort* port)
      : executor_(model.NewExecutor()) {
    executor_->SetLayerCounter(&counter_);
    engine_ = Engine::Create(config, executor_.get(), this, port).value();
  }

  void Handle(decltype(EngineEvent::body) body) {
    const Status status = engine_->Handle({++now_, std::move(body)});
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  // Takes what has finished and starts what can start.
  void Turn() {
    StepResult result;
    while (executor_->Poll(&result)) Handle(ResultEvent{result});
    engine_->Advance(++now_);
    const Status status = engine_->CheckIntegrity();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  bool busy() const {
    return engine_->HasWork() || engine_->steps_in_flight() > 0 || engine_->open_handoffs() > 0;
  }
  void OnOutput(const RequestOutput& output) override {
    std::vector<TokenId>& answer = answers_[output.id];
    answer.insert(answer.end(), output.tokens.begin(), output.tokens.end());
    if (output.finish) {
      EXPECT_EQ(*output.finish, FinishReason::kLength) << output.status.ToString();
    }
  }

  DeviceExecutor& executor() { return *executor_; }
  const LayerCounter& counter() const { return counter_; }
  std::vector<TokenId> TakeAnswer(RequestId id) { return std::move(answers_.extract(id).mapped()); }
  EngineStats stats() const { return engine_->stats(now_); }

 private:
  LayerCounter counter_;
  std::unique_ptr<DeviceExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, std::vector<TokenId>> answers_;
  TimeNs now_ = 0;
};

// What the messenger is between nodes: a fetch becomes a request with the same number there.
class Wire {
 public:
  class DecodePort final : public HandoffPort {
   public:
    explicit DecodePort(Wire* wire) : wire_(wire) {}
    void Fetch(FetchOrder order) override { wire_->orders_.push_back(std::move(order)); }
    void CancelFetch(FetchId) override { FAIL(); }
    void ChunkSubmitted(SendChunk) override { FAIL(); }
    void SendFailed(SendId, const Status&) override { FAIL(); }

   private:
    Wire* const wire_;
  };
  class PrefillPort final : public HandoffPort {
   public:
    explicit PrefillPort(Wire* wire) : wire_(wire) {}
    void Fetch(FetchOrder) override { FAIL(); }
    void CancelFetch(FetchId) override { FAIL(); }
    void ChunkSubmitted(SendChunk chunk) override { wire_->chunks_.push_back({std::move(chunk)}); }
    void SendFailed(SendId, const Status& status) override { FAIL() << status.ToString(); }

   private:
    Wire* const wire_;
  };

  DecodePort decode_port{this};
  PrefillPort prefill_port{this};

  void Connect(Node* prefill, Node* decode) {
    prefill_ = prefill;
    decode_ = decode;
  }

  void Pump() {
    for (FetchOrder& order : orders_) {
      ArrivalEvent arrival;
      arrival.request.id = RequestId(1'000'000 + order.id.value());
      arrival.request.prompt = order.tokens;
      arrival.request.cache_salt = order.cache_salt;
      arrival.request.send = SendId(order.id.value());
      fetches_.emplace(arrival.request.send->value(), std::move(order));
      prefill_->Handle(std::move(arrival));
    }
    orders_.clear();
    for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
      chunk = Move(&*chunk) ? chunks_.erase(chunk) : std::next(chunk);
    }
  }

  int64_t pages() const { return pages_; }
  int64_t early_pages() const { return early_pages_; }

 private:
  struct Chunk {
    SendChunk chunk;
    int32_t layers = 0;  // moved
  };

  // Moves what is complete of a chunk; true when that is all of it.
  bool Move(Chunk* c) {
    const SendChunk& chunk = c->chunk;
    const FetchOrder& order = fetches_.at(chunk.id.value());
    const std::vector<StateGroup>& groups = prefill_->executor().groups(0);
    const auto layers = static_cast<int32_t>(groups[0].layers.size());
    for (; c->layers < layers; ++c->layers) {
      const bool there =
          chunk.step == StepId(0) || prefill_->counter().Reached(chunk.step, c->layers);
      if (!there) return false;
      early_pages_ += MovePages(chunk, order, groups[0], c->layers) *
                      (prefill_->counter().Read().step == chunk.step);
    }
    if (chunk.end == static_cast<int32_t>(order.tokens.size())) Complete(order.id);
    return true;
  }

  // A page goes with the chunk that fills it, the last one with the last chunk.
  int64_t MovePages(const SendChunk& chunk, const FetchOrder& order, const StateGroup& group,
                    int32_t layer) {
    const auto total = static_cast<int32_t>(order.tokens.size());
    const int64_t first = chunk.begin / group.tokens_per_block;
    const int64_t have = order.have / group.tokens_per_block;
    const int64_t end =
        chunk.end == total ? group.BlocksFor(total) : chunk.end / group.tokens_per_block;
    const auto from = prefill_->executor().state(0, GroupId(0));
    const auto to = decode_->executor().state(0, GroupId(0));
    int64_t moved = 0;
    for (int64_t page = std::max(first, have); page < end; ++page) {
      const BlockId source = chunk.blocks[0].at(static_cast<size_t>(page - first));
      const BlockId target = order.blocks[0].at(static_cast<size_t>(page - have));
      EXPECT_TRUE(seen_.insert({order.id.value(), page, layer}).second) << "a page goes twice";
      const int64_t offset = group.OffsetInBlock(layer, 0, 0);
      std::memcpy(to.data() + target.value() * group.BlockBytes() + offset,
                  from.data() + source.value() * group.BlockBytes() + offset,
                  static_cast<size_t>(group.PageBytes()));
      ++moved;
    }
    pages_ += moved;
    return moved;
  }

  void Complete(FetchId fetch) {
    prefill_->Handle(
        HandoffEvent{.kind = HandoffEvent::Kind::kSendDrained, .send = SendId(fetch.value())});
    decode_->Handle(HandoffEvent{.kind = HandoffEvent::Kind::kFetchArrived, .fetch = fetch});
    decode_->Handle(HandoffEvent{.kind = HandoffEvent::Kind::kFetchDrained, .fetch = fetch});
  }

  Node* prefill_ = nullptr;
  Node* decode_ = nullptr;
  std::vector<FetchOrder> orders_;
  std::map<uint64_t, FetchOrder> fetches_;
  std::list<Chunk> chunks_;
  std::set<std::tuple<uint64_t, int64_t, int32_t>> seen_;
  int64_t pages_ = 0;
  int64_t early_pages_ = 0;  // moved before their step's successor began
};

struct Load {
  std::string model;
  int32_t vocab;
  Numerics numerics;
};

// Prompts of every kind of length at a block's border, two with a beginning in common.
std::vector<TestRequest> Requests(int32_t vocab) {
  std::vector<TestRequest> requests;
  const auto add = [&](std::vector<TokenId> prompt) {
    requests.push_back({.prompt = std::move(prompt), .output_tokens = kOutputs});
  };
  const std::vector<TokenId> common = RandomPrompt(1, vocab, 2 * kBlock + 3);
  for (const int32_t length : {100, 2 * kBlock + 1, 2 * kBlock, 2, 1}) {
    add(RandomPrompt(static_cast<uint64_t>(length) + 10, vocab, length));
  }
  for (const uint64_t seed : {2, 3}) {
    std::vector<TokenId> prompt = common;
    const std::vector<TokenId> own = RandomPrompt(seed, vocab, 20);
    prompt.insert(prompt.end(), own.begin(), own.end());
    add(std::move(prompt));
  }
  return requests;
}

Request AsRequest(uint64_t id, const TestRequest& test) {
  Request request;
  request.id = RequestId(id);
  request.prompt = test.prompt;
  request.max_output_tokens = test.output_tokens;
  request.sampling = test.sampling;
  return request;
}

// Which nodes have a prefix cache, and the beginnings of prompts in it.
struct Caches {
  bool prefill = false, decode = false;
};

class SplitPair {
 public:
  SplitPair(ModelUnderTest& model, const Caches& caches)
      : prefill_(model, Config(model, caches.prefill, 0), &wire_.prefill_port),
        decode_(model, Config(model, caches.decode, kFetches), &wire_.decode_port) {
    wire_.Connect(&prefill_, &decode_);
  }

  // A node computes these alone.
  void Warm(Node* node, const std::vector<TestRequest>& requests) {
    for (size_t i = 0; i < requests.size(); i += 2) {
      TestRequest request = requests[i];
      if (request.prompt.size() > 40) request.prompt.resize(40);
      node->Handle(ArrivalEvent{AsRequest(100 + i, request)});
    }
    Finish();
  }

  std::vector<std::vector<TokenId>> Answer(const std::vector<TestRequest>& requests) {
    decode_.Handle(HandoffEvent{.kind = HandoffEvent::Kind::kPeers, .ready_peers = 1});
    for (size_t i = 0; i < requests.size(); ++i) {
      decode_.Handle(ArrivalEvent{AsRequest(i + 1, requests[i])});
    }
    Finish();
    std::vector<std::vector<TokenId>> answers;
    for (size_t i = 0; i < requests.size(); ++i) {
      answers.push_back(decode_.TakeAnswer(RequestId(i + 1)));
    }
    return answers;
  }

  Node& prefill() { return prefill_; }
  Node& decode() { return decode_; }
  const Wire& wire() const { return wire_; }

 private:
  static EngineConfig Config(const ModelUnderTest& model, bool caching, int32_t fetches) {
    EngineConfig config = model.NewEngineConfig();
    config.max_running -= fetches;
    config.fetch = {.max_fetches = fetches, .min_tokens = 1};
    if (caching) config.prefix_cache = PrefixCaching{.key = {1, 2}};
    return config;
  }

  void Finish() {
    const SteadyClock clock;
    const TimeNs limit = clock.Now() + 60 * kNsPerS;
    while (prefill_.busy() || decode_.busy()) {
      wire_.Pump();
      prefill_.Turn();
      decode_.Turn();
      std::this_thread::yield();
      ASSERT_LT(clock.Now(), limit) << "the pair stands still";
    }
    EXPECT_EQ(prefill_.stats().blocks_in_use, 0);
    EXPECT_EQ(decode_.stats().blocks_in_use, 0);
  }

  Wire wire_;
  Node prefill_;
  Node decode_;
};

void ExpectSameText(const Load& load, std::initializer_list<int32_t> chunks) {
  TestConfig config;
  config.model_path = GoldenPath(load.model);
  config.numerics = load.numerics;
  config.block_tokens = kBlock;
  const std::vector<TestRequest> requests = Requests(load.vocab);
  const std::vector<std::vector<TokenId>> expected = ModelUnderTest(config).Generate(requests);
  for (const int32_t chunk : chunks) {
    for (const int32_t depth : {0, 1}) {
      config.chunk_tokens = chunk;
      config.pipeline_depth = depth;
      config.threads = 1 + depth;
      ModelUnderTest model(config);
      for (const Caches caches : {Caches{}, {true, false}, {false, true}, {true, true}}) {
        SplitPair pair(model, caches);
        if (caches.prefill) pair.Warm(&pair.prefill(), requests);
        if (caches.decode) pair.Warm(&pair.decode(), requests);
        const std::string what =
            fmt::format("{} caches {} {}", config.ToText(), caches.prefill, caches.decode);
        EXPECT_EQ(pair.Answer(requests), expected) << what;
        const HandoffStats fetched = pair.decode().stats().handoff;
        EXPECT_GE(fetched.fetched_requests, 4) << what;
        EXPECT_EQ(fetched.fetches, fetched.fetched_requests) << what;
        EXPECT_EQ(pair.prefill().stats().handoff.sends, fetched.fetches) << what;
        EXPECT_GT(pair.wire().pages(), 0) << what;
        EXPECT_EQ(pair.prefill().stats().prefix_hit_tokens > 0, caches.prefill) << what;
        EXPECT_EQ(pair.decode().stats().prefix_hit_tokens > 0, caches.decode) << what;
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Handoff, TheTextIsThatOfOneNodeExact) {
  ExpectSameText({"tiny_b.gguf", 320, Numerics::kExact}, {1, 7, 256});
}
TEST(Handoff, TheTextIsThatOfOneNodeFast) {
  ExpectSameText({"tiny_c.gguf", 512, Numerics::kFast}, {1, 7, 256});
}
TEST(Handoff, TheTextIsThatOfOneNodeInEveryKvType) {
  for (const DType kv : kKvTypes) {
    ExpectSameText({"tiny_c.gguf", 512, {Arithmetic::kFast, kv}}, {7});
  }
}

TEST(Handoff, ALostPageShows) {
  TestConfig config;
  config.model_path = GoldenPath("tiny_b.gguf");
  config.block_tokens = kBlock;
  ModelUnderTest model(config);
  const std::vector<TestRequest> requests = Requests(320);
  const std::vector<std::vector<TokenId>> expected = model.Generate(requests);
  SplitPair pair(model, {false, true});
  EXPECT_EQ(pair.Answer(requests), expected);
  const int64_t pages = pair.wire().pages();
  EXPECT_EQ(pair.Answer(requests), expected);
  EXPECT_LT(pair.wire().pages(), 2 * pages) << "what came before is not fetched again";
  // Where that is gone, so is the answer.
  const auto state = pair.decode().executor().state(0, GroupId(0));
  std::memset(state.data(), 0, state.size());
  EXPECT_NE(pair.Answer(requests), expected);
}

// Reads the counter in stream order behind each layer.
class ReadsCounter final : public LayerTap {
 public:
  explicit ReadsCounter(const LayerCounter* counter) : counter_(counter) {}
  void AfterLayer(Stream& stream, int32_t layer, const float*, int32_t) override {
    stream.EnqueueHostCall([this, layer] { seen.emplace_back(layer, counter_->Read()); });
  }
  std::vector<std::pair<int32_t, LayerCounter::Progress>> seen;

 private:
  const LayerCounter* const counter_;
};

TEST(LayerCounter, AdvancesBehindEachLayerOfAStepsLastPass) {
  TestConfig config;
  config.model_path = GoldenPath("tiny_b.gguf");
  config.slab = {.max_tokens = 5, .max_pass_tokens = 20};
  ModelUnderTest model(config);
  LayerCounter counter;
  ReadsCounter tap(&counter);
  model.executor().SetTap(0, &tap);
  model.executor().SetLayerCounter(&counter);
  const int32_t layers = model.spec().num_layers;
  model.Logits(RandomPrompt(1, 320, 50), 0);  // passes of 20, 20 and 10 tokens, and a step to leave
  ASSERT_EQ(tap.seen.size(), static_cast<size_t>(3 * layers));
  for (size_t i = 0; i < tap.seen.size(); ++i) {
    const auto& [layer, progress] = tap.seen[i];
    const bool last = i >= static_cast<size_t>(2 * layers);
    EXPECT_EQ(progress.step, StepId(last ? 1 : 0)) << i;
    EXPECT_EQ(progress.layers, last ? layer + 1 : 0) << i;
  }
  EXPECT_EQ(counter.Read().step, StepId(2)) << "a step without rows";
  EXPECT_EQ(counter.Read().layers, layers);
  EXPECT_TRUE(counter.Reached(StepId(2), layers - 1));
  EXPECT_FALSE(counter.Reached(StepId(3), 0));
}

TEST(DeviceExecutor, StateBeginsAtAPageAndHoldsTheBlocks) {
  TestConfig config;
  config.model_path = GoldenPath("tiny_b.gguf");
  config.num_blocks = 3;
  ModelUnderTest model(config);
  const auto state = model.executor().state(0, GroupId(0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(state.data()) % 4096, 0u);
  EXPECT_EQ(static_cast<int64_t>(state.size()), 3 * model.executor().groups(0)[0].BlockBytes());
}

}  // namespace
}  // namespace tandem
