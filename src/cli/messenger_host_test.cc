#include "cli/messenger_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/handoff_fabric.h"
#include "cli/handoff_metrics.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;

constexpr int32_t kBlocks = 8;
constexpr int32_t kBlockTokens = 4;
constexpr int32_t kLayers = 3;

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return condition();
}

StateGroup Group() {
  StateGroup group;
  for (int32_t layer = 0; layer < kLayers; ++layer) group.layers.push_back(layer);
  group.num_heads = 2;
  group.planes = {{"k", DType::kF16, TileLayout::kDimMajor, 16},
                  {"v", DType::kF16, TileLayout::kTokenMajor, 16}};
  group.tokens_per_block = kBlockTokens;
  return group;
}

// An engine that only keeps what it is asked for.
class JobsOnly final : public EngineClient {
 public:
  Result<RequestId> Submit(Request request, std::unique_ptr<RequestSink> sink) override {
    MutexLock lock(mutex_);
    if (refuses_) return ResourceExhaustedError("no place");
    requests_.push_back(std::move(request));
    sinks_.push_back(std::move(sink));
    return RequestId(requests_.size());
  }
  void Cancel(RequestId id) override {
    MutexLock lock(mutex_);
    cancelled_.push_back(id);
  }
  int32_t max_context_tokens() const override { return kBlocks * kBlockTokens; }
  EngineStats stats() const override { return {}; }

  void Refuse() {
    MutexLock lock(mutex_);
    refuses_ = true;
  }
  size_t jobs() const {
    MutexLock lock(mutex_);
    return requests_.size();
  }
  size_t cancelled() const {
    MutexLock lock(mutex_);
    return cancelled_.size();
  }
  Request job(size_t i) const {
    MutexLock lock(mutex_);
    return requests_[i];
  }
  // The last output of a job.
  void End(size_t i, FinishReason finish, Status status) {
    RequestOutput output;
    output.finish = finish;
    output.status = std::move(status);
    std::unique_ptr<RequestSink> sink;
    {
      MutexLock lock(mutex_);
      sink = std::move(sinks_[i]);
    }
    sink->OnOutput(output);
  }

 private:
  mutable Mutex mutex_;
  bool refuses_ TANDEM_GUARDED_BY(mutex_) = false;
  std::vector<Request> requests_ TANDEM_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RequestSink>> sinks_ TANDEM_GUARDED_BY(mutex_);
  std::vector<RequestId> cancelled_ TANDEM_GUARDED_BY(mutex_);
};

// A host with a pool of its own and the events that it has delivered.
class Node {
 public:
  explicit Node(std::optional<std::string> prefill, std::string trace = "")
      : pool_(static_cast<size_t>(kBlocks * Group().BlockBytes())) {
    MessengerHostConfig config;
    config.messenger.prefill = !prefill.has_value();
    config.messenger.decode = prefill.has_value();
    config.messenger.format.model = "test";
    config.messenger.format.numerics = "fast-kv-f16";
    config.messenger.format.groups = {Group()};
    config.messenger.instance = reinterpret_cast<uintptr_t>(this);
    if (prefill.has_value()) {
      config.nodes = {*prefill};
    } else {
      config.control.listen = HostPort{"127.0.0.1", 0};
    }
    config.trace_path = std::move(trace);
    MessengerHostParts parts;
    parts.fabric = std::move(MakeHandoffFabric({"127.0.0.1"}, /*same_host=*/true)).value();
    parts.clock = &clock_;
    parts.pools = {std::span(pool_)};
    parts.layers = &layers;
    auto created = MessengerHost::Create(std::move(config), std::move(parts));
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    host_ = std::move(created).value();
    host_->Start(&engine, [this](HandoffEvent event) {
      MutexLock lock(mutex_);
      events_.push_back(std::move(event));
    });
  }

