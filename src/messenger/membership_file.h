// What: a file as the list of prefill nodes: one HOST:PORT a line; # begins a comment. Whoever may
//   write the file decides; no node needs a restart.
// Not here: following it (membership.h).
// Threads: one.
// Invariants: a file that is not there, or cannot be read, is an error and not an empty list.
#pragma once

#include <string>
#include <vector>

#include "messenger/membership.h"
#include "os/file.h"

namespace tandem {

class FileMembershipSource final : public MembershipSource {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  // `fs` outlives it.
  FileMembershipSource(FileSystem& fs, std::string path);
  std::string name() const override { return path_; }
  // INVALID_ARGUMENT for a line that is no address, with its number: nothing of such a file counts.
  Result<std::vector<std::string>> Look() override;

 private:
  FileSystem& fs_;
  const std::string path_;
};

}  // namespace tandem
