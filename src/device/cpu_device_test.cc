#include "device/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace tandem {
namespace {

std::unique_ptr<Stream> NewStream(int threads) {
  auto device = MakeCpuDevice({.num_threads = threads});
  auto stream = device->NewStream();
  TANDEM_CHECK(stream.ok());
  return std::move(stream).value();
}

// Counts how often each task ran.
struct CountArgs {
  std::atomic<int>* runs;
  int64_t num_tasks;
};
void Count(CpuTaskContext& context, const CountArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_tasks)) >= 0;) args.runs[t].fetch_add(1);
}

// Plain (unsynchronised) data: task t of command i reads all cells of command i-1's parity and
// writes its own. Wrong order or a missing barrier gives wrong sums, and a report under TSan.
struct ChainArgs {
  const int64_t* from;
  int64_t* to;
  int64_t num_tasks;
};
void Chain(CpuTaskContext& context, const ChainArgs& args) {
  for (int64_t t; (t = context.NextTask(args.num_tasks)) >= 0;) {
    int64_t sum = 0;
    for (int64_t i = 0; i < args.num_tasks; ++i) sum += args.from[i];
    args.to[t] = sum % 1000003 + t;
  }
}

struct SleepArgs {
  int milliseconds;
};
void Sleep(CpuTaskContext& context, const SleepArgs& args) {
  while (context.NextTask(1) >= 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(args.milliseconds));
  }
}

class CpuStreamTest : public testing::TestWithParam<int> {};

TEST_P(CpuStreamTest, RunsEveryTaskOnce) {
  auto stream = NewStream(GetParam());
  for (const int64_t num_tasks : {0, 1, 2, 3, 7, 100, 5000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks) + 1);
    AsCpu(*stream).Launch<CountArgs>(Count, {runs.data(), num_tasks});
    stream->Synchronize();
    for (int64_t t = 0; t < num_tasks; ++t) ASSERT_EQ(runs[static_cast<size_t>(t)].load(), 1);
    ASSERT_EQ(runs.back().load(), 0);
  }
}

TEST_P(CpuStreamTest, ACommandSeesAllThatTheOneBeforeWrote) {
  auto stream = NewStream(GetParam());
  for (const int64_t num_tasks : {1, 2, 5, 33}) {
    std::vector<int64_t> even(static_cast<size_t>(num_tasks), 1), odd(even), a(even), b(even);
    constexpr int kCommands = 3000;  // several times round the ring
    for (int i = 0; i < kCommands; ++i) {
      auto& from = i % 2 == 0 ? even : odd;
      auto& to = i % 2 == 0 ? odd : even;
      AsCpu(*stream).Launch<ChainArgs>(Chain, {from.data(), to.data(), num_tasks});
    }
    stream->Synchronize();
    for (int i = 0; i < kCommands; ++i) {
      const int64_t sum = std::accumulate(a.begin(), a.end(), int64_t{0});
      for (int64_t t = 0; t < num_tasks; ++t) b[static_cast<size_t>(t)] = sum % 1000003 + t;
      std::swap(a, b);
    }
    EXPECT_EQ(even, a);
  }
}

TEST_P(CpuStreamTest, AFullRingMakesTheHostWaitAndLosesNothing) {
  auto stream = NewStream(GetParam());
  std::atomic<int> runs{0};
  AsCpu(*stream).Launch<SleepArgs>(Sleep, {20});
  constexpr int kCommands = 5000;
  for (int i = 0; i < kCommands; ++i) AsCpu(*stream).Launch<CountArgs>(Count, {&runs, 1});
  stream->Synchronize();
  EXPECT_EQ(runs.load(), kCommands);
}

TEST_P(CpuStreamTest, HostCallsRunInOrderWithCommands) {
  auto stream = NewStream(GetParam());
  std::vector<int> order;
  std::atomic<int> runs{0};
  for (int i = 0; i < 50; ++i) {
    AsCpu(*stream).Launch<CountArgs>(Count, {&runs, 1});
    stream->EnqueueHostCall([&order, &runs] { order.push_back(runs.load()); });
  }
  stream->Synchronize();
  std::vector<int> expected(50);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_EQ(order, expected);
}

TEST_P(CpuStreamTest, CopiesInOrder) {
  auto stream = NewStream(GetParam());
  std::vector<uint8_t> a(3'000'001), b(a.size()), c(a.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint8_t>(i * 31 + i / 256);
  stream->EnqueueCopy(b.data(), a.data(), a.size());
  stream->EnqueueCopy(c.data(), b.data(), b.size());
  stream->EnqueueCopy(c.data(), b.data(), 0);
  stream->Synchronize();
  EXPECT_EQ(a, c);
}

TEST_P(CpuStreamTest, AnEventIsDoneWhenAllBeforeItIs) {
  auto device = MakeCpuDevice({.num_threads = GetParam()});
  auto stream = std::move(device->NewStream()).value();
  auto event = device->NewEvent();
  EXPECT_TRUE(event->Done());  // before the first Record
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> runs{0};
    AsCpu(*stream).Launch<SleepArgs>(Sleep, {10});
    AsCpu(*stream).Launch<CountArgs>(Count, {&runs, 1});
    stream->Record(*event);
    EXPECT_FALSE(event->Done());
    event->Wait();
    EXPECT_TRUE(event->Done());
    EXPECT_EQ(runs.load(), 1);
  }
}

TEST_P(CpuStreamTest, EventsEndTheirLifeRightAfterWait) {
  auto device = MakeCpuDevice({.num_threads = GetParam()});
  auto stream = std::move(device->NewStream()).value();
  for (int i = 0; i < 500; ++i) {
    auto event = device->NewEvent();
    stream->Record(*event);
    event->Wait();
  }
}