  MessengerHost& host() { return *host_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(host_->port()); }
  std::span<std::byte> Block(int32_t block) {
    const auto bytes = static_cast<size_t>(Group().BlockBytes());
    return std::span(pool_).subspan(static_cast<size_t>(block) * bytes, bytes);
  }
  void Fill(int32_t block, int value) {
    std::ranges::fill(Block(block), static_cast<std::byte>(value));
  }
  // The first event of that kind, once it is there.
  std::optional<HandoffEvent> Wait(HandoffEvent::Kind kind, int32_t ready_peers = -1) {
    std::optional<HandoffEvent> found;
    Eventually([&] {
      MutexLock lock(mutex_);
      for (const HandoffEvent& event : events_) {
        if (event.kind == kind && (ready_peers < 0 || event.ready_peers == ready_peers)) {
          found = event;
        }
        if (found.has_value()) return true;
      }
      return false;
    });
    return found;
  }

  JobsOnly engine;
  LayerCounter layers;

 private:
  SteadyClock clock_;
  std::vector<std::byte> pool_;
  mutable Mutex mutex_;
  std::vector<HandoffEvent> events_ TANDEM_GUARDED_BY(mutex_);
  std::unique_ptr<MessengerHost> host_;
};

std::vector<BlockId> Blocks(std::initializer_list<int32_t> ids) {
  std::vector<BlockId> blocks;
  for (const int32_t id : ids) blocks.push_back(BlockId(id));
  return blocks;
}

// A prefill node, and a decode node that knows it.
class MessengerHostTest : public testing::Test {
 protected:
  void Connect(const std::string& trace = "") {
    prefill_ = std::make_unique<Node>(std::nullopt, trace);
    decode_ = std::make_unique<Node>(prefill_->address());
    ASSERT_TRUE(decode_->Wait(HandoffEvent::Kind::kPeers, 1).has_value());
  }
  // Ten tokens in three blocks.
  void Fetch() {
    FetchOrder order;
    order.id = FetchId(1);
    order.request = RequestId(5);
    for (int32_t i = 0; i < 10; ++i) order.tokens.push_back(TokenId(100 + i));
    order.blocks = {Blocks({2, 5, 1})};
    order.cache_salt = "salt";
    decode_->host().Fetch(std::move(order));
  }
  void FetchAndAwaitJob() {
    Fetch();
    ASSERT_TRUE(Eventually([&] { return prefill_->engine.jobs() == 1; }));
  }
  SendId send() const { return *prefill_->engine.job(0).send; }

  std::unique_ptr<Node> prefill_;
  std::unique_ptr<Node> decode_;
};

TEST_F(MessengerHostTest, MovesAPromptsState) {
  const TestDir dir;
  Connect(dir.path() + "/trace");
  FetchAndAwaitJob();
  const Request job = prefill_->engine.job(0);
  EXPECT_EQ(job.prompt.size(), 10u);
  EXPECT_EQ(job.cache_salt, "salt");
  for (const int32_t block : {3, 4, 6}) prefill_->Fill(block, block);
  prefill_->host().ChunkSubmitted({send(), StepId(1), 0, 6, {Blocks({3, 4})}});
  prefill_->layers.Advance(StepId(1), kLayers);
  prefill_->host().ChunkSubmitted({send(), StepId(2), 6, 10, {Blocks({4, 6})}});
  for (int32_t layer = 1; layer <= kLayers; ++layer) {
    EXPECT_EQ(decode_->Block(1)[0], std::byte{0}) << "not all layers are there";
    prefill_->layers.Advance(StepId(2), layer);
  }
  const auto arrived = decode_->Wait(HandoffEvent::Kind::kFetchArrived);
  ASSERT_TRUE(arrived.has_value());
  EXPECT_EQ(arrived->fetch, FetchId(1));
  const std::pair<int32_t, int32_t> moved[] = {{3, 2}, {4, 5}};
  for (const auto& [from, to] : moved) {
    EXPECT_TRUE(std::ranges::equal(prefill_->Block(from), decode_->Block(to))) << from;
  }
  ASSERT_TRUE(prefill_->Wait(HandoffEvent::Kind::kSendDrained).has_value());
  EXPECT_TRUE(prefill_->Wait(HandoffEvent::Kind::kSendDrained)->status.ok());
  prefill_->engine.End(0, FinishReason::kLength, OkStatus());
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchDrained).has_value());
  EXPECT_TRUE(Eventually([&] { return decode_->host().stats().messenger.fetches_arrived == 1; }));
  EXPECT_TRUE(Eventually([&] { return prefill_->host().stats().messenger.sends_done == 1; }));
  prefill_->host().Stop();
  const std::string trace = TestDir::Read(dir.path() + "/trace");
  EXPECT_EQ(std::ranges::count(trace, '\n'), 2 * kLayers) << trace;
  EXPECT_THAT(trace, HasSubstr("\"step\": 2, \"layer\": 2, \"pages\": "));
}

