#include "plan/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "plan/byte_codec.h"
#include "plan/config_codec.h"

namespace tandem {
namespace {

constexpr std::string_view kFileMagic = "TNDMELOG";
constexpr size_t kFileHeadBytes = 12;
constexpr uint32_t kBatchMagic = 0x48435442;  // "BTCH"
constexpr size_t kBatchHeadBytes = 24;
constexpr size_t kBatchCheckBytes = 8;
constexpr size_t kRecordHeadBytes = 5;

// Times on the engine's clock: 36 years, so that differences stay far inside 64 bits.
constexpr TimeNs kMaxTime = TimeNs{1} << 60;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr int32_t kMinInt = std::numeric_limits<int32_t>::min();
// Entries of log probabilities of one row; a chunk of 200,000 scored tokens.
constexpr int32_t kMaxRowLogprobs = 1 << 22;

enum Kind : uint8_t {
  kHeader = 1,
  kArrival,
  kCancel,
  kResult,
  kAdvance,
  kPlan,
  kLoss,
  kEnd,
  kHandoff
};

uint64_t CheckOf(std::string_view bytes) { return HashBytes(std::as_bytes(std::span(bytes))).low; }

// Writes the head of a record, and its length when the body has been written.
class Record {
 public:
  Record(Kind kind, std::string* out) : out_(out), writer_(out) {
    writer_.Byte(kind);
    writer_.Fixed32(0);
    begin_ = out->size();
  }
  ~Record() {
    const size_t bytes = out_->size() - begin_;
    for (size_t i = 0; i < 4; ++i) (*out_)[begin_ - 4 + i] = static_cast<char>(bytes >> (8 * i));
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ByteWriter& operator*() { return writer_; }
  ByteWriter* operator->() { return &writer_; }

 private:
  std::string* const out_;
  ByteWriter writer_;
  size_t begin_;
};

void WriteTime(TimeNs time, ByteWriter* out) { out->Signed(std::clamp(time, -kMaxTime, kMaxTime)); }
TimeNs ReadTime(ByteReader* in) { return in->Between(-kMaxTime, kMaxTime); }

void WriteOutcome(StatusCode code, ByteWriter* out) { out->Unsigned(static_cast<uint64_t>(code)); }
StatusCode ReadOutcome(ByteReader* in) {
  return static_cast<StatusCode>(in->AtMost(static_cast<uint64_t>(StatusCode::kInternal)));
}

void WriteHash(const Hash128& hash, ByteWriter* out) {
  out->Fixed64(hash.high);
  out->Fixed64(hash.low);
}

void WriteTokens(const std::vector<TokenId>& tokens, const TokenCoder& coder, ByteWriter* out) {
  out->Unsigned(tokens.size());
  for (const TokenId token : tokens) out->Signed(coder.CodeToken(token).value());
}
TokenId ReadToken(ByteReader* in) {
  return TokenId(static_cast<int32_t>(in->Between(kMinInt, kMaxInt)));
}
void ReadTokens(ByteReader* in, std::vector<TokenId>* tokens) {
  tokens->resize(in->Count());
  for (TokenId& token : *tokens) token = ReadToken(in);
}

void WriteOptionalTime(const std::optional<TimeNs>& time, ByteWriter* out) {
  out->Unsigned(time.has_value() ? 1 : 0);
  if (time) WriteTime(*time, out);
}
std::optional<TimeNs> ReadOptionalTime(ByteReader* in) {
  if (!in->Flag()) return std::nullopt;
  return ReadTime(in);
}

void WriteRequest(const Request& request, const TokenCoder& coder, ByteWriter* out) {
  out->Unsigned(request.id.value());
  WriteTokens(request.prompt, coder, out);
  out->Unsigned(request.max_output_tokens.has_value() ? 1 : 0);
  if (request.max_output_tokens) out->Signed(*request.max_output_tokens);
  WriteTokens(request.stop_tokens, coder, out);
  out->Signed(request.sampling.top_logprobs);
  out->Unsigned(request.prompt_logprobs ? 1 : 0);
  out->String(coder.CodeSalt(request.cache_salt));
  WriteTime(request.arrival, out);
  WriteOptionalTime(request.deadline, out);
  WriteOptionalTime(request.ttft_target, out);
  out->Unsigned(request.sample_index);
  out->Unsigned(request.send.has_value() ? 1 : 0);
  if (request.send) out->Unsigned(request.send->value());
}

void ReadRequest(ByteReader* in, Request* request) {
  request->id = RequestId(in->Unsigned());
  ReadTokens(in, &request->prompt);
  if (in->Flag()) {
    request->max_output_tokens = static_cast<int32_t>(in->Between(kMinInt, kMaxInt));
  }
  ReadTokens(in, &request->stop_tokens);
  request->sampling.top_logprobs = static_cast<int32_t>(in->Between(kMinInt, kMaxInt));
  request->prompt_logprobs = in->Flag();
  request->cache_salt = in->String();
  request->arrival = ReadTime(in);
  request->deadline = ReadOptionalTime(in);
  request->ttft_target = ReadOptionalTime(in);
  request->sample_index = static_cast<uint32_t>(in->AtMost(UINT32_MAX));
  if (in->Flag()) request->send = SendId(in->Unsigned());
}

void WriteHandoff(const HandoffEvent& event, ByteWriter* out) {
  out->Unsigned(static_cast<uint64_t>(event.kind));
  out->Unsigned(event.fetch.value());
  out->Unsigned(event.send.value());
  WriteOutcome(event.status.code(), out);
  out->Signed(event.ready_peers);
}

void ReadHandoff(ByteReader* in, HandoffEvent* event) {
  event->kind = static_cast<HandoffEvent::Kind>(
      in->AtMost(static_cast<uint64_t>(HandoffEvent::Kind::kPeers)));
  event->fetch = FetchId(in->Unsigned());
  event->send = SendId(in->Unsigned());
  const StatusCode code = ReadOutcome(in);
  if (code != StatusCode::kOk) event->status = Status(code, "as in the recorded run");
  event->ready_peers = static_cast<int32_t>(in->Between(0, kMaxInt));
}

void WriteResult(const StepResult& result, const TokenCoder& coder, ByteWriter* out) {
  out->Unsigned(result.step.value());
  WriteOutcome(result.status.code(), out);
  WriteTime(result.started, out);
  WriteTime(result.finished, out);
  out->Unsigned(result.rows.size());
  for (const StepResult::Row& row : result.rows) {
    out->Signed(row.slot.value());
    out->Unsigned(static_cast<uint64_t>(row.num_logprobs) << 1 | (row.sampled ? 1 : 0));
    if (row.sampled) out->Signed(coder.CodeToken(row.token).value());
  }
}

// No log probability decides anything: all rows share entries that say nothing.
void ReadResult(ByteReader* in, StepResult* result) {
  result->step = StepId(in->Unsigned());
  const StatusCode code = ReadOutcome(in);
  if (code != StatusCode::kOk) result->status = Status(code, "as in the recorded run");
  result->started = ReadTime(in);
  result->finished = ReadTime(in);
  result->rows.resize(in->Count(2));
  int32_t logprobs = 0;
  for (StepResult::Row& row : result->rows) {
    row.slot = SlotId(static_cast<int32_t>(in->Between(kMinInt, kMaxInt)));
    const uint64_t coded = in->AtMost(uint64_t{kMaxRowLogprobs} << 1 | 1);
    row.sampled = (coded & 1) != 0;
    row.num_logprobs = static_cast<int32_t>(coded >> 1);
    if (row.sampled) row.token = ReadToken(in);
    logprobs = std::max(logprobs, row.num_logprobs);
  }
  if (in->ok()) result->logprobs.resize(static_cast<size_t>(logprobs));
}

void WritePlanRow(const StepPlan& plan, const PlanRow& row, ByteWriter* out) {
  const bool from_output = row.token_is_output();
  out->Signed(row.slot.value());
  out->Signed(row.position);
  out->Unsigned(static_cast<uint64_t>(row.num_tokens) << 3 | (row.score > 0 ? 4 : 0) |
                (row.sample ? 2 : 0) | (from_output ? 1 : 0));
  if (from_output) {
    out->Unsigned(plan.step.value() - row.from_step.value());
    out->Signed(row.from_row);
  }
  if (row.score > 0) out->Signed(row.score);
}

void ReadPlanRow(ByteReader* in, const StepPlan& plan, PlanRow* row) {
  row->slot = SlotId(static_cast<int32_t>(in->Between(0, kMaxInt)));
  row->position = static_cast<int32_t>(in->Between(0, kMaxInt));
  const uint64_t coded = in->AtMost(uint64_t{kMaxInt} << 3 | 7);
  row->num_tokens = static_cast<int32_t>(coded >> 3);
  row->sample = (coded & 2) != 0;
  if ((coded & 1) != 0) {
    row->tokens_begin = -1;
    row->from_step = StepId(plan.step.value() - in->Unsigned());
    row->from_row = static_cast<int32_t>(in->Between(0, kMaxInt));
  }
  if ((coded & 4) != 0) row->score = static_cast<int32_t>(in->Between(1, kMaxInt));
}

void ReadPlan(ByteReader* in, StepPlan* plan) {
  const auto number = [in] { return static_cast<int32_t>(in->Between(0, kMaxInt)); };
  plan->step = StepId(in->Unsigned());
  plan->leaves.resize(in->Count());
  for (SlotId& slot : plan->leaves) slot = SlotId(number());
  plan->joins.resize(in->Count(5));
  for (SlotJoin& join : plan->joins) {
    join.slot = SlotId(number());
    join.request = RequestId(in->Unsigned());
    join.sample_index = static_cast<uint32_t>(in->AtMost(UINT32_MAX));
    join.prompt_tokens = number();
    join.num_restored = number();
  }
  plan->appends.resize(in->Count(4));
  for (BlockAppend& append : plan->appends) {
    append.slot = SlotId(number());
    append.group = GroupId(number());
    append.block = BlockId(number());
    append.entry = static_cast<int32_t>(in->Between(-1, kMaxInt));
  }
  plan->copies.resize(in->Count(3));
  for (BlockCopy& copy : plan->copies) {
    copy.group = GroupId(number());
    copy.from = BlockId(number());
    copy.to = BlockId(number());
  }
  plan->rows.resize(in->Count(3));
  for (PlanRow& row : plan->rows) ReadPlanRow(in, *plan, &row);
}

Status ReadHeader(ByteReader* in, LogHeader* header) {
  header->version = in->String();
  header->model = in->String();
  header->model_identity.high = in->Fixed64();
  header->model_identity.low = in->Fixed64();
  header->numerics = in->String();
  header->true_tokens = in->Flag();
  TANDEM_ASSIGN_OR_RETURN(header->config, ReadConfig(in));
  if (header->config.prefix_cache) {
    header->config.prefix_cache->identity.model = header->model_identity;
  }
  return OkStatus();
}

Status ReadRecord(uint8_t kind, ByteReader* in, LogRecord* record) {
  const auto event = [&]() -> EngineEvent& {
    LoggedEvent& logged = record->emplace<LoggedEvent>();
    logged.outcome = ReadOutcome(in);
    logged.event.at = ReadTime(in);
    return logged.event;
  };
  switch (kind) {
    case kHeader: return ReadHeader(in, &record->emplace<LogHeader>());
    case kArrival: ReadRequest(in, &event().body.emplace<ArrivalEvent>().request); break;
    case kCancel: {
      CancelEvent& cancel = event().body.emplace<CancelEvent>();  // reads what comes first
      cancel.request = RequestId(in->Unsigned());
      break;
    }
    case kResult: ReadResult(in, &event().body.emplace<ResultEvent>().result); break;
    case kHandoff: ReadHandoff(in, &event().body.emplace<HandoffEvent>()); break;
    case kAdvance: record->emplace<LoggedAdvance>().at = ReadTime(in); break;
    case kPlan: {
      LoggedPlan& logged = record->emplace<LoggedPlan>();
      logged.outcome = ReadOutcome(in);
      ReadPlan(in, &logged.plan);
      break;
    }
    case kLoss: record->emplace<LoggedLoss>().records = in->Unsigned(); break;
    case kEnd: record->emplace<LoggedEnd>(); break;
    default: return DataLossError("a record of the unknown kind {}", kind);
  }
  return OkStatus();
}

}  // namespace

void AppendHeader(const LogHeader& header, std::string* out) {
  Record record(kHeader, out);
  record->String(header.version);
  record->String(header.model);
  WriteHash(header.model_identity, &*record);
  record->String(header.numerics);
  record->Unsigned(header.true_tokens ? 1 : 0);
  WriteConfig(header.config, &*record);
}

void AppendEvent(const EngineEvent& event, StatusCode outcome, const TokenCoder& coder,
                 std::string* out) {
  const auto* arrival = std::get_if<ArrivalEvent>(&event.body);
  const auto* cancel = std::get_if<CancelEvent>(&event.body);
  const auto* handoff = std::get_if<HandoffEvent>(&event.body);
  const Kind kind = arrival != nullptr   ? kArrival
                    : cancel != nullptr  ? kCancel
                    : handoff != nullptr ? kHandoff
                                         : kResult;
  Record record(kind, out);
  WriteOutcome(outcome, &*record);
  WriteTime(event.at, &*record);
  if (arrival != nullptr) {
    WriteRequest(arrival->request, coder, &*record);
  } else if (cancel != nullptr) {
    record->Unsigned(cancel->request.value());
  } else if (handoff != nullptr) {
    WriteHandoff(*handoff, &*record);
  } else {
    WriteResult(std::get<ResultEvent>(event.body).result, coder, &*record);
  }
}

void AppendAdvance(TimeNs at, std::string* out) {
  Record record(kAdvance, out);
  WriteTime(at, &*record);
}

void AppendPlan(const StepPlan& plan, StatusCode outcome, std::string* out) {
  Record record(kPlan, out);
  WriteOutcome(outcome, &*record);
  record->Unsigned(plan.step.value());
  record->Unsigned(plan.leaves.size());
  for (const SlotId slot : plan.leaves) record->Signed(slot.value());
  record->Unsigned(plan.joins.size());
  for (const SlotJoin& join : plan.joins) {
    record->Signed(join.slot.value());
    record->Unsigned(join.request.value());
    record->Unsigned(join.sample_index);
    record->Signed(join.prompt_tokens);
    record->Signed(join.num_restored);
  }
  record->Unsigned(plan.appends.size());
  for (const BlockAppend& append : plan.appends) {
    record->Signed(append.slot.value());
    record->Signed(append.group.value());
    record->Signed(append.block.value());
    record->Signed(append.entry);
  }
  record->Unsigned(plan.copies.size());
  for (const BlockCopy& copy : plan.copies) {
    record->Signed(copy.group.value());
    record->Signed(copy.from.value());
    record->Signed(copy.to.value());
  }
  record->Unsigned(plan.rows.size());
  for (const PlanRow& row : plan.rows) WritePlanRow(plan, row, &*record);
}

void AppendLoss(uint64_t records, std::string* out) { Record(kLoss, out)->Unsigned(records); }

void AppendEnd(std::string* out) { Record record(kEnd, out); }

std::string LogFileHead() {
  std::string head(kFileMagic);
  ByteWriter(&head).Fixed32(kEventLogVersion);
  return head;
}

std::string LogBatch(uint64_t index, std::string_view records) {
  TANDEM_CHECK_LE(records.size(), kMaxBatchBytes);
  std::string batch;
  batch.reserve(kBatchHeadBytes + records.size() + kBatchCheckBytes);
  ByteWriter out(&batch);
  out.Fixed32(kBatchMagic);
  out.Fixed32(static_cast<uint32_t>(records.size()));
  out.Fixed64(index);
  out.Fixed64(CheckOf(batch));
  batch.append(records);
  out.Fixed64(CheckOf(batch));
  return batch;
}

Status EventLogReader::ReadFileHead() {
  std::string head(kFileHeadBytes, '\0');
  TANDEM_ASSIGN_OR_RETURN(const size_t read, source_(0, std::as_writable_bytes(std::span(head))));
  if (read < kFileHeadBytes || !head.starts_with(kFileMagic)) {
    return DataLossError("this is no event log");
  }
  const uint32_t version = ByteReader(std::string_view(head).substr(kFileMagic.size())).Fixed32();
  if (version != kEventLogVersion) {
    return UnimplementedError("the event log has version {}, this program reads {}", version,
                              kEventLogVersion);
  }
  offset_ = kFileHeadBytes;
  return OkStatus();
}

Result<std::unique_ptr<EventLogReader>> EventLogReader::Open(Source source) {
  std::unique_ptr<EventLogReader> reader(new EventLogReader(std::move(source)));
  TANDEM_RETURN_IF_ERROR(reader->ReadFileHead());
  LogRecord first;
  TANDEM_ASSIGN_OR_RETURN(const bool any, reader->Next(&first));
  auto* header = std::get_if<LogHeader>(&first);
  if (!any || header == nullptr) return DataLossError("the event log has no header");
  reader->header_ = std::move(*header);
  return reader;
}

Result<bool> EventLogReader::ReadBatch() {
  batch_.assign(kBatchHeadBytes, '\0');
  TANDEM_ASSIGN_OR_RETURN(const size_t read,
                          source_(offset_, std::as_writable_bytes(std::span(batch_))));
  if (read < kBatchHeadBytes) return false;
  ByteReader head(batch_);
  const uint32_t magic = head.Fixed32();
  const size_t bytes = head.Fixed32();
  const uint64_t index = head.Fixed64();
  const uint64_t check = CheckOf(std::string_view(batch_).substr(0, kBatchHeadBytes - 8));
  if (magic != kBatchMagic || index != batches_ || bytes > kMaxBatchBytes ||
      head.Fixed64() != check) {
    return DataLossError("byte {}: the event log is damaged", offset_);
  }
  const size_t rest = bytes + kBatchCheckBytes;
  batch_.resize(kBatchHeadBytes + rest);
  const auto room = std::as_writable_bytes(std::span(batch_)).subspan(kBatchHeadBytes);
  const auto offset = offset_ + static_cast<int64_t>(kBatchHeadBytes);
  TANDEM_ASSIGN_OR_RETURN(const size_t got, source_(offset, room));
  if (got < rest) return false;
  const std::string_view checked = std::string_view(batch_).substr(0, kBatchHeadBytes + bytes);
  if (ByteReader(std::string_view(batch_).substr(checked.size())).Fixed64() != CheckOf(checked)) {
    return DataLossError("byte {}: the event log is damaged", offset_);
  }
  batch_.resize(checked.size());
  batch_used_ = kBatchHeadBytes;
  offset_ = offset + static_cast<int64_t>(rest);
  ++batches_;
  return true;
}

Result<bool> EventLogReader::Next(LogRecord* record) {
  while (batch_used_ == batch_.size()) {
    TANDEM_ASSIGN_OR_RETURN(const bool more, ReadBatch());
    if (!more) {
      batch_.clear();
      batch_used_ = 0;
      return false;
    }
  }
  const std::string_view rest = std::string_view(batch_).substr(batch_used_);
  ByteReader head(rest);
  const uint8_t kind = head.Byte();
  const size_t bytes = head.Fixed32();
  ByteReader body(head.ok() && bytes <= head.left() ? rest.substr(kRecordHeadBytes, bytes)
                                                    : std::string_view());
  const Status status = ReadRecord(kind, &body, record);
  const bool whole = head.ok() && bytes <= head.left() && (!status.ok() || body.done());
  if (!whole || ended_) {
    return DataLossError("the record at {} of the batch before byte {} is damaged", batch_used_,
                         offset_);
  }
  TANDEM_RETURN_IF_ERROR(status);
  batch_used_ += kRecordHeadBytes + bytes;
  ended_ = std::holds_alternative<LoggedEnd>(*record);
  return true;
}

}  // namespace tandem
