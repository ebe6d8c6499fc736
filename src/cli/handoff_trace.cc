#include "cli/handoff_trace.h"

#include <fmt/format.h>

#include <iterator>
#include <span>
#include <utility>

#include "base/log.h"

namespace tandem {

Result<std::unique_ptr<HandoffTrace>> HandoffTrace::Create(const std::string& path) {
  auto file = RealFileSystem().Create(path);
  if (!file.ok()) return file.status().WithContext("--handoff-trace");
  return std::unique_ptr<HandoffTrace>(new HandoffTrace(std::move(*file)));
}

HandoffTrace::HandoffTrace(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}

void HandoffTrace::Add(const LayerTiming& t) {
  constexpr size_t kBatchBytes = 64 * 1024;
  if (file_ == nullptr || count_ >= kMaxLines) return;
  ++count_;
  fmt::format_to(std::back_inserter(lines_),
                 "{{\"send\": {}, \"step\": {}, \"layer\": {}, \"pages\": {}, \"bytes\": {}, "
                 "\"ready_ns\": {}, \"first_post_ns\": {}, \"last_done_ns\": {}}}\n",
                 t.send, t.step, t.layer, t.pages, t.bytes, t.ready, t.first_post, t.last_done);
  if (lines_.size() >= kBatchBytes) Flush();
}

void HandoffTrace::Flush() {
  if (file_ == nullptr || lines_.empty()) return;
  if (const Status status = file_->Write(std::as_bytes(std::span(lines_))); !status.ok()) {
    LogWarning("--handoff-trace: {}; nothing more is written", status.message());
    file_.reset();
  }
  lines_.clear();
}

}  // namespace tandem
