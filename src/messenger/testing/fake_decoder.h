// What: FakeDecoder: a decode node's engine for the hand-off's tests: reserves blocks, orders
//   fetches, checks every byte that lands and everything that has arrived, goes on writing into its
//   blocks, gives them up and takes others.
// Not here: the network (fabric/sim), the prompts' content (fake_state.h).
// Threads: the world's owner.
// Invariants: a block of a fetch that is not drained is not reused; kInboundWrite says so to the
//   pool. CheckLanding fails for a byte that lands anywhere else, or that is not the right one.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/sim/sim_world.h"
#include "messenger/messenger_config.h"
#include "messenger/testing/awaited_pages.h"
#include "messenger/testing/fake_state.h"

namespace tandem::testing {

struct FakeDecoderOptions {
  int32_t blocks = 64;
  int32_t attempts_most = 2;
  double reuses = 0.5;  // prompts whose state is kept
  double cancels = 0;   // requests, at any time
  TimeNs cancel_within = 20 * kNsPerMs;
  TimeNs run_most = 5 * kNsPerMs;
  TimeNs fetch_bound = 0;  // a fetch that is longer under way is a fault
};

class FakeDecoder {
 public:
  FakeDecoder(SimWorld* world, SimNodeId node, const FakeDecoderOptions& options)
      : world_(world),
        node_(node),
        life_(world->incarnation(node)),
        options_(options),
        pools_(options.blocks),
        cache_(&pools_),
        awaited_(&pools_) {}

  void Attach(HandoffPort* port, std::function<void()> wake) {
    port_ = port;
    wake_ = std::move(wake);
  }
  FakePools& pools() { return pools_; }

  void Arrive(std::vector<TokenId> tokens, std::string salt) {
    const RequestId id(++last_request_);
    requests_.emplace(id, Request{.tokens = std::move(tokens), .salt = std::move(salt)});
    if (world_->Chance(options_.cancels)) {
      world_->After(node_, world_->Between(0, options_.cancel_within), [this, id] { Cancel(id); });
    }
    Begin(id);
  }

