// What: HandoffTrace: when each layer of each chunk was computed and sent, as JSON lines in a new
//   file: {"send", "step", "layer", "pages", "bytes", "ready_ns", "first_post_ns", "last_done_ns"}.
//   Times are of the machine's steady clock, the same for all processes of one machine.
// Not here: the picture (tools/handoff_picture.py).
// Threads: one.
// Cost: some 150 bytes per layer and chunk, written in batches; nothing after kMaxLines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "messenger/messenger_config.h"
#include "os/file.h"

namespace tandem {

class HandoffTrace {
 public:
  static constexpr int64_t kMaxLines = 4'000'000;

  // FAILED_PRECONDITION when the file exists.
  static Result<std::unique_ptr<HandoffTrace>> Create(const std::string& path);

  void Add(const LayerTiming& timing);
  // Hands what has been added to the file system; after an error nothing is written any more.
  void Flush();

 private:
  explicit HandoffTrace(std::unique_ptr<WritableFile> file);

  std::unique_ptr<WritableFile> file_;  // null after an error
  std::string lines_;                   // not written yet
  int64_t count_ = 0;
};

}  // namespace tandem
