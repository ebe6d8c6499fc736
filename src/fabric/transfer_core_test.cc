#include "fabric/transfer_core.h"

#include <gtest/gtest.h>

#include "fabric/testing/fake_nic.h"

namespace tandem {
namespace {

constexpr TimeNs kDeadline = 10 * kNsPerS;

class TransferCoreTest : public ::testing::Test {
 protected:
  TransferCoreTest() : memory_(4096) {
    std::vector<std::unique_ptr<Nic>> nics;
    for (FakeNic*& nic : nics_) {
      auto made = std::make_unique<FakeNic>("nic");
      nic = made.get();
      nics.push_back(std::move(made));
    }
    core_ = std::make_unique<TransferCore>(std::move(nics), TransferCore::Config{});
    EXPECT_TRUE(core_->Register(kLocal, memory_, nullptr).ok());
    EXPECT_TRUE(core_->Register(kRemote, memory_, &remote_).ok());
  }

  void AddPeer(PeerId peer) {
    EngineAddress address = core_->address();
    address.engine += peer.value();
    core_->AddPeer(peer, address, now_);
    Turn();
  }
  void Begin(uint64_t id, PeerId peer, uint32_t pieces, TimeNs deadline = kDeadline) {
    TransferCore::NewTransfer transfer;
    transfer.id = TransferId(id);
    transfer.peer = peer;
    transfer.local = kLocal;
    transfer.remote = remote_;
    transfer.pieces.resize(pieces, {0, 0, 64, 0});
    transfer.deadline = deadline;
    core_->Begin(std::move(transfer));
    Turn();
  }
  void Turn(TimeNs advance = 0) {
    now_ += advance;
    TransferCore::Output output;
    core_->Turn(now_, &output);
    core_->CheckIntegrity();
    for (const FabricEvent& event : output.events) {
      if (const auto* ended = std::get_if<TransferEnded>(&event)) {
        ended_[ended->transfer.value()].push_back(ended->status.code());
      } else if (const auto* changed = std::get_if<PeerChanged>(&event)) {
        states_.push_back(changed->state);
      }
    }
  }
  using Codes = std::vector<StatusCode>;

