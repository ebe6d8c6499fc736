#include <gtest/gtest.h>

#include <thread>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/rng.h"
#include "base/status.h"

namespace tandem {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgumentError("{} is odd", x);
  return x / 2;
}

Result<int> Quarter(int x) {
  TANDEM_ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(Status, ErrorsTravelWithTheirMessage) {
  EXPECT_EQ(Quarter(8).value(), 2);
  const auto bad = Quarter(6);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().ToString(), "INVALID_ARGUMENT: 3 is odd");
  EXPECT_EQ(bad.status().WithContext("reading x").message(), "reading x: 3 is odd");
}

TEST(StatusDeathTest, ValueOfAnErrorAborts) { EXPECT_DEATH((void)Quarter(6).value(), "3 is odd"); }

// Known-answer vectors published with the algorithm (Random123's kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffffULL),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(UniformDouble, DependsOnEveryArgumentAndStaysInRange) {
  const double base = UniformDouble(1, 0, 5, 0);
  EXPECT_EQ(base, UniformDouble(1, 0, 5, 0));
  EXPECT_NE(base, UniformDouble(2, 0, 5, 0));
  EXPECT_NE(base, UniformDouble(1, 1, 5, 0));
  EXPECT_NE(base, UniformDouble(1, 0, 6, 0));
  EXPECT_NE(base, UniformDouble(1, 0, 5, 1));
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const double u = UniformDouble(7, 0, i, 0);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Hasher, PiecesHashAsTheWhole) {
  Hasher h;
  h.Update("hello ");
  h.Update("world");
  EXPECT_EQ(h.Digest(), HashBytes(std::as_bytes(std::span("hello world", 11))));
  EXPECT_EQ(h.Digest().ToHex().size(), 32u);
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> q(2);
  EXPECT_TRUE(q.TryPush(1));
  EXPECT_TRUE(q.TryPush(2));
  EXPECT_FALSE(q.TryPush(3));
  q.Close();
  EXPECT_EQ(q.TryPop(), 1);
  EXPECT_EQ(q.PopFor(kNsPerS), 2);
  EXPECT_EQ(q.PopFor(kNsPerS), std::nullopt);
  EXPECT_FALSE(q.TryPush(4));
}

TEST(BoundedQueue, WakesAWaitingThread) {
  BoundedQueue<int> q(1);
  std::thread producer([&] { EXPECT_TRUE(q.TryPush(42)); });
  std::optional<int> got;
  while (!got) got = q.PopFor(kNsPerS);
  producer.join();
  EXPECT_EQ(got, 42);
}

}  // namespace
}  // namespace tandem
