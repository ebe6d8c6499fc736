#include "fabric/sim/sim_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tandem {
namespace {

// Two nodes: the first writes into the second's memory.
class Pair {
 public:
  explicit Pair(uint64_t seed, const SimFaults& faults = {}, const SimFabric::Limits& limits = {})
      : world(seed, faults), fabric(&world), source_memory(4096), target_memory(4096) {
    source_node = world.AddNode();
    target_node = world.AddNode();
    source = fabric.MakeEngine(source_node, limits);
    target = fabric.MakeEngine(target_node, limits);
    for (size_t i = 0; i < source_memory.size(); ++i) {
      source_memory[i] = static_cast<std::byte>(i * 7 + 1);
    }
    local = *source->RegisterLocal(source_memory);
    remote_region = *target->RegisterRemote(target_memory, &remote);
    peer = *source->AddPeer(target->address());
  }

  // `count` pieces of 64 bytes, from the end to the start.
  std::vector<WritePiece> Pieces(uint32_t count, Immediate first) const {
    std::vector<WritePiece> pieces;
    for (uint32_t i = 0; i < count; ++i) {
      pieces.push_back({.local_offset = i * 64,
                        .remote_offset = (count - 1 - i) * 64,
                        .bytes = 64,
                        .immediate = first + i});
    }
    return pieces;
  }
  void Run(TimeNs time) {
    world.RunUntil(world.now() + time);
    source->Poll(&source_events);
    target->Poll(&target_events);
  }
  template <typename Event>
  static std::vector<Event> Of(const std::vector<FabricEvent>& events) {
    std::vector<Event> found;
    for (const FabricEvent& event : events) {
      if (const auto* e = std::get_if<Event>(&event)) found.push_back(*e);
    }
    return found;
  }
  bool untouched() const {
    return std::all_of(target_memory.begin(), target_memory.end(),
                       [](std::byte b) { return b == std::byte{0}; });
  }

  SimWorld world;
  SimFabric fabric;
  SimNodeId source_node;
  SimNodeId target_node;
  std::vector<std::byte> source_memory;
  std::vector<std::byte> target_memory;
  std::unique_ptr<SimEngine> source;
  std::unique_ptr<SimEngine> target;
  RegionId local;
  RegionId remote_region;
  RemoteRegion remote;
  PeerId peer;
  std::vector<FabricEvent> source_events;
  std::vector<FabricEvent> target_events;
};

TEST(SimEngine, BytesLandAndAreCountedOnce) {
  Pair pair(1, {.slow = 0.3, .drop = 0.2, .duplicate = 0.5, .lag = 0.5});
  const auto expectation = pair.target->Expect(20, kNsPerS);
  ASSERT_TRUE(expectation.ok());
  ASSERT_TRUE(
      pair.source
          ->Write(pair.peer, pair.local, pair.remote, pair.Pieces(20, expectation->first), kNsPerS)
          .ok());
  pair.Run(500 * kNsPerMs);
  const auto ended = Pair::Of<TransferEnded>(pair.source_events);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended[0].status.ok());
  const auto met = Pair::Of<ExpectationEnded>(pair.target_events);
  ASSERT_EQ(met.size(), 1u);
  EXPECT_TRUE(met[0].status.ok());
  EXPECT_EQ(met[0].first, expectation->first);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(std::equal(pair.source_memory.begin() + static_cast<ptrdiff_t>(i * 64),
                           pair.source_memory.begin() + static_cast<ptrdiff_t>((i + 1) * 64),
                           pair.target_memory.begin() + static_cast<ptrdiff_t>((19 - i) * 64)));
  }
  EXPECT_EQ(pair.source->stats().pieces_written, 20);
  EXPECT_GT(pair.target->stats().immediates_duplicate, 0);
}

TEST(SimEngine, PiecesLandInAnyOrderAndASeedRepeatsIt) {
  std::map<uint64_t, std::string> orders;
  for (const uint64_t seed : {1u, 2u, 1u}) {
    Pair pair(seed);
    std::string order;
    pair.fabric.SetWriteHook([&](SimNodeId, std::span<const std::byte> memory, auto) {
      order += std::to_string((memory.data() - pair.target_memory.data()) / 64) + " ";
    });
    ASSERT_TRUE(
        pair.source->Write(pair.peer, pair.local, pair.remote, pair.Pieces(16, 0), kNsPerS).ok());
    pair.Run(10 * kNsPerMs);
    ASSERT_NE(order, "15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0 ");
    ASSERT_EQ(orders.emplace(seed, order).first->second, order);
  }
  EXPECT_NE(orders.at(1), orders.at(2));
}

