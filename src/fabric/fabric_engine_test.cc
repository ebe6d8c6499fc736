#include "fabric/fabric_engine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <numeric>
#include <random>

#include "fabric/testing/engine_driver.h"

namespace tandem {
namespace {

constexpr std::byte kCanary{0xcc};
constexpr uint32_t kPage = 4096;
constexpr uint32_t kGap = 64;  // between pages of the target

class Engines : public ::testing::TestWithParam<Way> {
 protected:
  Engines() : writer_(ConfigOf(GetParam())), reader_(ConfigOf(GetParam())) {}

  // Memory on both sides, and the peer.
  void SetUpMemory(size_t source_bytes, size_t target_bytes) {
    source_.resize(source_bytes);
    target_.assign(target_bytes, kCanary);
    std::mt19937 random(7);
    for (std::byte& b : source_) b = static_cast<std::byte>(random());
    auto local = writer_.engine().RegisterLocal(source_);
    ASSERT_TRUE(local.ok()) << local.status().ToString();
    local_ = *local;
    auto region = reader_.engine().RegisterRemote(target_, &remote_);
    ASSERT_TRUE(region.ok()) << region.status().ToString();
    region_ = *region;
    auto peer = writer_.engine().AddPeer(reader_.engine().address());
    ASSERT_TRUE(peer.ok()) << peer.status().ToString();
    peer_ = *peer;
  }

  TransferId Write(std::span<const WritePiece> pieces, TimeNs time = kPatience) {
    auto id = writer_.engine().Write(peer_, local_, remote_, pieces, writer_.Now() + time);
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    return id.ok() ? *id : TransferId();
  }

  bool TargetIsUntouched() const {
    return std::all_of(target_.begin(), target_.end(), [](std::byte b) { return b == kCanary; });
  }

