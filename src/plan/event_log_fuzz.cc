// Foreign bytes as an event log are refused or replayed; also as records whose checks are right.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "plan/replay.h"
#include "plan/replay_report.h"

namespace tandem {
namespace {

EventLogReader::Source SourceOf(std::string_view bytes) {
  return [bytes](int64_t offset, std::span<std::byte> out) -> Result<size_t> {
    const size_t at = std::min(static_cast<size_t>(offset), bytes.size());
    const size_t size = std::min(out.size(), bytes.size() - at);
    std::memcpy(out.data(), bytes.data() + at, size);
    return size;
  };
}

// What a fuzzer has time for.
bool Small(const SchedulerConfig& config) {
  int64_t blocks = 0;
  for (const StateGroupBlocks& g : config.groups) {
    blocks += g.num_blocks;
    if (g.group.tokens_per_block > 1024) return false;
  }
  return blocks <= 4096 && config.num_slots() <= 64 && config.context_length <= 4096 &&
         config.max_queue <= 4096;
}

void Try(std::string_view bytes) {
  auto printed = EventLogReader::Open(SourceOf(bytes));
  if (!printed.ok()) return;
  HeaderText((*printed)->header());
  LogRecord record;
  for (Result<bool> more = true; more.ok() && *more;) {
    more = (*printed)->Next(&record);
    if (more.ok() && *more) RecordLine(record, 0);
  }
  auto log = EventLogReader::Open(SourceOf(bytes));
  if (!log.ok() || !Small((*log)->header().config)) return;
  const Result<ReplayReport> report = Replay(log->get());
  if (!report.ok()) return;
  ReplayText(*report);
  SchedulerConfig config = (*log)->header().config;
  config.policy = Policy::kContinuous;
  (void)SimulateRecorded(config, report->requests, report->cost);
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Try(bytes);
  // The records of a real log of one batch, changed, pass its checks here.
  constexpr size_t kBeforeRecords = 36;  // the file's head and the batch's
  constexpr size_t kBehindRecords = 8;
  if (size <= kBeforeRecords + kBehindRecords) return 0;
  const std::string_view records =
      bytes.substr(kBeforeRecords, size - kBeforeRecords - kBehindRecords);
  Try(LogFileHead() + LogBatch(0, records));
  return 0;
}