TEST_P(CpuStreamTest, ADestroyedStreamFinishesItsWorkFirst) {
  std::atomic<int> runs{0};
  {
    auto stream = NewStream(GetParam());
    AsCpu(*stream).Launch<SleepArgs>(Sleep, {5});
    for (int i = 0; i < 100; ++i) AsCpu(*stream).Launch<CountArgs>(Count, {&runs, 1});
  }
  EXPECT_EQ(runs.load(), 100);
}

INSTANTIATE_TEST_SUITE_P(Threads, CpuStreamTest, testing::Values(1, 2, 3, 8));

TEST(CpuStream, ALateThreadIsNotWaitedFor) {
  auto stream = NewStream(2);
  // One thread is held inside a task; the other must finish all other tasks of the command.
  struct Args {
    std::atomic<int>* others;
    std::atomic<bool>* timed_out;
  };
  std::atomic<int> others{0};
  std::atomic<bool> timed_out{false};
  AsCpu(*stream).Launch<Args>(
      [](CpuTaskContext& context, const Args& args) {
        for (int64_t t; (t = context.NextTask(100)) >= 0;) {
          if (t != 0) {
            args.others->fetch_add(1);
            continue;
          }
          for (int ms = 0; args.others->load() < 99; ++ms) {
            if (ms > 10'000) {
              args.timed_out->store(true);
              break;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }
      },
      {&others, &timed_out});
  stream->Synchronize();
  EXPECT_FALSE(timed_out.load());
}

TEST(CpuStream, TwoStreamsRunSideBySide) {
  auto device = MakeCpuDevice({.num_threads = 2});
  auto a = std::move(device->NewStream()).value();
  auto b = std::move(device->NewStream()).value();
  auto wait_in_a = device->NewEvent();
  std::atomic<bool> released{false};
  a->EnqueueHostCall([&released] {
    while (!released.load()) std::this_thread::yield();
  });
  a->Record(*wait_in_a);
  std::atomic<int> runs{0};
  for (int i = 0; i < 2000; ++i) AsCpu(*b).Launch<CountArgs>(Count, {&runs, 1});
  b->Synchronize();  // does not need `a` to go on
  EXPECT_EQ(runs.load(), 2000);
  EXPECT_FALSE(wait_in_a->Done());
  released.store(true);
  wait_in_a->Wait();
}

TEST(CpuStream, AnIdleTeamUsesNoProcessorTime) {
  auto stream = NewStream(4);
  stream->Synchronize();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the spinning
  const auto cpu_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto ms = [](const timeval& t) { return t.tv_sec * 1000.0 + t.tv_usec / 1000.0; };
    return ms(usage.ru_utime) + ms(usage.ru_stime);
  };
  const double before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_ms() - before, 20.0);
}

TEST(CpuStream, MoreThreadsThanProcessorsStillFinish) {
  auto stream = NewStream(16);
  std::vector<int64_t> a(64, 1), b(64, 1);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) {
    AsCpu(*stream).Launch<ChainArgs>(Chain, {a.data(), b.data(), 64});
  }
  stream->Synchronize();
  // With a barrier that waits for every thread this takes tens of seconds on two processors.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(CpuDevice, AlignsCountsAndFrees) {
  auto device = MakeCpuDevice({.num_threads = 1});
  {
    auto small = std::move(device->Allocate(100, MemoryTerm::kActivations)).value();
    auto large = std::move(device->Allocate(5 << 20, MemoryTerm::kKv)).value();
    auto empty = std::move(device->Allocate(0, MemoryTerm::kRuntime)).value();
    EXPECT_EQ(reinterpret_cast<size_t>(small.data()) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<size_t>(large.data()) % 4096, 0u);
    EXPECT_NE(empty.data(), nullptr);
    std::memset(small.data(), 1, 100);
    std::memset(large.data(), 1, 5 << 20);
    EXPECT_GE(device->memory().bytes(MemoryTerm::kKv), 5 << 20);
    Buffer moved = std::move(large);
    EXPECT_GE(device->memory().bytes(MemoryTerm::kKv), 5 << 20);
  }
  for (const auto term : {MemoryTerm::kActivations, MemoryTerm::kKv, MemoryTerm::kRuntime}) {
    EXPECT_EQ(device->memory().bytes(term), 0);
  }
}

TEST(CpuDevice, RefusesWhatDoesNotFitByNameAndSize) {
  auto device = MakeCpuDevice({.num_threads = 1});
  for (const size_t bytes : {size_t{1} << 46, ~size_t{0}}) {
    const auto buffer = device->Allocate(bytes, MemoryTerm::kKv);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(
        buffer.status().message(),
        testing::AllOf(testing::HasSubstr("M_KV"), testing::HasSubstr(std::to_string(bytes))));
  }
}

TEST(CpuDevice, RefusesImpossibleTeams) {
  const auto code = [](const CpuDeviceOptions& options) {
    return MakeCpuDevice(options)->NewStream().status().code();
  };
  EXPECT_EQ(code({.num_threads = -1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.num_threads = 100000}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.num_threads = 2, .pin_to = {0}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.num_threads = 1, .pin_to = {-1}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.num_threads = 1, .pin_to = {1000}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.num_threads = 1, .pin_to = {1 << 20}}), StatusCode::kInvalidArgument);
}

TEST(CpuDevice, DefaultsToTheUsableProcessors) {
  auto stream = std::move(MakeCpuDevice({})->NewStream()).value();
  EXPECT_GE(AsCpu(*stream).num_threads(), 1);
}

}  // namespace
}  // namespace tandem
