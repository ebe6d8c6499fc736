// What happens to an engine when the process at the other end dies, stops or comes back.
#include <gtest/gtest.h>
#include <signal.h>

#include "fabric/testing/child_process.h"

namespace tandem {
namespace {

constexpr uint32_t kPage = 64 << 10;
constexpr size_t kMemory = 64 * size_t{kPage};
constexpr uint8_t kOld = 0x11;  // what the target holds
constexpr uint8_t kNew = 0x22;  // what is written

class PeerProcesses : public ::testing::TestWithParam<Way> {
 protected:
  PeerProcesses() : driver_(ConfigOf(GetParam())), source_(kMemory, std::byte{kNew}) {
    local_ = driver_.engine().RegisterLocal(source_).value();
  }

  TransferId Write(PeerId peer, const RemoteRegion& remote, size_t pages, TimeNs time,
                   Immediate first = 0) {
    std::vector<WritePiece> pieces;
    for (size_t i = 0; i < pages; ++i) {
      const uint64_t at = i * kPage % kMemory;
      pieces.push_back({at, at, kPage, first + static_cast<Immediate>(i)});
    }
    return driver_.engine().Write(peer, local_, remote, pieces, driver_.Now() + time).value();
  }

  // A write to a peer that is fine is delivered and counted.
  void ExpectServed(PeerId peer, ChildProcess* child, const RemoteRegion& remote) {
    const Expectation expectation = child->Expect(10);
    EXPECT_TRUE(driver_.EndOf(Write(peer, remote, 10, kPatience, expectation.first)).ok());
    EXPECT_TRUE(child->UntilMet(expectation));
  }