  EngineDriver writer_;
  EngineDriver reader_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  RemoteRegion remote_;
  RegionId local_;
  RegionId region_;
  PeerId peer_;
};

INSTANTIATE_TEST_SUITE_P(All, Engines, ::testing::ValuesIn(AllWays()),
                         [](const auto& way) { return way.param.name; });

TEST_P(Engines, PermutedPagesLandWholeAndAreCountedOnce) {
  constexpr uint32_t kPages = 1000;
  SetUpMemory(size_t{kPages} * kPage, size_t{kPages} * (kPage + kGap));
  uint32_t counted = 0;
  for (const uint32_t pages : {1u, 10u, 100u, 1000u}) {
    std::fill(target_.begin(), target_.end(), kCanary);
    std::vector<uint32_t> from(kPages);
    std::iota(from.begin(), from.end(), 0u);
    std::vector<uint32_t> to = from;
    std::mt19937 random(pages);
    std::shuffle(from.begin(), from.end(), random);
    std::shuffle(to.begin(), to.end(), random);
    auto expected = reader_.engine().Expect(pages, reader_.Now() + kPatience);
    ASSERT_TRUE(expected.ok());
    std::vector<WritePiece> pieces;
    for (uint32_t i = 0; i < pages; ++i) {
      pieces.push_back({uint64_t{from[i]} * kPage, uint64_t{to[i]} * (kPage + kGap), kPage,
                        expected->first + i});
    }
    const TransferId transfer = Write(pieces);
    ASSERT_TRUE(reader_.UntilMet(*expected));
    EXPECT_TRUE(writer_.EndOf(transfer).ok());
    std::vector<std::byte> want(target_.size(), kCanary);
    for (const WritePiece& piece : pieces) {
      std::memcpy(&want[piece.remote_offset], &source_[piece.local_offset], piece.bytes);
    }
    EXPECT_TRUE(want == target_) << pages << " pages";
    reader_.engine().Drained(expected->first);
    counted += pages;
  }
  reader_.Rest(20 * kNsPerMs);
  const FabricStats stats = reader_.engine().stats();
  EXPECT_EQ(stats.expectations_met, 4);
  EXPECT_EQ(stats.immediates_stale + stats.immediates_duplicate + stats.immediates_unknown, 0);
  EXPECT_EQ(writer_.engine().stats().pieces_written, counted);
  EXPECT_TRUE(reader_.messages().empty());
}

TEST_P(Engines, PiecesOfAnySizeAndImmediatesAlone) {
  SetUpMemory(8 << 20, 8 << 20);
  auto expected = reader_.engine().Expect(4, reader_.Now() + kPatience);
  ASSERT_TRUE(expected.ok());
  const WritePiece pieces[] = {{5, 3, 5 << 20, expected->first},
                               {0, 6 << 20, 1, expected->first + 1},
                               {9, 0, 0, expected->first + 2},
                               {1, 7 << 20, 777, expected->first + 3}};
  EXPECT_TRUE(writer_.EndOf(Write(pieces)).ok());
  ASSERT_TRUE(reader_.UntilMet(*expected));
  std::vector<std::byte> want(target_.size(), kCanary);
  for (const WritePiece& piece : pieces) {
    std::memcpy(&want[piece.remote_offset], &source_[piece.local_offset], piece.bytes);
  }
  EXPECT_TRUE(want == target_);
}

TEST_P(Engines, PeerComesUpByItselfAndMessagesArriveWhole) {
  SetUpMemory(kPage, kPage);
  EXPECT_TRUE(writer_.UntilState(peer_, PeerState::kUp));
  auto back = reader_.engine().AddPeer(writer_.engine().address());
  ASSERT_TRUE(back.ok());
  std::vector<std::byte> message(TransferEngine::kMaxMessageBytes, std::byte{7});
  for (const size_t size : {size_t{0}, size_t{1}, message.size()}) {
    auto sent =
        writer_.engine().Send(peer_, std::span(message).first(size), writer_.Now() + kPatience);
    ASSERT_TRUE(sent.ok());
    EXPECT_TRUE(writer_.EndOf(*sent).ok());
    ASSERT_TRUE(reader_.Until([&] { return reader_.messages().size() == 1; }));
    EXPECT_EQ(reader_.messages()[0].peer, *back);
    EXPECT_EQ(reader_.messages()[0].bytes, std::vector(message.begin(), message.begin() + size));
    reader_.messages().clear();
  }
  message.push_back({});
  EXPECT_EQ(writer_.engine().Send(peer_, message, writer_.Now() + kPatience).status().code(),
            StatusCode::kInvalidArgument);
}

// Fails when writes are posted without FI_DELIVERY_COMPLETE: the provider then reports success.
TEST_P(Engines, BadKeyFailsOnceAndNothingLands) {
  SetUpMemory(kPage, kPage);
  auto expected = reader_.engine().Expect(1, reader_.Now() + kPatience);
  ASSERT_TRUE(expected.ok());
  const RemoteRegion good = remote_;
  for (RemoteRegion::Nic& nic : remote_.nics) nic.key ^= 1;
  const WritePiece piece[] = {{0, 0, kPage, expected->first}};
  const TransferId bad = Write(piece);
  EXPECT_FALSE(writer_.EndOf(bad).ok());
  writer_.Rest(50 * kNsPerMs);
  EXPECT_EQ(writer_.times_ended(bad), 1u);
  EXPECT_TRUE(TargetIsUntouched());
  EXPECT_TRUE(reader_.ends_of(*expected).empty());
  remote_ = good;
  EXPECT_TRUE(writer_.EndOf(Write(piece)).ok());  // the peer is still served
  EXPECT_TRUE(reader_.UntilMet(*expected));
}

TEST_P(Engines, RangeThatTheOwnerDoesNotHaveFailsOnceAndNothingLands) {
  SetUpMemory(kPage, kPage);
  auto expected = reader_.engine().Expect(1, reader_.Now() + kPatience);
  ASSERT_TRUE(expected.ok());
  remote_.bytes += kPage;  // a lie
  const WritePiece piece[] = {{0, 1, kPage, expected->first}};
  const TransferId bad = Write(piece);
  EXPECT_FALSE(writer_.EndOf(bad).ok());
  writer_.Rest(50 * kNsPerMs);
  EXPECT_EQ(writer_.times_ended(bad), 1u);
  EXPECT_TRUE(TargetIsUntouched());
  EXPECT_TRUE(reader_.ends_of(*expected).empty());
}

TEST_P(Engines, ClosedRegionFailsOnceAndNothingLands) {
  SetUpMemory(kPage, kPage);
  auto expected = reader_.engine().Expect(2, reader_.Now() + kPatience);
  ASSERT_TRUE(expected.ok());
  const WritePiece first[] = {{0, 0, kPage, expected->first}};
  EXPECT_TRUE(writer_.EndOf(Write(first)).ok());
  reader_.engine().CloseRegion(region_);
  std::fill(target_.begin(), target_.end(), kCanary);
  const WritePiece second[] = {{0, 0, kPage, expected->first + 1}};
  const TransferId bad = Write(second, /*time=*/300 * kNsPerMs);
  EXPECT_FALSE(writer_.EndOf(bad).ok());
  writer_.Rest(50 * kNsPerMs);
  EXPECT_EQ(writer_.times_ended(bad), 1u);
  EXPECT_TRUE(TargetIsUntouched());
  EXPECT_TRUE(reader_.ends_of(*expected).empty());
}

// Large writes, closed in the middle: the rest of one that is half written must not land either.
TEST_P(Engines, CloseRegionStopsBytesInFlight) {
  constexpr uint32_t kLarge = 32 << 20;
  SetUpMemory(kLarge, kLarge);
  EXPECT_TRUE(writer_.UntilState(peer_, PeerState::kUp));
  for (int round = 0; round < 6; ++round) {
    std::fill(target_.begin(), target_.end(), kCanary);
    const WritePiece pieces[] = {{0, 0, kLarge, 0}, {0, 0, kLarge, 1}};
    const TransferId transfer = Write(pieces, /*time=*/2 * kNsPerS);
    EXPECT_TRUE(reader_.Until([&] {  // it has begun
      return *const_cast<volatile std::byte*>(&target_[round * 512 * 1024]) != kCanary;
    }));
    reader_.engine().CloseRegion(region_);
    std::fill(target_.begin(), target_.end(), kCanary);
    (void)writer_.EndOf(transfer);
    reader_.Rest(30 * kNsPerMs);
    EXPECT_TRUE(TargetIsUntouched()) << "round " << round;
    auto again = reader_.engine().RegisterRemote(target_, &remote_);
    ASSERT_TRUE(again.ok());
    region_ = *again;
  }
}

TEST_P(Engines, ArgumentsOutsideTheRegionsAreRefused) {
  SetUpMemory(kPage, kPage);
  const auto status = [&](WritePiece piece) {
    return writer_.engine()
        .Write(peer_, local_, remote_, {&piece, 1}, writer_.Now() + kPatience)
        .status()
        .code();
  };
  EXPECT_EQ(status({1, 0, kPage, 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({0, 1, kPage, 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({UINT64_MAX, 0, 1, 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(status({0, UINT64_MAX, 1, 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer_.engine().AddPeer("nonsense").status().code(), StatusCode::kInvalidArgument);
}

TEST_P(Engines, CancelEndsOnce) {
  SetUpMemory(kPage, kPage);
  EXPECT_TRUE(writer_.UntilState(peer_, PeerState::kUp));
  std::vector<WritePiece> pieces(50'000, {0, 0, kPage, 0});
  const TransferId transfer = Write(pieces);
  writer_.engine().Cancel(transfer);
  EXPECT_EQ(writer_.EndOf(transfer).code(), StatusCode::kCancelled);
  writer_.engine().Cancel(transfer);
  writer_.Rest(20 * kNsPerMs);
  EXPECT_EQ(writer_.times_ended(transfer), 1u);
  EXPECT_LT(writer_.engine().stats().pieces_written, 50'000);
}

TEST_P(Engines, RemovedPeerEndsItsTransfersAndMayBeAddedAgain) {
  SetUpMemory(kPage, kPage);
  std::vector<WritePiece> pieces(50'000, {0, 0, kPage, 0});
  const TransferId transfer = Write(pieces);
  writer_.engine().RemovePeer(peer_);
  EXPECT_EQ(writer_.EndOf(transfer).code(), StatusCode::kCancelled);
  const TransferId later = Write(std::span(pieces).first(1));
  EXPECT_FALSE(writer_.EndOf(later).ok());
  auto again = writer_.engine().AddPeer(reader_.engine().address());
  ASSERT_TRUE(again.ok());
  EXPECT_NE(*again, peer_);
  peer_ = *again;
  EXPECT_TRUE(writer_.EndOf(Write(std::span(pieces).first(1))).ok());
}

TEST_P(Engines, ExpectationThatIsLateSaysWhatIsMissing) {
  SetUpMemory(kPage, kPage);
  auto expected = reader_.engine().Expect(3, reader_.Now() + 200 * kNsPerMs);
  ASSERT_TRUE(expected.ok());
  const WritePiece piece[] = {{0, 0, kPage, expected->first + 1}};
  EXPECT_TRUE(writer_.EndOf(Write(piece)).ok());
  ASSERT_TRUE(reader_.Until([&] { return !reader_.ends_of(*expected).empty(); }));
  EXPECT_FALSE(reader_.ends_of(*expected)[0].status.ok());
  EXPECT_EQ(reader_.ends_of(*expected)[0].missing, 2u);
  EXPECT_TRUE(writer_.EndOf(Write(piece)).ok());
  EXPECT_TRUE(reader_.Until([&] { return reader_.engine().stats().immediates_stale == 1; }));
  EXPECT_EQ(reader_.engine().stats().expectations_late, 1);
}

TEST_P(Engines, UnreachablePeerDiesAndOthersAreServed) {
  FabricEngine::Config config = ConfigOf(GetParam());
  config.core.connect_timeout = 400 * kNsPerMs;
  EngineDriver impatient(config);
  std::string gone;
  {
    EngineDriver other(ConfigOf(GetParam()));
    gone = other.engine().address();
  }
  SetUpMemory(kPage, kPage);
  auto local = impatient.engine().RegisterLocal(source_);
  ASSERT_TRUE(local.ok());
  auto dead = impatient.engine().AddPeer(gone);
  auto alive = impatient.engine().AddPeer(reader_.engine().address());
  ASSERT_TRUE(dead.ok() && alive.ok());
  const WritePiece piece[] = {{0, 0, kPage, 0}};
  auto to_dead =
      impatient.engine().Write(*dead, *local, remote_, piece, impatient.Now() + kPatience);
  auto soon =
      impatient.engine().Write(*dead, *local, remote_, piece, impatient.Now() + 100 * kNsPerMs);
  auto to_alive =
      impatient.engine().Write(*alive, *local, remote_, piece, impatient.Now() + kPatience);
  ASSERT_TRUE(to_dead.ok() && to_alive.ok() && soon.ok());
  EXPECT_TRUE(impatient.EndOf(*to_alive).ok());
  EXPECT_EQ(impatient.EndOf(*soon).code(), StatusCode::kUnavailable);
  EXPECT_EQ(impatient.EndOf(*to_dead).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(impatient.UntilState(*dead, PeerState::kDead));
  EXPECT_EQ(impatient.engine().stats().peers_dead, 1);
  auto later = impatient.engine().Write(*dead, *local, remote_, piece, impatient.Now() + kPatience);
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(impatient.EndOf(*later).code(), StatusCode::kUnavailable);
}

TEST_P(Engines, IdleWorkersSleep) {
  SetUpMemory(kPage, kPage);
  EXPECT_TRUE(writer_.UntilState(peer_, PeerState::kUp));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto cpu_ns = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    const auto ns = [](const timeval& t) { return t.tv_sec * kNsPerS + t.tv_usec * kNsPerUs; };
    return ns(usage.ru_utime) + ns(usage.ru_stime);
  };
  const TimeNs before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  // Two engines; measured 0.1 %. A worker that polls takes 500 ms.
  EXPECT_LT(cpu_ns() - before, 50 * kNsPerMs);
}

TEST_P(Engines, WakeIsCalledForEvents) {
  SetUpMemory(kPage, kPage);
  std::atomic<int> wakes{0};
  reader_.engine().SetWake([&] { ++wakes; });
  auto expected = reader_.engine().Expect(1, reader_.Now() + kPatience);
  ASSERT_TRUE(expected.ok());
  const WritePiece piece[] = {{0, 0, kPage, expected->first}};
  EXPECT_TRUE(writer_.EndOf(Write(piece)).ok());
  const TimeNs end = reader_.Now() + kPatience;
  while (wakes == 0 && reader_.Now() < end) std::this_thread::yield();
  EXPECT_GE(wakes, 1);
  EXPECT_TRUE(reader_.UntilMet(*expected));
}

TEST(FabricEngine, PrefersTheSameHostWhereThereIsBoth) {
  FabricEngine::Config config;
  config.hosts = {"127.0.0.1"};
  EngineDriver writer(config);
  EngineDriver reader(config);
  std::vector<std::byte> memory(kPage);
  RemoteRegion remote;
  auto local = writer.engine().RegisterLocal(memory);
  ASSERT_TRUE(local.ok() && reader.engine().RegisterRemote(memory, &remote).ok());
  ASSERT_EQ(remote.nics.size(), 2u);
  auto peer = writer.engine().AddPeer(reader.engine().address());
  ASSERT_TRUE(peer.ok());
  // Only the way through memory takes this: the network's key is wrong.
  remote.nics[1].key ^= 1;
  const WritePiece piece[] = {{0, 0, kPage, 0}};
  auto id = writer.engine().Write(*peer, *local, remote, piece, writer.Now() + kPatience);
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(writer.EndOf(*id).ok());
}

TEST(FabricEngine, InterfaceThatIsNotOursIsRefused) {
  FabricEngine::Config config;
  config.hosts = {"192.0.2.77"};
  EXPECT_FALSE(FabricEngine::Create(config).ok());
  config.hosts.clear();
  config.same_host = false;
  EXPECT_EQ(FabricEngine::Create(config).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
