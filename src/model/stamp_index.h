// What: StampIndex: remembers the content hash of a file by its path and stamp, so that an
//   unchanged file is not read again to know what it holds.
// Not here: hashing; what the hash is used for.
// Threads: one; several processes may share a directory.
// Invariants: a hash is recorded only when the file's last change (ctime, which the kernel sets and
//   nobody can choose) lies kQuietNs before the moment at which its stamp was taken. A later change
//   then has a later ctime even on file systems with a coarse clock, so a stamp that matches means
//   the same bytes. Anything unreadable in the index means "not known".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/hash.h"
#include "os/file.h"

namespace tandem {

class StampIndex {
 public:
  // The coarsest clock of a file system in use (FAT: 2 s).
  static constexpr int64_t kQuietNs = 2'000'000'000;

  struct Moment {
    int64_t ns = 0;
  };

  // The index lies in cache_dir/index, one small file per path.
  StampIndex(FileSystem& fs, const std::string& cache_dir);

  // Take it before or when the stamp is taken.
  Moment Now() const { return {fs_.NowNs()}; }

  // The hash recorded for exactly this path and stamp.
  std::optional<Hash128> Find(const std::string& path, const FileStamp& stamp) const;
  // `hash` is that of the file's content while it had `stamp`, taken at `moment` or later. Nothing
  // is recorded when the file had changed shortly before, or when the index cannot be written.
  void Record(const std::string& path, const FileStamp& stamp, Moment moment, Hash128 hash);

 private:
  Status Write(const std::string& file, const std::string& canonical, const FileStamp& stamp,
               Hash128 hash);

  FileSystem& fs_;
  const std::string directory_;
};

}  // namespace tandem