  EngineDriver driver_;
  std::vector<std::byte> source_;
  RegionId local_;
};

INSTANTIATE_TEST_SUITE_P(All, PeerProcesses, ::testing::ValuesIn(AllWays()),
                         [](const auto& way) { return way.param.name; });

TEST_P(PeerProcesses, KilledTargetEndsItsTransfersAndDisturbsNobody) {
  ChildProcess healthy(GetParam(), kMemory, kOld);
  const RemoteRegion healthy_region = healthy.Register();
  const PeerId healthy_peer = driver_.engine().AddPeer(healthy.address()).value();
  auto victim = std::make_unique<ChildProcess>(GetParam(), kMemory, kOld);
  const RemoteRegion region = victim->Register();
  const PeerId peer = driver_.engine().AddPeer(victim->address()).value();
  ASSERT_TRUE(driver_.UntilState(peer, PeerState::kUp));
  ASSERT_TRUE(driver_.UntilState(healthy_peer, PeerState::kUp));

  std::vector<TransferId> doomed;
  for (int i = 0; i < 20; ++i) doomed.push_back(Write(peer, region, 1000, kPatience));
  ASSERT_TRUE(driver_.Until([&] { return driver_.engine().stats().pieces_written > 50; }));
  victim->Kill();
  const TimeNs killed = driver_.Now();
  int failed = 0;
  for (const TransferId id : doomed) failed += driver_.EndOf(id).ok() ? 0 : 1;
  EXPECT_GE(failed, 15);
  // All of them by the loss of the connection or, for those not begun, of the peer: 3 s.
  EXPECT_LT(driver_.Now() - killed, 15 * kNsPerS);
  for (const TransferId id : doomed) EXPECT_EQ(driver_.times_ended(id), 1u);
  ExpectServed(healthy_peer, &healthy, healthy_region);
  EXPECT_TRUE(driver_.UntilState(peer, PeerState::kDead));
  EXPECT_EQ(driver_.states(healthy_peer), std::vector({PeerState::kUp}));

  driver_.engine().RemovePeer(peer);
  ChildProcess restarted(GetParam(), kMemory, kOld);
  const RemoteRegion new_region = restarted.Register();
  const PeerId new_peer = driver_.engine().AddPeer(restarted.address()).value();
  ExpectServed(new_peer, &restarted, new_region);
  // What is addressed to the dead one reaches nobody.
  const TransferId stale = Write(new_peer, region, 1, 500 * kNsPerMs);
  EXPECT_FALSE(driver_.EndOf(stale).ok());
}

TEST_P(PeerProcesses, StoppedTargetFailsAtTheDeadlineAndItsClosedRegionStaysAsItIs) {
  ChildProcess target(GetParam(), kMemory, kOld);
  const RemoteRegion region = target.Register();
  const PeerId peer = driver_.engine().AddPeer(target.address()).value();
  ASSERT_TRUE(driver_.EndOf(Write(peer, region, 1, kPatience)).ok());
  target.Fill(kOld);
  target.Signal(SIGSTOP);
  constexpr TimeNs kDeadline = 400 * kNsPerMs;
  const TimeNs begun = driver_.Now();
  const TransferId transfer = Write(peer, region, 2000, kDeadline);
  EXPECT_EQ(driver_.EndOf(transfer).code(), StatusCode::kUnavailable);
  EXPECT_GE(driver_.Now() - begun, kDeadline);
  EXPECT_LT(driver_.Now() - begun, 20 * kDeadline);
  // Its memory belongs to this process again: what the target may still read does not count.
  std::fill(source_.begin(), source_.end(), std::byte{0x33});
  target.Signal(SIGCONT);
  target.CloseRegion();
  target.Fill(kOld);  // the pages have a new owner
  driver_.Rest(100 * kNsPerMs);
  EXPECT_EQ(target.CountBytes(kOld), kMemory);
  std::fill(source_.begin(), source_.end(), std::byte{kNew});
  ASSERT_TRUE(driver_.UntilState(peer, PeerState::kUp));
  ExpectServed(peer, &target, target.Register());
}

TEST_P(PeerProcesses, KilledWriterLeavesTheTargetIntact) {
  EngineDriver target(ConfigOf(GetParam()));
  std::vector<std::byte> memory(kMemory, std::byte{kOld});
  RemoteRegion remote;
  const RegionId region = target.engine().RegisterRemote(memory, &remote).value();
  for (int round = 0; round < 3; ++round) {
    ChildProcess writer(GetParam(), kMemory, kNew);
    writer.StartWriting(target.engine().address(), remote, 1 << 20);
    ASSERT_TRUE(target.Until([&] { return target.engine().stats().immediates_unknown > 10; }));
    writer.Kill();
    target.Poll();
    const int64_t counted = target.engine().stats().immediates_unknown;
    target.Rest(50 * kNsPerMs);
    std::fill(memory.begin(), memory.end(), std::byte{kOld});
    target.Rest(50 * kNsPerMs);
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{kOld}),
              static_cast<ptrdiff_t>(kMemory));
    // What was in flight at the kill, and no more.
    EXPECT_LE(target.engine().stats().immediates_unknown, counted + 300);
  }
  // Others are served.
  const PeerId self = driver_.engine().AddPeer(target.engine().address()).value();
  EXPECT_TRUE(driver_.EndOf(Write(self, remote, 1, kPatience)).ok());
  target.engine().CloseRegion(region);
}

TEST_P(PeerProcesses, StoppedWriterCannotWriteIntoAClosedRegionLater) {
  EngineDriver target(ConfigOf(GetParam()));
  std::vector<std::byte> memory(kMemory, std::byte{kOld});
  for (int round = 0; round < 3; ++round) {
    RemoteRegion remote;
    const RegionId region = target.engine().RegisterRemote(memory, &remote).value();
    ChildProcess writer(GetParam(), kMemory, kNew);
    writer.StartWriting(target.engine().address(), remote, 4 << 20);
    ASSERT_TRUE(target.Until([&] { return target.engine().stats().immediates_unknown > 3; }));
    writer.Signal(SIGSTOP);
    target.engine().CloseRegion(region);
    std::fill(memory.begin(), memory.end(), std::byte{kOld});
    writer.Signal(SIGCONT);
    target.Rest(100 * kNsPerMs);
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{kOld}),
              static_cast<ptrdiff_t>(kMemory));
  }
}

}  // namespace
}  // namespace tandem
