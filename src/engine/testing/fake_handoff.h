// What: FakeHandoffPort: the other nodes of an engine under test. It keeps what the engine orders,
//   checks the contract of core/handoff_port.h, and moves state into and out of the
//   VerifyingExecutor when the test says so.
// Not here: when what arrives, fails or drains (the tests).
// Threads: one.
// Invariants: until a fetch has drained, its blocks may be written: Scribble does, with what no row
//   would write. So a block that is used again too early is found by whoever reads it. A send is
//   delivered only if every block still holds the prompt's state.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/event.h"
#include "core/handoff_port.h"
#include "engine/testing/verifying_executor.h"

namespace tandem::testing {

class FakeHandoffPort final : public HandoffPort {
 public:
  struct FetchState {
    FetchOrder order;
    bool settled = false;  // arrived, failed or cancelled
    bool arrived = false;
  };
  struct SendState {
    std::vector<TokenId> tokens;  // announced by the test: ExpectSend
    int32_t end = 0;              // handed over so far
    bool failed = false;
    std::vector<SendChunk> chunks;
  };

  explicit FakeHandoffPort(VerifyingExecutor* executor) : executor_(executor) {}

  void Fetch(FetchOrder order) override {
    Log("fetch id=" + Text(order.id) + " request=" + Text(order.request) +
        " have=" + std::to_string(order.have) + " tokens=" + std::to_string(order.tokens.size()) +
        BlocksText(order.blocks));
    const auto end = static_cast<int32_t>(order.tokens.size());
    Check(order.have >= 0 && order.have < end, "a fetch of nothing");
    CheckBlocks(order.blocks, order.have, end);
    for (size_t g = 0; g < order.blocks.size(); ++g) {
      Check(order.have % executor_->state().group(g).tokens_per_block == 0,
            "a fetch begins inside a block");
    }
    const FetchId id = order.id;
    Check(fetches_.emplace(id, FetchState{std::move(order)}).second, "a fetch id comes twice");
  }
  void CancelFetch(FetchId id) override {
    Log("cancel-fetch id=" + Text(id));
    const auto at = fetches_.find(id);
    if (at != fetches_.end()) at->second.settled = true;
  }
  void ChunkSubmitted(SendChunk chunk) override {
    Log("chunk send=" + Text(chunk.id) + " step=" + Text(chunk.step) +
        " begin=" + std::to_string(chunk.begin) + " end=" + std::to_string(chunk.end) +
        BlocksText(chunk.blocks));
    SendState& send = sends_[chunk.id];
    Check(!send.failed, "a chunk of a send that has failed");
    Check(chunk.begin == send.end && chunk.end > chunk.begin, "a chunk out of order");
    CheckBlocks(chunk.blocks, chunk.begin, chunk.end);
    send.end = chunk.end;
    send.chunks.push_back(std::move(chunk));
  }
  void SendFailed(SendId id, const Status& status) override {
    Log("send-failed send=" + Text(id) + " " + status.ToString());
    Check(!status.ok(), "a send fails without a reason");
    SendState& send = sends_[id];
    Check(!send.failed, "a send fails twice");
    send.failed = true;
  }

  // The test has given the engine a prompt to compute.
  void ExpectSend(SendId id, std::vector<TokenId> tokens) { sends_[id].tokens = std::move(tokens); }

  // What the other side does; each returns the event that the engine is to be given.
  HandoffEvent Arrive(FetchId id) {
    FetchState& fetch = fetches_.at(id);
    fetch.settled = fetch.arrived = true;
    uint64_t hash = 1;
    for (int32_t p = 0; p < static_cast<int32_t>(fetch.order.tokens.size()); ++p) {
      hash =
          MixHash(hash, static_cast<uint64_t>(fetch.order.tokens[static_cast<size_t>(p)].value()));
      if (p < fetch.order.have) continue;
      EachPlace(fetch.order.blocks, fetch.order.have, p, [hash](uint64_t& entry) { entry = hash; });
    }
    return {.kind = HandoffEvent::Kind::kFetchArrived, .fetch = id};
  }
  HandoffEvent Fail(FetchId id) {
    fetches_.at(id).settled = true;
    return {.kind = HandoffEvent::Kind::kFetchFailed,
            .fetch = id,
            .status = UnavailableError("failed by the test")};
  }
  HandoffEvent Drain(FetchId id) {
    fetches_.erase(id);
    return {.kind = HandoffEvent::Kind::kFetchDrained, .fetch = id};
  }
  HandoffEvent DrainSend(SendId id, bool delivered) {
    HandoffEvent event{.kind = HandoffEvent::Kind::kSendDrained, .send = id};
    if (delivered) {
      CheckSent(sends_.at(id));
    } else {
      event.status = UnavailableError("failed by the test");
    }
    sends_.erase(id);
    return event;
  }
  static HandoffEvent Peers(int32_t count) {
    return {.kind = HandoffEvent::Kind::kPeers, .ready_peers = count};
  }

