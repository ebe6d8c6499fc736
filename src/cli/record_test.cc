// The event log on its way into a file.
#include "cli/record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "os/fault_file_system.h"
#include "os/test_dir.h"
#include "plan/replay.h"

namespace tandem {
namespace {

class NoExecutor final : public StepExecutor {
 public:
  ExecutorLimits limits() const override { return {4, 2}; }
  Status Submit(const StepPlan&) override { return UnavailableError("never"); }
  bool Poll(StepResult*) override { return false; }
  void SetOnFinished(std::function<void()>) override {}
};

LogHeader SmallHeader() {
  LogHeader header;
  header.config.groups = {{.group = {.layers = {0},
                                     .num_heads = 1,
                                     .planes = {{"kv", DType::kF32, TileLayout::kTokenMajor, 1}},
                                     .tokens_per_block = 4},
                           .num_blocks = 10}};
  header.config.context_length = 32;
  header.config.vocab_size = 50;
  header.config.max_running = 4;
  return header;
}

struct Replayed {
  int64_t events = -1;
  bool cut_off = false;
};

Result<Replayed> ReplayFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string bytes,
                          ReadSmallFile(RealFileSystem(), path, size_t{1} << 24));
  TANDEM_ASSIGN_OR_RETURN(const auto log,
                          EventLogReader::Open([&](int64_t offset, std::span<std::byte> out) {
                            const size_t at = std::min(static_cast<size_t>(offset), bytes.size());
                            const size_t size = std::min(out.size(), bytes.size() - at);
                            std::memcpy(out.data(), bytes.data() + at, size);
                            return Result<size_t>(size);
                          }));
  TANDEM_ASSIGN_OR_RETURN(const ReplayReport report, Replay(log.get()));
  return Replayed{report.events, report.cut_off};
}

EngineEvent Cancel(uint64_t id) { return {static_cast<TimeNs>(id), CancelEvent{RequestId(id)}}; }

TEST(EventLogFile, IsWrittenWhileTheRunGoesOnAndEndsWithIt) {
  const TestDir dir;
  const std::string path = dir.path() + "/log";
  NoExecutor executor;
  auto log = EventLogFile::Create(RealFileSystem(), path, SmallHeader(), &executor).value();
  for (uint64_t id = 1; id <= 100; ++id) log->recorder()->OnEvent(Cancel(id), StatusCode::kOk);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Result<Replayed> report = ReplayFile(path);
  while (report.ok() && report->events < 100 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    report = ReplayFile(path);
  }
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->events, 100) << "what a killed process leaves";
  EXPECT_TRUE(report->cut_off);
  log->recorder()->OnEvent(Cancel(101), StatusCode::kOk);
  log.reset();
  report = ReplayFile(path);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->events, 101);
  EXPECT_FALSE(report->cut_off);
}

TEST(EventLogFile, NeverReplacesAFile) {
  const TestDir dir;
  const std::string path = dir.path() + "/log";
  NoExecutor executor;
  ASSERT_TRUE(EventLogFile::Create(RealFileSystem(), path, SmallHeader(), &executor).ok());
  const auto again = EventLogFile::Create(RealFileSystem(), path, SmallHeader(), &executor);
  EXPECT_EQ(again.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(again.status().ToString().find("--record"), std::string::npos);
  EXPECT_NE(again.status().ToString().find(path), std::string::npos);
}

TEST(EventLogFile, AFullDiskEndsTheLogAndNotTheRun) {
  const TestDir dir;
  const std::string path = dir.path() + "/log";
  NoExecutor executor;
  FaultFileSystem disk(RealFileSystem());
  disk.LimitWrites(1000);
  auto log = EventLogFile::Create(disk, path, SmallHeader(), &executor).value();
  for (uint64_t id = 1; id <= 1000; ++id) log->recorder()->OnEvent(Cancel(id), StatusCode::kOk);
  log.reset();
  const Result<Replayed> report = ReplayFile(path);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_LT(report->events, 1000);
  EXPECT_TRUE(report->cut_off);
}

}  // namespace
}  // namespace tandem
