// The bytes of an event log: what is written comes back, what is damaged is refused.
#include "plan/event_log.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "plan/byte_codec.h"
#include "plan/event_recorder.h"
#include "plan/replay.h"
#include "plan/testing/live_run.h"

namespace tandem {
namespace {

using testing::LiveRun;
using testing::SmallConfig;
using testing::SourceOf;

// The records of a log, written again as they were read.
Result<std::string> Rewritten(std::string_view log) {
  TANDEM_ASSIGN_OR_RETURN(const auto reader, EventLogReader::Open(SourceOf(log)));
  std::string out;
  AppendHeader(reader->header(), &out);
  LogRecord record;
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const bool more, reader->Next(&record));
    if (!more) return out;
    if (const auto* event = std::get_if<LoggedEvent>(&record)) {
      AppendEvent(event->event, event->outcome, TokenCoder(), &out);
    } else if (const auto* advance = std::get_if<LoggedAdvance>(&record)) {
      AppendAdvance(advance->at, &out);
    } else if (const auto* logged = std::get_if<LoggedPlan>(&record)) {
      AppendPlan(logged->plan, logged->outcome, &out);
    } else if (const auto* loss = std::get_if<LoggedLoss>(&record)) {
      AppendLoss(loss->records, &out);
    } else {
      AppendEnd(&out);
    }
  }
}

// The records of all batches of an undamaged log.
std::string RecordsOf(std::string_view log) {
  std::string records;
  for (size_t at = 12; at < log.size();) {
    const uint32_t bytes = ByteReader(log.substr(at + 4)).Fixed32();
    records += log.substr(at + 24, bytes);
    at += 24 + bytes + 8;
  }
  return records;
}

std::string SomeLog(int actions = 150, bool handoff = false) {
  EngineConfig config = SmallConfig(1, true);
  config.groups.push_back(handoff ? testing::PagedGroup(2, 120) : testing::WindowGroup(2, 60, 6));
  if (handoff) config.fetch = {.max_fetches = 2, .min_tokens = 4};
  config.prepared_tokens = {1, 4, 16};
  config.cost = LinearCost{5, 1, 0.5};
  LiveRun run(config);
  run.Random(5, actions);
  return run.Finish();
}

TEST(EventLog, RecordsComeBackAsTheyWere) {
  for (const bool handoff : {false, true}) {
    const std::string log = SomeLog(1000, handoff);
    const Result<std::string> rewritten = Rewritten(log);
    ASSERT_TRUE(rewritten.ok()) << rewritten.status().ToString();
    EXPECT_TRUE(*rewritten == RecordsOf(log));
  }
}

TEST(EventLog, AnyChangedByteIsRefused) {
  const std::string log = SomeLog(80);
  ASSERT_TRUE(Rewritten(log).ok());
  for (size_t at = 0; at < log.size(); ++at) {
    std::string damaged = log;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    ASSERT_FALSE(Rewritten(damaged).ok()) << at;
  }
}

TEST(EventLog, ALogThatIsCutOffEndsAfterItsLastWholeBatch) {
  const std::string log = SomeLog();
  int64_t last = -1;
  for (size_t size = 0; size < log.size(); ++size) {
    auto reader = EventLogReader::Open(SourceOf(std::string_view(log).substr(0, size)));
    if (!reader.ok()) {
      EXPECT_EQ(last, -1) << "once the header is there, a log can be read";
      continue;
    }
    const Result<ReplayReport> report = Replay(reader->get());
    ASSERT_TRUE(report.ok()) << size << ": " << report.status().ToString();
    ASSERT_FALSE(report->difference) << size;
    EXPECT_TRUE(report->cut_off);
    EXPECT_GE(report->events, last);
    last = report->events;
  }
  EXPECT_GT(last, 50);
}

TEST(EventLog, ABatchThatIsMissingOrOutOfPlaceIsRefused) {
  const std::string head = LogFileHead();
  std::string header, advance;
  LogHeader values;
  values.config = SmallConfig(1, false);
  AppendHeader(values, &header);
  AppendAdvance(1, &advance);
  const std::string first = LogBatch(0, header);
  EXPECT_TRUE(Rewritten(head + first + LogBatch(1, advance) + LogBatch(2, advance)).ok());
  EXPECT_FALSE(Rewritten(head + first + LogBatch(2, advance)).ok());
  EXPECT_FALSE(Rewritten(head + LogBatch(0, advance)).ok()) << "no header";
  EXPECT_FALSE(Rewritten(head + first + LogBatch(1, "\x05\xff\xff\xff\xff")).ok());
  std::string end = advance;
  AppendEnd(&end);
  EXPECT_TRUE(Rewritten(head + first + LogBatch(1, end)).ok());
  EXPECT_FALSE(Rewritten(head + first + LogBatch(1, end + advance)).ok()) << "after the end";
}

TEST(EventLog, OtherVersionsAndConfigurationsOfNoMachineAreNamed) {
  std::string head = LogFileHead();
  head[8] = 99;
  EXPECT_EQ(Rewritten(head).status().code(), StatusCode::kUnimplemented);
  const auto open = [](const SchedulerConfig& config) {
    std::string header;
    LogHeader values;
    values.config = config;
    AppendHeader(values, &header);
    return EventLogReader::Open(SourceOf(LogFileHead() + LogBatch(0, header))).status().code();
  };
  SchedulerConfig config = SmallConfig(1, true);
  EXPECT_EQ(open(config), StatusCode::kOk);
  config.max_running = 0;
  EXPECT_EQ(open(config), StatusCode::kInvalidArgument);
  config = SmallConfig(1, true);
  config.max_running = config.token_budget = 1 << 24;
  config.context_length = 1 << 24;
  config.groups[0].num_blocks = 1 << 20;
  EXPECT_EQ(open(config), StatusCode::kOutOfRange);
  config = SmallConfig(1, true);
  config.groups[0].num_blocks = 1 << 24;
  config.groups[0].group.tokens_per_block = 1 << 12;
  EXPECT_EQ(open(config), StatusCode::kOutOfRange) << "prefix cache";
}