TEST_F(MessengerHostTest, AJobThatTheEngineRefusesFailsTheFetch) {
  Connect();
  prefill_->engine.Refuse();
  Fetch();
  const auto failed = decode_->Wait(HandoffEvent::Kind::kFetchFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_FALSE(failed->status.ok());
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchDrained).has_value());
}

TEST_F(MessengerHostTest, AJobThatEndsWithoutAChunkFailsTheFetch) {
  Connect();
  FetchAndAwaitJob();
  prefill_->engine.End(0, FinishReason::kFailed, ResourceExhaustedError("the queue is full"));
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchFailed).has_value());
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchDrained).has_value());
  EXPECT_TRUE(Eventually([&] { return prefill_->host().stats().messenger.sends_now == 0; }));
}

TEST_F(MessengerHostTest, ACancelledFetchCancelsTheJob) {
  Connect();
  FetchAndAwaitJob();
  decode_->host().CancelFetch(FetchId(1));
  ASSERT_TRUE(Eventually([&] { return prefill_->engine.cancelled() == 1; }));
  prefill_->host().SendFailed(send(), CancelledError("cancelled"));
  prefill_->engine.End(0, FinishReason::kCancelled, OkStatus());
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchDrained).has_value());
  EXPECT_TRUE(prefill_->Wait(HandoffEvent::Kind::kSendDrained).has_value());
}

TEST_F(MessengerHostTest, AStoppedPrefillNodeFailsTheFetchAtOnce) {
  Connect();
  FetchAndAwaitJob();
  prefill_->host().Stop();
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchFailed).has_value());
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kFetchDrained).has_value());
  EXPECT_TRUE(decode_->Wait(HandoffEvent::Kind::kPeers, 0).has_value());
  prefill_->host().SendFailed(send(), CancelledError("late"));  // is dropped
  prefill_->engine.End(0, FinishReason::kCancelled, OkStatus());
}

TEST(HandoffMetrics, NameEveryNumberOnce) {
  HandoffCounts counts;
  counts.messenger.fetches_arrived = 3;
  counts.messenger.visible_ns = kNsPerS / 2;
  counts.messenger.nodes_ready_now = 2;
  counts.control.handshakes_failed = 4;
  HandoffStats engine;
  engine.fallbacks = 5;
  const std::vector<ExtraMetric> metrics = HandoffMetrics(counts, engine);
  const auto value = [&metrics](const std::string& name, const std::string& labels) {
    double found = -1;
    int times = 0;
    for (const ExtraMetric& metric : metrics) {
      if (metric.name != "tandem:handoff_" + name || metric.labels != labels) continue;
      found = metric.value;
      ++times;
    }
    EXPECT_EQ(times, 1) << name << labels;
    return found;
  };
  EXPECT_EQ(value("fetches_total", ",result=\"arrived\""), 3);
  EXPECT_EQ(value("transfer_seconds_total", ",part=\"visible\""), 0.5);
  EXPECT_EQ(value("peers", ",state=\"ready\""), 2);
  EXPECT_EQ(value("refused_total", ",reason=\"key\""), 4);
  EXPECT_EQ(value("fallbacks_total", ""), 5);
  for (const ExtraMetric& metric : metrics) {
    EXPECT_EQ(metric.is_counter, metric.name.ends_with("_total")) << metric.name;
  }
}

}  // namespace
}  // namespace tandem