TEST(SimEngine, NothingLandsInAClosedRegion) {
  Pair pair(3);
  pair.Run(kNsPerMs);
  ASSERT_TRUE(
      pair.source->Write(pair.peer, pair.local, pair.remote, pair.Pieces(10, 0), kNsPerS).ok());
  pair.target->CloseRegion(pair.remote_region);  // with all pieces on their way
  pair.Run(100 * kNsPerMs);
  EXPECT_TRUE(pair.untouched());
  const auto ended = Pair::Of<TransferEnded>(pair.source_events);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].status.ok());
  EXPECT_EQ(pair.target->stats().immediates_unknown, 0) << "no immediate either";
}

TEST(SimEngine, ACancelledTransferPostsNoMore) {
  Pair pair(4, {}, {.pieces = 2});
  pair.Run(kNsPerMs);
  const auto transfer =
      pair.source->Write(pair.peer, pair.local, pair.remote, pair.Pieces(30, 0), kNsPerS);
  ASSERT_TRUE(transfer.ok());
  pair.source->Cancel(*transfer);
  pair.Run(100 * kNsPerMs);
  const auto ended = Pair::Of<TransferEnded>(pair.source_events);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].status.code(), StatusCode::kCancelled);
  EXPECT_EQ(pair.source->stats().pieces_written, 2) << "those that were posted are over";
}

TEST(SimEngine, LatePiecesOfAnEndedTransferStillLand) {
  Pair pair(5);
  pair.Run(kNsPerMs);
  pair.world.SetPartitioned(pair.source_node, pair.target_node, true);
  ASSERT_TRUE(pair.source
                  ->Write(pair.peer, pair.local, pair.remote, pair.Pieces(4, 0),
                          pair.world.now() + 10 * kNsPerMs)
                  .ok());
  pair.Run(20 * kNsPerMs);
  ASSERT_EQ(Pair::Of<TransferEnded>(pair.source_events).size(), 1u);
  EXPECT_TRUE(pair.untouched());
  pair.world.SetPartitioned(pair.source_node, pair.target_node, false);
  pair.Run(20 * kNsPerMs);
  EXPECT_FALSE(pair.untouched()) << "an error is no promise that nothing lands";
}

TEST(SimEngine, ADeadPeerFailsWhatIsOpen) {
  Pair pair(6);
  pair.Run(kNsPerMs);
  ASSERT_TRUE(
      pair.source->Write(pair.peer, pair.local, pair.remote, pair.Pieces(40, 0), kNsPerS).ok());
  pair.world.Kill(pair.target_node);
  pair.target.reset();
  pair.world.RunUntil(10 * kNsPerMs);
  pair.source->Poll(&pair.source_events);
  EXPECT_EQ(Pair::Of<TransferEnded>(pair.source_events).size(), 1u);
  const auto changed = Pair::Of<PeerChanged>(pair.source_events);
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed[1].state, PeerState::kDead);
  EXPECT_FALSE(
      pair.source->Write(pair.peer, pair.local, pair.remote, pair.Pieces(1, 0), kNsPerS).ok());
}

TEST(SimEngine, MessagesAndDeadlinesOfExpectations) {
  Pair pair(7);
  const PeerId back = *pair.target->AddPeer(pair.source->address());
  const std::vector<std::byte> text = {std::byte{1}, std::byte{2}};
  ASSERT_TRUE(pair.source->Send(pair.peer, text, kNsPerS).ok());
  const auto late = pair.target->Expect(3, 5 * kNsPerMs);
  ASSERT_TRUE(late.ok());
  pair.Run(20 * kNsPerMs);
  const auto messages = Pair::Of<MessageReceived>(pair.target_events);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].bytes, text);
  EXPECT_EQ(messages[0].peer, back);
  const auto ended = Pair::Of<ExpectationEnded>(pair.target_events);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].missing, 3u);
  EXPECT_FALSE(ended[0].status.ok());
}

TEST(SimWorld, AStoppedProcessDoesLaterWhatWasDue) {
  SimWorld world(8);
  const SimNodeId node = world.AddNode();
  std::vector<int> done;
  world.After(node, 10, [&] { done.push_back(1); });
  world.After(node, 20, [&] { done.push_back(2); });
  world.Stop(node);
  world.RunUntil(100);
  EXPECT_TRUE(done.empty());
  world.Continue(node);
  world.RunUntil(200);
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
  world.After(node, 10, [&] { done.push_back(3); });
  world.Kill(node);
  world.Restart(node);
  world.RunUntil(300);
  EXPECT_EQ(done.size(), 2u) << "that was due in another process's life";
}

}  // namespace
}  // namespace tandem