// As the fuzzer does: the checks of the batch are right, the records are not.
TEST(EventLog, WrongRecordsInAGoodBatchDoNoHarm) {
  const std::string log = SomeLog(60);
  const std::string records = RecordsOf(log);
  SplitMix64 random(9);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = records;
    for (uint64_t n = 1 + random.Below(3); n > 0; --n) {
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Next());
    }
    const std::string bytes = LogFileHead() + LogBatch(0, damaged);
    auto reader = EventLogReader::Open(SourceOf(bytes));
    if (!reader.ok() || (*reader)->header().config.groups[0].num_blocks > 4096) continue;
    if ((*reader)->header().config.context_length > 4096) continue;
    const Result<ReplayReport> report = Replay(reader->get());
    if (!report.ok() || report->difference) continue;
    (void)SimulateRecorded((*reader)->header().config, report->requests, report->cost);
  }
}

TEST(EventLog, PrintsOneLinePerRecord) {
  const std::string log = SomeLog();
  auto reader = EventLogReader::Open(SourceOf(log)).value();
  EXPECT_NE(HeaderText(reader->header()).find("prefix cache value"), std::string::npos);
  std::string text;
  LogRecord record;
  int64_t records = 0;
  for (; reader->Next(&record).value(); ++records) text += RecordLine(record, 7 * kNsPerS);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), records);
  for (const char* part : {"arrival request=1 ", "cancel request=", "result step=", "advance",
                           "plan step 1 | join slot=", "\n                end\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(TokenRenaming, IsAPermutationThatTheKeyChooses) {
  const TokenRenaming one(1000, {1, 2});
  const TokenRenaming other(1000, {1, 3});
  std::set<int32_t> names;
  int same = 0;
  for (int32_t t = 0; t < 1000; ++t) {
    names.insert(one.CodeToken(TokenId(t)).value());
    same += one.CodeToken(TokenId(t)) == other.CodeToken(TokenId(t));
  }
  EXPECT_EQ(names.size(), 1000u);
  EXPECT_EQ(*names.begin(), 0);
  EXPECT_EQ(*names.rbegin(), 999);
  EXPECT_LT(same, 20);
  EXPECT_EQ(one.CodeToken(TokenId(1000)), TokenId(1000));
  EXPECT_EQ(one.CodeToken(TokenId(-1)), TokenId(-1));
  EXPECT_EQ(one.CodeSalt("tenant"), one.CodeSalt("tenant"));
  EXPECT_NE(one.CodeSalt("tenant"), one.CodeSalt("tenanu"));
  EXPECT_NE(one.CodeSalt("tenant"), other.CodeSalt("tenant"));
  EXPECT_EQ(one.CodeSalt(""), "");
}

TEST(ByteRing, TakesAllOrNothing) {
  ByteRing ring(8);
  std::string out;
  EXPECT_TRUE(ring.TryWrite("12345"));
  EXPECT_FALSE(ring.TryWrite("6789"));
  EXPECT_TRUE(ring.TryWrite("678"));
  ring.ReadAll(&out);
  EXPECT_EQ(out, "12345678");
  EXPECT_FALSE(ring.TryWrite("123456789"));
  EXPECT_TRUE(ring.TryWrite("abcdefgh"));
  ring.ReadAll(&out);
  EXPECT_EQ(out, "12345678abcdefgh");
}

TEST(ByteRing, CarriesAllBetweenTwoThreadsInOrder) {
  ByteRing ring(64);
  std::string sent;
  std::string received;
  std::thread writer([&] {
    for (int i = 0; i < 2'000; ++i) {
      const std::string item(1 + i % 13, static_cast<char>(i));
      sent += item;
      while (!ring.TryWrite(item)) std::this_thread::yield();
    }
  });
  size_t all = 0;
  for (size_t i = 0; i < 2'000; ++i) all += 1 + i % 13;
  while (received.size() < all) ring.ReadAll(&received);
  writer.join();
  EXPECT_TRUE(received == sent);
}

TEST(ByteReader, BelievesNoLength) {
  EXPECT_EQ(ByteReader("\x7f").Unsigned(), 127u);
  ByteReader missing("\x80");
  EXPECT_EQ(missing.Unsigned(), 0u);
  EXPECT_FALSE(missing.ok());
  ByteReader overlong("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
  EXPECT_EQ(overlong.Unsigned(), 0u);
  EXPECT_FALSE(overlong.ok());
  ByteReader count(
      "\x03"
      "ab");
  EXPECT_EQ(count.String(), "");
  EXPECT_FALSE(count.ok());
  for (const int64_t value : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, int64_t{300}}) {
    std::string bytes;
    ByteWriter(&bytes).Signed(value);
    ByteReader reader(bytes);
    EXPECT_EQ(reader.Between(INT64_MIN, INT64_MAX), value);
    EXPECT_TRUE(reader.done());
  }
}

}  // namespace
}  // namespace tandem