  static constexpr RegionId kLocal{1};
  static constexpr RegionId kRemote{2};
  static constexpr PeerId kPeer{1};
  static constexpr PeerId kOther{2};
  FakeNic* nics_[2] = {};
  std::unique_ptr<TransferCore> core_;
  std::vector<std::byte> memory_;
  RemoteRegion remote_;
  TimeNs now_ = 0;
  std::map<uint64_t, Codes> ended_;
  std::vector<PeerState> states_;
};

TEST_F(TransferCoreTest, PagesAreBalancedOverNicsAndEndInAnyOrder) {
  AddPeer(kPeer);
  EXPECT_EQ(states_, std::vector({PeerState::kUp}));
  Begin(1, kPeer, 100);
  SplitMix64 random(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_LE(nics_[0]->posts.size() > nics_[1]->posts.size()
                  ? nics_[0]->posts.size() - nics_[1]->posts.size()
                  : nics_[1]->posts.size() - nics_[0]->posts.size(),
              1u);
    for (FakeNic* nic : nics_) nic->EndAll(&random, OkStatus(), 1);
    Turn();
  }
  EXPECT_EQ(ended_[1], Codes{StatusCode::kOk});
}

TEST_F(TransferCoreTest, ErrorsThatComeTwiceEndATransferOnce) {
  AddPeer(kPeer);
  Begin(1, kPeer, 10);
  SplitMix64 random(3);
  for (FakeNic* nic : nics_) nic->EndAll(&random, UnavailableError("broken"), 3);
  Turn();
  EXPECT_EQ(ended_[1], Codes{StatusCode::kUnavailable});
  Begin(2, kPeer, 1);  // a slot is used again: stale errors must not hit it
  nics_[0]->End({NicLinkId(), 1 << 16, 0}, UnavailableError("stale"));
  nics_[0]->End({NicLinkId(), 0, 0}, UnavailableError("no context"));
  nics_[0]->End({NicLinkId(), UINT64_MAX >> 16, 0}, UnavailableError("foreign"));
  Turn();
  EXPECT_TRUE(ended_[2].empty());
}

TEST_F(TransferCoreTest, DeadlineTakesTheLinkDownAndThePeerComesBack) {
  AddPeer(kPeer);
  AddPeer(kOther);
  Begin(1, kPeer, 4, /*deadline=*/kNsPerS);
  const std::vector<FakeNic::Post> stuck = nics_[0]->posts;
  Begin(2, kOther, 2);
  Turn(2 * kNsPerS);
  EXPECT_EQ(ended_[1], Codes{StatusCode::kUnavailable});
  EXPECT_EQ(nics_[0]->closed, 1);
  for (const auto& post : stuck) nics_[0]->End(post, OkStatus());  // of the closed link
  Turn(kNsPerS);
  Turn();
  EXPECT_EQ(states_.back(), PeerState::kUp);
  EXPECT_TRUE(ended_[2].empty());  // another peer's goes on
  SplitMix64 random(3);
  for (FakeNic* nic : nics_) nic->EndAll(&random, OkStatus(), 1);
  Turn();
  EXPECT_EQ(ended_[2], Codes{StatusCode::kOk});
}

TEST_F(TransferCoreTest, SilentPeerDiesAndTakesItsTransfersAlong) {
  for (FakeNic* nic : nics_) nic->answers = false;
  AddPeer(kPeer);
  Begin(1, kPeer, 4);
  Turn(TransferCore::Config{}.connect_timeout);
  EXPECT_EQ(states_, std::vector({PeerState::kDead}));
  EXPECT_EQ(ended_[1], Codes{StatusCode::kUnavailable});
  Begin(2, kPeer, 1);
  EXPECT_EQ(ended_[2], Codes{StatusCode::kUnavailable});
}

TEST_F(TransferCoreTest, OneSilentNicIsLeftOut) {
  nics_[1]->answers = false;
  AddPeer(kPeer);
  EXPECT_TRUE(states_.empty());
  Turn(TransferCore::Config{}.connect_timeout);
  EXPECT_EQ(states_, std::vector({PeerState::kUp}));
  Begin(1, kPeer, 8);
  EXPECT_EQ(nics_[0]->posts.size(), 8u);
}

TEST_F(TransferCoreTest, PeerThatTakesNothingIsGivenUp) {
  AddPeer(kPeer);
  for (FakeNic* nic : nics_) nic->takes = false;
  Begin(1, kPeer, 4, /*deadline=*/100 * kNsPerS);
  Turn(TransferCore::Config{}.connect_timeout);
  EXPECT_EQ(ended_[1], Codes{StatusCode::kUnavailable});
}

TEST_F(TransferCoreTest, CancelPostsNothingMoreAndWaitsForWhatIsPosted) {
  AddPeer(kPeer);
  Begin(1, kPeer, 100);
  core_->Cancel(TransferId(1));
  Turn();
  EXPECT_TRUE(ended_[1].empty());
  EXPECT_EQ(nics_[0]->posts.size() + nics_[1]->posts.size(), 16u);
  SplitMix64 random(3);
  for (FakeNic* nic : nics_) nic->EndAll(&random, OkStatus(), 1);
  Turn();
  EXPECT_EQ(ended_[1], Codes{StatusCode::kCancelled});
  EXPECT_TRUE(nics_[0]->posts.empty());
}

TEST_F(TransferCoreTest, ClosedLocalRegionEndsItsReaders) {
  AddPeer(kPeer);
  Begin(1, kPeer, 4);
  core_->CloseRegion(kLocal);
  Turn();
  EXPECT_EQ(ended_[1], Codes{StatusCode::kCancelled});
}

TEST_F(TransferCoreTest, LostLinksFailTheirPostsAndAreOpenedAgain) {
  AddPeer(kPeer);
  Begin(1, kPeer, 4);
  for (FakeNic* nic : nics_) nic->LoseLinks();
  Turn();
  EXPECT_EQ(ended_[1], Codes{StatusCode::kUnavailable});
  EXPECT_EQ(states_.back(), PeerState::kConnecting);
  Turn(TransferCore::Config{}.reconnect_interval);
  Turn();
  EXPECT_EQ(states_.back(), PeerState::kUp);
  EXPECT_EQ(nics_[0]->opened, 2);
}

TEST_F(TransferCoreTest, RegionOfAnotherKindOfEngineIsRefused) {
  AddPeer(kPeer);
  remote_.nics.pop_back();
  Begin(1, kPeer, 1);
  EXPECT_EQ(ended_[1], Codes{StatusCode::kInvalidArgument});
}

}  // namespace
}  // namespace tandem
