// What: FileSystem: the seam through which Tandem reads, maps and writes files, so that tests can
//   make any of it fail; and AtomicFile, which makes a file appear whole or not at all.
// Not here: formats, paths' meaning; memory limits (memory.h); faults (fault_file_system.h).
// Threads: a FileSystem from any thread; a file, mapping or lock by one thread at a time (reads of
//   a ReadableFile and of a mapping's bytes from any).
// Invariants: paths are bytes as the system takes them. Errors carry the path: NOT_FOUND,
//   FAILED_PRECONDITION (not a regular file, no permission), RESOURCE_EXHAUSTED (disk or memory
//   full), UNAVAILABLE (held by another process), DATA_LOSS (a file ends early), INTERNAL (anything
//   else the system says).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {

// What the system says about a file's state. Any change of the content or of the inode behind a
// path changes it, except within one tick of the file system's clock (see stamp_index.h). The
// device number is left out: it may change when the machine restarts.
struct FileStamp {
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual const std::string& path() const = 0;
  // The size when the file was opened.
  virtual int64_t size() const = 0;
  // The state now.
  virtual Result<FileStamp> Stamp() const = 0;
  // Reads up to out.size() bytes at `offset`; less only at the end of the file, where it is 0.
  virtual Result<size_t> ReadSome(int64_t offset, std::span<std::byte> out) const = 0;

  // Fills `out` or fails: DATA_LOSS when the file ends before.
  Status ReadAt(int64_t offset, std::span<std::byte> out) const;
};

// Appends; what was written is durable after Sync.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Write(std::span<const std::byte> bytes) = 0;
  virtual Status Sync() = 0;
};

// A whole file mapped read-only and shared. Another process that truncates the file in place makes
// later reads of its bytes end this process (SIGBUS): map only files of Tandem's own that are
// replaced by rename, never in place; read what users and others own with ReadAt.
class MappedFile {
 public:
  MappedFile() = default;
  // Takes over a mapping of the system; for implementations of FileSystem.
  MappedFile(const std::byte* data, size_t size, FileStamp stamp)
      : data_(data), size_(size), stamp_(stamp) {}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stamp_, other.stamp_);
    return *this;
  }

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Of the file when it was mapped.
  const FileStamp& stamp() const { return stamp_; }
  // Asks the system to read ahead; returns at once.
  void Prefetch() const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  FileStamp stamp_;
};

// Held until destroyed, and no longer than the process lives.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Regular files only; never waits for a pipe's other end.
  virtual Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) = 0;
  virtual Result<MappedFile> Map(const std::string& path) = 0;
  // A new file that only the user may read; FAILED_PRECONDITION when the path exists.
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Remove(const std::string& path) = 0;
  // Makes renames and creations in `path` durable.
  virtual Status SyncDirectory(const std::string& path) = 0;
  // With its parents, each with `mode`; one that exists is left as it is.
  virtual Status CreateDirectories(const std::string& path, uint32_t mode) = 0;
  // Names in a directory, sorted, without "." and "..".
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  // Absolute, without links, "." and "..". The path must exist.
  virtual Result<std::string> Canonical(const std::string& path) = 0;
  // Creates `path` if need be and locks it: UNAVAILABLE when it is locked already (by this process
  // too), UNIMPLEMENTED when this file system has no locks.
  virtual Result<std::unique_ptr<FileLock>> TryLock(const std::string& path) = 0;
  // Calendar time as file stamps count it.
  virtual int64_t NowNs() = 0;
};

// The machine's own; lives as long as the process.
FileSystem& RealFileSystem();

// A new version of the file `path`: it appears there with Commit, complete and durable, or never.
// Destroying an uncommitted AtomicFile removes what was written so far. Two writers of one path
// never mix: the last Commit wins.
class AtomicFile {
 public:
  // The parts are kept in `path` + kTempInfix + digits, in the same directory (which must exist).
  static constexpr std::string_view kTempInfix = ".tmp-";

  static Result<std::unique_ptr<AtomicFile>> Create(FileSystem& fs, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Status Write(std::span<const std::byte> bytes);
  // At most once; nothing can be written after it, whether it succeeded or not.
  Status Commit();

 private:
  AtomicFile(FileSystem& fs, std::string path, std::string temp_path,
             std::unique_ptr<WritableFile> file);

  FileSystem& fs_;
  const std::string path_;
  const std::string temp_path_;
  std::unique_ptr<WritableFile> file_;  // null after Commit
  bool renamed_ = false;
};

// The whole content of a file that may grow or report no size (/proc). OUT_OF_RANGE beyond
// `max_bytes`.
Result<std::string> ReadSmallFile(FileSystem& fs, const std::string& path, size_t max_bytes);

// A file in memory for readers of formats; `bytes` must outlive it.
std::unique_ptr<ReadableFile> MakeMemoryFile(std::span<const std::byte> bytes, std::string path);

// $XDG_CACHE_HOME/tandem if that is an absolute path, else $HOME/.cache/tandem. FAILED_PRECONDITION
// when neither is set. The directory need not exist.
Result<std::string> UserCacheDir();
// The same of given values (null: unset).
Result<std::string> UserCacheDir(const char* xdg_cache_home, const char* home);
// The same for what is kept between runs but can be missed: XDG_STATE_HOME, else .local/state.
Result<std::string> UserStateDir();
Result<std::string> UserStateDir(const char* xdg_state_home, const char* home);

}  // namespace tandem
