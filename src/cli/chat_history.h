// What: ChatHistory: what was typed in earlier chats, kept in a file of the user's.
// Not here: the keys that go through it (line_editor.h).
// Threads: one. Chats that run at the same time share the file: each keeps what the others add, but
//   for two that add in the same moment.
// Invariants: the file is replaced whole, so it is never half written; only the user may read it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "os/file.h"

namespace tandem {

inline constexpr int kChatHistoryEntries = 1000;  // the newest are kept
inline constexpr size_t kChatHistoryBytesMax = size_t{1} << 20;
inline constexpr size_t kChatHistoryEntryBytesMax = size_t{1} << 16;  // longer ones are not kept

class ChatHistory {
 public:
  // `path` need not exist, nor its directory. The file has one JSON string a line, oldest first.
  ChatHistory(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}

  // Where a user's history belongs: "chat_history" in UserStateDir.
  static Result<std::string> UserPath();

  // Oldest first; lines that are none of ours are left out. Nothing when there is no file.
  Result<std::vector<std::string>> Load() const;
  // Adds `text`, unless it is what was added last or too long. Errors: the file system's.
  Status Append(const std::string& text) const;

 private:
  FileSystem& fs_;
  const std::string path_;
};

}  // namespace tandem
