// What: FaultFileSystem: passes every call on to another file system and fails those that a test
//   has chosen.
// Not here: reordered or torn writes after a power cut.
// Threads: one.
// Invariants: operations count from 0 in call order: every call of FileSystem but NowNs, and every
//   ReadSome, Stamp, Write and Sync of its files. A failed operation has no effect below.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "os/file.h"

namespace tandem {

class FaultFileSystem final : public FileSystem {
 public:
  explicit FaultFileSystem(FileSystem& base) : base_(base) {}

  // From now on, operation number `index` fails with `status`; with `and_later`, all after it too.
  void FailAt(int64_t index, Status status, bool and_later = false);
  // Writes fail with RESOURCE_EXHAUSTED after this many more bytes, the last one partly done.
  void LimitWrites(int64_t bytes) { write_budget_ = bytes; }
  // Called before each operation, with its name ("open", "read", "stamp", "map", "create", "write",
  // "sync", "rename", "remove", "sync_directory", "create_directories", "list", "canonical",
  // "lock") and path. What it returns is the operation's failure, if not OK.
  void SetHook(std::function<Status(std::string_view operation, const std::string& path)> hook) {
    hook_ = std::move(hook);
  }
  // Adds to the base's calendar time.
  void ShiftClock(int64_t ns) { clock_shift_ns_ += ns; }
  int64_t operations() const { return operations_; }

  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override;
  Result<MappedFile> Map(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncDirectory(const std::string& path) override;
  Status CreateDirectories(const std::string& path, uint32_t mode) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  Result<std::string> Canonical(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> TryLock(const std::string& path) override;
  int64_t NowNs() override { return base_.NowNs() + clock_shift_ns_; }

 private:
  friend class FaultReadableFile;
  friend class FaultWritableFile;

  // Counts an operation and says whether it fails.
  Status Next(std::string_view operation, const std::string& path);

  FileSystem& base_;
  int64_t operations_ = 0;
  int64_t fail_at_ = -1;
  bool and_later_ = false;
  Status failure_;
  int64_t write_budget_ = std::numeric_limits<int64_t>::max();
  int64_t clock_shift_ns_ = 0;
  std::function<Status(std::string_view, const std::string&)> hook_;
};

}  // namespace tandem
