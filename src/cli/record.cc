#include "cli/record.h"

#include <random>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace tandem {
namespace {

// A busy server records some 100 KB a second: minutes of a disk that does not answer.
constexpr size_t kRingBytes = size_t{8} << 20;
// What a killed process loses; rarely enough to cost nothing.
constexpr TimeNs kWriteInterval = 100 * kNsPerMs;

std::unique_ptr<TokenCoder> MakeCoder(const LogHeader& header) {
  if (header.true_tokens) return std::make_unique<TokenCoder>();
  std::random_device random;
  const auto draw = [&random] { return uint64_t{random()} << 32 | random(); };
  return std::make_unique<TokenRenaming>(header.config.vocab_size, HashKey{draw(), draw()});
}

}  // namespace

Result<std::unique_ptr<EventLogFile>> EventLogFile::Create(FileSystem& fs, const std::string& path,
                                                           const LogHeader& header,
                                                           StepExecutor* executor) {
  Result<std::unique_ptr<WritableFile>> file = fs.Create(path);
  if (!file.ok()) return file.status().WithContext("--record");
  const std::string head = LogFileHead();
  TANDEM_RETURN_IF_ERROR((*file)->Write(std::as_bytes(std::span(head))));
  std::unique_ptr<EventLogFile> log(
      new EventLogFile(path, std::move(*file), MakeCoder(header), executor));
  AppendHeader(header, &log->records_);
  log->WriteBatch(log->records_);
  log->thread_ = std::thread([l = log.get()] { l->Loop(); });
  return log;
}

EventLogFile::EventLogFile(std::string path, std::unique_ptr<WritableFile> file,
                           std::unique_ptr<TokenCoder> coder, StepExecutor* executor)
    : path_(std::move(path)),
      coder_(std::move(coder)),
      recorder_(coder_.get(), kRingBytes),
      recording_(executor, &recorder_),
      file_(std::move(file)) {}

EventLogFile::~EventLogFile() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
  WriteRecords();
  records_.clear();
  if (recorder_.lost_at_end() > 0) AppendLoss(recorder_.lost_at_end(), &records_);
  AppendEnd(&records_);
  WriteBatch(records_);
  if (file_ == nullptr) return;
  if (const Status status = file_->Sync(); !status.ok()) LogWarning("{}", status.ToString());
}

void EventLogFile::Loop() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (ending_) return;
      wake_.WaitFor(mutex_, kWriteInterval);
    }
    WriteRecords();
    WarnOfLoss();
  }
}

void EventLogFile::WriteRecords() {
  records_.clear();
  recorder_.Take(&records_);
  if (!records_.empty()) WriteBatch(records_);
}

void EventLogFile::WriteBatch(const std::string& records) {
  if (file_ == nullptr) return;
  const std::string batch = LogBatch(batches_++, records);
  const Status status = file_->Write(std::as_bytes(std::span(batch)));
  if (status.ok()) return;
  LogWarning("the event log ends here: {}", status.ToString());
  file_ = nullptr;
}

void EventLogFile::WarnOfLoss() {
  const uint64_t lost = recorder_.lost();
  if (lost == warned_of_) return;
  warned_of_ = lost;
  LogWarning("{}: {} records lost so far, they come faster than they can be written", path_, lost);
}

}  // namespace tandem
