// What: EventLogFile: the event log of a live run on its way into a file: --record.
// Not here: what is recorded and how (plan/event_recorder.h, plan/event_log.h).
// Threads: created and destroyed on one thread; its executor belongs to the engine's thread. A
//   thread of its own writes, several times a second, what has been recorded since.
// Invariants: the engine's thread never waits for the file. A file that cannot be written any more
//   (a full disk) ends the record with a warning, not the run.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/thread_annotations.h"
#include "core/step_executor.h"
#include "os/file.h"
#include "plan/event_recorder.h"

namespace tandem {

class EventLogFile {
 public:
  // `path` must not exist; only the user may read it. `executor` is the run's, and outlives the
  // log. Unless header.true_tokens, tokens are renamed with a key that is forgotten at the end.
  static Result<std::unique_ptr<EventLogFile>> Create(FileSystem& fs, const std::string& path,
                                                      const LogHeader& header,
                                                      StepExecutor* executor);
  // Writes the rest. The engine must be gone.
  ~EventLogFile();
  EventLogFile(const EventLogFile&) = delete;
  EventLogFile& operator=(const EventLogFile&) = delete;

  // For the engine, in place of the executor.
  StepExecutor* executor() { return &recording_; }
  EventRecorder* recorder() { return &recorder_; }

 private:
  EventLogFile(std::string path, std::unique_ptr<WritableFile> file,
               std::unique_ptr<TokenCoder> coder, StepExecutor* executor);
  void Loop();
  void WriteRecords();
  void WriteBatch(const std::string& records);
  void WarnOfLoss();

  const std::string path_;
  const std::unique_ptr<TokenCoder> coder_;
  EventRecorder recorder_;
  RecordingExecutor recording_;

  // The writer's thread only, until it has ended.
  std::unique_ptr<WritableFile> file_;  // null after an error
  uint64_t batches_ = 0;
  uint64_t warned_of_ = 0;
  std::string records_;

  Mutex mutex_;
  CondVar wake_;
  bool ending_ TANDEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