  void Cancel(RequestId id) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) return;
    Request& request = it->second;
    ++counts_.cancelled;
    if (request.fetch != FetchId()) {
      fetches_.at(request.fetch).told = true;
      port_->CancelFetch(request.fetch);
      wake_();
    }
    Release(&pools_, &request.tables);
    requests_.erase(it);
  }

  void OnEvent(const HandoffEvent& event) {
    switch (event.kind) {
      case HandoffEvent::Kind::kPeers: ready_peers_ = event.ready_peers; break;
      case HandoffEvent::Kind::kFetchArrived: Arrived(event.fetch); break;
      case HandoffEvent::Kind::kFetchFailed: Failed(event.fetch, event.status); break;
      case HandoffEvent::Kind::kFetchDrained: Drained(event.fetch); break;
      case HandoffEvent::Kind::kSendDrained: break;
    }
  }

  // Bytes are about to land in this node's memory.
  void CheckLanding(std::span<const std::byte> memory, std::span<const std::byte> bytes) const {
    awaited_.CheckLanding(memory, bytes);
  }

  struct Counts {
    int64_t arrived = 0;
    int64_t failed = 0;
    int64_t cancelled = 0;
    int64_t local = 0;  // requests computed here after all
    int64_t finished = 0;
  };
  const Counts& counts() const { return counts_; }
  const std::vector<std::string>& failures() const { return failures_; }
  bool idle() const { return requests_.empty() && fetches_.empty(); }
  int32_t ready_peers() const { return ready_peers_; }

  void CheckIdle() {
    TANDEM_CHECK(idle());
    while (cache_.Evict()) {
    }
    for (FakePool& pool : pools_.pools) {
      TANDEM_CHECK_EQ(pool.blocks.free(), pool.blocks.total());
      TANDEM_CHECK(pool.blocks.CheckIntegrity().ok());
    }
  }

 private:
  struct Request {
    std::vector<TokenId> tokens;
    std::string salt;
    std::vector<FakeTable> tables;  // references
    int32_t attempts = 0;
    FetchId fetch;    // zero: none awaited
    FetchId arrived;  // may not be drained yet
  };
  struct Fetch {
    RequestId request;
    AwaitedPages::HistoriesPtr histories;
    int32_t have = 0;
    std::vector<std::pair<size_t, BlockId>> blocks;  // by group: use-tokens
    bool arrived = false;
    bool told = false;  // arrived, failed or cancelled
  };

  void Begin(RequestId id) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) return;
    Request& request = it->second;
    std::optional<int32_t> have = Reserve(&request);
    if (!have) {  // the pool is full: later
      return world_->After(node_, kNsPerMs, [this, id] { Begin(id); });
    }
    const auto tokens = static_cast<int32_t>(request.tokens.size());
    if (request.attempts == options_.attempts_most || ready_peers_ == 0 || *have == tokens) {
      ++counts_.local;
      return Run(id);
    }
    ++request.attempts;
    Order(id, &request, *have);
  }

  // Takes the blocks of the prompt and one more position; returns up to where the state is here.
  std::optional<int32_t> Reserve(Request* request) {
    const FakeCached* hit = cache_.Find(request->salt, request->tokens, request->tokens.size());
    const int32_t have = hit == nullptr ? 0 : static_cast<int32_t>(hit->tokens.size());
    request->tables.resize(pools_.pools.size());
    const auto tokens = static_cast<int32_t>(request->tokens.size());
    for (size_t g = 0; g < pools_.pools.size(); ++g) {
      FakePool& pool = pools_.pools[g];
      FakeTable& table = request->tables[g];
      if (hit != nullptr) table = hit->tables[g];
      for (const BlockId block : table.blocks) pool.blocks.AddRef(block);
    }
    for (size_t g = 0; g < pools_.pools.size(); ++g) {
      const StateGroup& group = pools_.pools[g].group;
      FakeTable& table = request->tables[g];
      // A window's blocks from the start, or only those that will be read.
      if (group.kind == StateKind::kWindow && hit == nullptr && world_->Chance(0.5)) {
        table.first = FirstRead(group, tokens) / group.tokens_per_block;
      }
      const auto end = static_cast<int32_t>(group.BlocksFor(tokens + 1));
      if (!Grow(&pools_, &cache_, g, std::max(end, table.end()), &table)) {
        Release(&pools_, &request->tables);
        return std::nullopt;
      }
    }
    return have;
  }

  void Order(RequestId id, Request* request, int32_t have) {
    const FetchId fetch_id(++last_fetch_);
    request->fetch = fetch_id;
    const auto histories =
        std::make_shared<const std::vector<uint64_t>>(Histories(request->tokens));
    Fetch fetch{.request = id, .histories = histories, .have = have};
    FetchOrder order{.id = fetch_id,
                     .request = id,
                     .tokens = request->tokens,
                     .have = have,
                     .cache_salt = request->salt};
    const auto tokens = static_cast<int32_t>(request->tokens.size());
    for (size_t g = 0; g < pools_.pools.size(); ++g) {
      FakePool& pool = pools_.pools[g];
      const FakeTable& table = request->tables[g];
      std::vector<BlockId> blocks;
      const int32_t first = std::max(table.first, have / pool.group.tokens_per_block);
      for (int32_t o = first; o < pool.group.BlocksFor(tokens); ++o) {
        const BlockId block = table.At(o);
        blocks.push_back(block);
        fetch.blocks.emplace_back(g, block);
        pool.blocks.BeginUse(block, UseAgent::kInboundWrite);
        awaited_.Await(g, block, o, histories);
      }
      order.blocks.push_back(std::move(blocks));
    }
    fetches_.emplace(fetch_id, std::move(fetch));
    if (options_.fetch_bound > 0) {
      const TimeNs allowed = options_.fetch_bound;
      world_->At(world_->now() + allowed, [this, world = world_, node = node_, life = life_,
                                           fetch_id, stops = world_->stops(node_)] {
        if (!world->alive(node) || world->incarnation(node) != life) return;
        if (world->stops(node) != stops) return;     // it was held up itself
        TANDEM_CHECK(!fetches_.contains(fetch_id));  // every fetch ends in time
      });
    }
    port_->Fetch(std::move(order));
    wake_();
  }

  void Arrived(FetchId id) {
    Fetch& fetch = fetches_.at(id);
    const bool cancelled = fetch.told;  // the event was on its way
    TANDEM_CHECK(!fetch.arrived);
    fetch.arrived = true;
    fetch.told = true;
    for (const auto& [g, block] : fetch.blocks) awaited_.Forget(g, block);
    if (cancelled) return;
    ++counts_.arrived;
    Request& request = requests_.at(fetch.request);
    request.arrived = std::exchange(request.fetch, FetchId());
    CheckState(&pools_, request.tables, fetch.have, *fetch.histories);
    Run(fetch.request);
  }

  void Failed(FetchId id, const Status& status) {
    Fetch& fetch = fetches_.at(id);
    if (fetch.told) return;
    fetch.told = true;
    ++counts_.failed;
    failures_.push_back(status.ToString());
    Request& request = requests_.at(fetch.request);
    request.fetch = FetchId();
    // The blocks may still be written: others are taken for the next attempt.
    Release(&pools_, &request.tables);
    const RequestId again = fetch.request;
    world_->After(node_, world_->Between(0, kNsPerMs), [this, again] { Begin(again); });
  }

  void Drained(FetchId id) {
    const Fetch& fetch = fetches_.at(id);
    TANDEM_CHECK(fetch.told);
    for (const auto& [g, block] : fetch.blocks) {
      awaited_.Forget(g, block);
      pools_.pools[g].blocks.EndUse(block, UseAgent::kInboundWrite);
    }
    fetches_.erase(id);
  }

  // The whole state is here, by the hand-off or computed here: the request writes what follows.
  void Run(RequestId id) {
    const Request& request = requests_.at(id);
    WriteState(&pools_, request.tables, Histories(request.tokens));
    world_->After(node_, world_->Between(0, options_.run_most), [this, id] { Finish(id); });
  }

  void Finish(RequestId id) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) return;  // cancelled
    Request& request = it->second;
    ++counts_.finished;
    if (world_->Chance(0.3))
      port_->CancelFetch(request.arrived);  // it has ended, so nothing happens
    if (world_->Chance(options_.reuses)) {
      cache_.Keep(request.salt, request.tokens, request.tables);
    }
    Release(&pools_, &request.tables);
    requests_.erase(it);
  }

  SimWorld* const world_;
  const SimNodeId node_;
  const uint32_t life_;
  const FakeDecoderOptions options_;
  FakePools pools_;
  FakeCache cache_;
  HandoffPort* port_ = nullptr;
  std::function<void()> wake_;
  std::map<RequestId, Request> requests_;
  std::map<FetchId, Fetch> fetches_;
  AwaitedPages awaited_;
  int32_t ready_peers_ = 0;
  uint64_t last_request_ = 0;
  uint64_t last_fetch_ = 0;
  Counts counts_;
  std::vector<std::string> failures_;
};

}  // namespace tandem::testing
