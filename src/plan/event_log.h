// What: the event log of a live run as bytes (docs/formats/event-log.md): records in checked
//   batches; and EventLogReader, which gives them back one by one.
// Not here: who records (event_recorder.h), what a replay makes of it (replay.h), files (cli/).
// Threads: functions are pure; a reader belongs to one thread.
// Invariants: any bytes may be read: what is damaged is refused with DATA_LOSS and its place, and
//   no memory is taken beyond a small multiple of what was read. A log that was cut off, as that of
//   a killed process, ends after its last whole batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/hash.h"
#include "base/status.h"
#include "core/event.h"
#include "sched/scheduler_config.h"

namespace tandem {

inline constexpr uint32_t kEventLogVersion = 2;
// A batch that claims more is damaged. Room for the prompt of a million tokens.
inline constexpr size_t kMaxBatchBytes = size_t{64} << 20;

// What the events mean nothing without.
struct LogHeader {
  std::string version;  // of Tandem
  std::string model;    // its name
  Hash128 model_identity;
  std::string numerics;
  bool true_tokens = false;  // else they are renamed: see TokenRenaming
  // The prefix cache's identity and key are not kept: all requests of a run share them, and neither
  // decides anything among them.
  SchedulerConfig config;
};

// A call of Engine::Handle, and what it returned.
struct LoggedEvent {
  EngineEvent event;  // a request without logit bias and sampling, but for what decides rows
  StatusCode outcome = StatusCode::kOk;
};
// A call of Engine::Advance; the plans that it submitted follow.
struct LoggedAdvance {
  TimeNs at = 0;
};
struct LoggedPlan {
  StepPlan plan;                         // without the tokens, which follow from the events
  StatusCode outcome = StatusCode::kOk;  // of StepExecutor::Submit
};
// So many records are missing here: the writer could not keep up.
struct LoggedLoss {
  uint64_t records = 0;
};
// The run ended in order.
struct LoggedEnd {};

using LogRecord =
    std::variant<LoggedEvent, LoggedAdvance, LoggedPlan, LoggedLoss, LoggedEnd, LogHeader>;

// How tokens and salts are written: this one as they are, TokenRenaming under other names.
class TokenCoder {
 public:
  virtual ~TokenCoder() = default;
  virtual TokenId CodeToken(TokenId token) const { return token; }
  virtual std::string CodeSalt(std::string_view salt) const { return std::string(salt); }
};

// Append one record.
void AppendHeader(const LogHeader& header, std::string* out);
void AppendEvent(const EngineEvent& event, StatusCode outcome, const TokenCoder& coder,
                 std::string* out);
void AppendAdvance(TimeNs at, std::string* out);
void AppendPlan(const StepPlan& plan, StatusCode outcome, std::string* out);
void AppendLoss(uint64_t records, std::string* out);
void AppendEnd(std::string* out);

// The bytes that a log begins with.
std::string LogFileHead();
// Whole records as the `index`-th batch of a log, from 0. Requires at most kMaxBatchBytes.
std::string LogBatch(uint64_t index, std::string_view records);

class EventLogReader {
 public:
  // Fills `out` from `offset`; fewer bytes only at the end of the log.
  using Source = std::function<Result<size_t>(int64_t offset, std::span<std::byte> out)>;

  // Reads the header. DATA_LOSS for what is no event log or a damaged one, UNIMPLEMENTED for
  // another version, INVALID_ARGUMENT for a configuration that makes no sense.
  static Result<std::unique_ptr<EventLogReader>> Open(Source source);

  const LogHeader& header() const { return header_; }

  // The next record; false when there is none.
  Result<bool> Next(LogRecord* record);

  // Next has returned false, and the log does not say that its run had ended.
  bool cut_off() const { return !ended_; }

 private:
  explicit EventLogReader(Source source) : source_(std::move(source)) {}
  // False at the end of the log.
  Result<bool> ReadBatch();
  Status ReadFileHead();

  const Source source_;
  int64_t offset_ = 0;  // of the next batch
  uint64_t batches_ = 0;
  std::string batch_;      // records
  size_t batch_used_ = 0;  // of batch_
  LogHeader header_;
  bool ended_ = false;
};

// For people: a plan as StepPlan::ToText, and what its joins restore.
std::string PlanText(const StepPlan& plan);
// A record in one line, times in ms since `start`.
std::string RecordLine(const LogRecord& record, TimeNs start);
std::string HeaderText(const LogHeader& header);

}  // namespace tandem
