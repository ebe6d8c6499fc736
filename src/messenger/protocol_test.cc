#include "messenger/protocol.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "messenger/control_link.h"
#include "messenger/testing/fake_state.h"
#include "messenger/testing/random_message.h"

namespace tandem {
namespace {

TEST(HandoffProtocol, EveryMessageSurvivesItsBytes) {
  testing::RandomMessages messages(3);
  std::set<size_t> kinds;
  for (int i = 0; i < 3000; ++i) {
    const HandoffMessage message = messages.Next();
    const std::string frame = EncodeMessage(message);
    auto decoded = DecodeMessage(frame);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    ASSERT_EQ(decoded->index(), message.index());
    ASSERT_EQ(EncodeMessage(*decoded), frame);
    kinds.insert(message.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<HandoffMessage>);
}

TEST(HandoffProtocol, FieldsComeBackAsTheyWere) {
  Prepare prepare{.id = HandoffId(9),
                  .budget = 5,
                  .tokens = {TokenId(4), TokenId(0), TokenId(151000)},
                  .have = 2,
                  .cache_salt = "tenant"};
  prepare.groups.push_back({.region = {.bytes = 4096, .nics = {{.base = 1, .key = 2}}},
                            .blocks = {BlockId(3), BlockId(1)}});
  prepare.expectations = {{0x01002000, 12}};
  auto decoded = DecodeMessage(EncodeMessage(prepare));
  ASSERT_TRUE(decoded.ok());
  const auto& back = std::get<Prepare>(*decoded);
  EXPECT_EQ(back.id, prepare.id);
  EXPECT_EQ(back.budget, 5);
  EXPECT_EQ(back.tokens, prepare.tokens);
  EXPECT_EQ(back.have, 2);
  EXPECT_EQ(back.cache_salt, "tenant");
  EXPECT_EQ(back.groups[0].region, prepare.groups[0].region);
  EXPECT_EQ(back.groups[0].blocks, prepare.groups[0].blocks);
  EXPECT_EQ(back.expectations[0].first, 0x01002000u);
  EXPECT_EQ(back.expectations[0].pieces, 12u);

  const Hello hello{.instance = 7,
                    .format = testing::FakeFormat(),
                    .fabric_address = "there",
                    .takes_jobs = true};
  decoded = DecodeMessage(EncodeMessage(hello));
  ASSERT_TRUE(decoded.ok());
  const auto& greeting = std::get<Hello>(*decoded);
  EXPECT_TRUE(CheckSameFormat(hello.format, greeting.format).ok());
  EXPECT_EQ(greeting.fabric_address, "there");
  EXPECT_EQ(greeting.instance, 7u);
  EXPECT_TRUE(greeting.takes_jobs);
}

// The fuzzing seeds are written by a script that knows the layout by itself.
TEST(HandoffProtocol, SeedsAreFrames) {
  const std::filesystem::path seeds = TANDEM_SOURCE_DIR "/tests/corpus/protocol_fuzz";
  int taken = 0;
  for (const auto& entry : std::filesystem::directory_iterator(seeds)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string frame((std::istreambuf_iterator<char>(file)), {});
    const std::string name = entry.path().filename();
    auto message = DecodeMessage(frame);
    EXPECT_EQ(message.ok(), !name.starts_with("bad_")) << name << message.status().ToString();
    taken += message.ok() ? 1 : 0;
  }
  EXPECT_GT(taken, 10);
}

// A damaged frame is refused, or it is another valid one: nothing in between.
TEST(HandoffProtocol, TakesNothingThatItDoesNotMake) {
  testing::RandomMessages messages(4);
  SplitMix64 random(9);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string frame = EncodeMessage(messages.Next());
    const std::string cut = frame.substr(0, random.Below(frame.size()));
    ASSERT_FALSE(DecodeMessage(cut).ok());
    ASSERT_FALSE(DecodeMessage(frame + '\0').ok());
    std::string damaged = frame;
    damaged[random.Below(damaged.size())] ^= static_cast<char>(1u << random.Below(8));
    auto decoded = DecodeMessage(damaged);
    if (decoded.ok()) {
      ASSERT_EQ(EncodeMessage(*decoded), damaged);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(HandoffProtocol, CountsPromiseNoMemoryThatIsNotThere) {
  // A prepare that promises a million tokens in 30 bytes.
  std::string frame = EncodeMessage(Prepare{.budget = 1});
  const size_t count_at = 1 + 8 + 8;
  frame[count_at + 2] = 0x10;
  EXPECT_EQ(DecodeMessage(frame).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeMessage("").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(DecodeMessage(std::string(1, 99)).status().code(), StatusCode::kDataLoss);
}

TEST(HandoffProtocol, AnotherVersionIsNamed) {
  std::string frame = EncodeMessage(Hello{.format = testing::FakeFormat()});
  frame[1 + 4] = 9;
  frame += "what a later version adds";
  const Status status = DecodeMessage(frame).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("version 9 there, 1 here"), std::string::npos);
  frame[1] ^= 1;  // not of this protocol at all
  EXPECT_EQ(DecodeMessage(frame).status().code(), StatusCode::kDataLoss);
}

TEST(HandoffProtocol, LongReasonsAreCut) {
  const Failed failed{HandoffId(1), StatusCode::kInternal, std::string(10000, 'x')};
  auto decoded = DecodeMessage(EncodeMessage(failed));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<Failed>(*decoded).reason.size(), kMaxReasonBytes);
}

TEST(HandoffProtocol, TheLargestRequestFitsAFrame) {
  Prepare prepare{.budget = 1};
  prepare.tokens.resize(kMaxHandoffTokens);
  prepare.cache_salt.assign(kMaxSaltBytes, 's');
  prepare.groups.resize(HandoffFormat::kMaxGroups);
  for (Prepare::Group& group : prepare.groups) {
    group.region.nics.resize(RemoteRegion::kMaxNics);
    for (RemoteRegion::Nic& nic : group.region.nics) {
      nic.endpoint.assign(RemoteRegion::kMaxEndpointBytes, 'e');
    }
  }
  prepare.groups[0].blocks.resize(kMaxHandoffPages);  // a block has a page at least
  prepare.expectations.resize(kMaxHandoffExpectations);
  const std::string frame = EncodeMessage(prepare);
  EXPECT_LE(frame.size(), ControlLink::kMaxFrameBytes);
  EXPECT_TRUE(DecodeMessage(frame).ok());
}

}  // namespace
}  // namespace tandem