  // Late writes of everything that has neither arrived nor drained.
  void Scribble(uint64_t value) {
    for (const auto& [id, fetch] : fetches_) {
      if (fetch.arrived) continue;
      const auto end = static_cast<int32_t>(fetch.order.tokens.size());
      for (int32_t p = fetch.order.have; p < end; ++p) {
        EachPlace(fetch.order.blocks, fetch.order.have, p,
                  [value](uint64_t& entry) { entry = value; });
      }
    }
  }

  const std::map<FetchId, FetchState>& fetches() const { return fetches_; }  // not drained
  const std::map<SendId, SendState>& sends() const { return sends_; }        // not drained
  // Whether every chunk of the prompt has been handed over.
  bool AllHandedOver(SendId id) const {
    const SendState& send = sends_.at(id);
    return send.end > 0 && send.end == static_cast<int32_t>(send.tokens.size());
  }
  // Sees each call as a line.
  void SetOnCall(std::function<void(const std::string&)> on_call) { on_call_ = std::move(on_call); }
  // The first broken promise; empty while all is well.
  const std::string& violation() const { return violation_; }

 private:
  template <typename Id>
  static std::string Text(Id id) {
    return std::to_string(id.value());
  }
  static std::string BlocksText(const std::vector<std::vector<BlockId>>& blocks) {
    std::string text;
    for (size_t g = 0; g < blocks.size(); ++g) {
      text += " group=" + std::to_string(g) + " blocks=";
      for (size_t i = 0; i < blocks[g].size(); ++i) text += (i > 0 ? "," : "") + Text(blocks[g][i]);
    }
    return text;
  }
  void Log(const std::string& line) {
    if (on_call_) on_call_(line);
  }
  void Check(bool condition, const std::string& what) {
    if (!condition && violation_.empty()) violation_ = what;
  }
  void CheckBlocks(const std::vector<std::vector<BlockId>>& blocks, int32_t begin, int32_t end) {
    for (size_t g = 0; g < blocks.size(); ++g) {
      const StateGroup& group = executor_->state().group(g);
      const int64_t count = group.BlocksFor(end) - begin / group.tokens_per_block;
      Check(static_cast<int64_t>(blocks[g].size()) == count, "blocks are missing, or too many");
    }
  }
  // The entry of position `p` in every group; `blocks` begin with the one of position `begin`.
  void EachPlace(const std::vector<std::vector<BlockId>>& blocks, int32_t begin, int32_t p,
                 const std::function<void(uint64_t&)>& visit) {
    for (size_t g = 0; g < blocks.size(); ++g) {
      const int32_t size = executor_->state().group(g).tokens_per_block;
      const auto index = static_cast<size_t>(p / size - begin / size);
      visit(executor_->state().At(g, blocks[g].at(index), p % size));
    }
  }
  void CheckSent(const SendState& send) {
    Check(send.end == static_cast<int32_t>(send.tokens.size()), "a send ends before its prompt");
    uint64_t hash = 1;
    size_t next = 0;
    for (const SendChunk& chunk : send.chunks) {
      for (int32_t p = chunk.begin; p < chunk.end && next < send.tokens.size(); ++p) {
        hash = MixHash(hash, static_cast<uint64_t>(send.tokens[next++].value()));
        EachPlace(chunk.blocks, chunk.begin, p, [this, hash](uint64_t& entry) {
          Check(entry == hash, "a block of a send was used again before it drained");
        });
      }
    }
  }

  VerifyingExecutor* const executor_;
  std::map<FetchId, FetchState> fetches_;
  std::map<SendId, SendState> sends_;
  std::function<void(const std::string&)> on_call_;
  std::string violation_;
};

}  // namespace tandem::testing
