#include "cli/chat_history.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace tandem {
namespace {

using nlohmann::json;

// On one line, whatever `text` holds.
std::string LineOf(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// The newest entries as the file has them, within both limits.
std::string FileOf(const std::vector<std::string>& entries) {
  std::vector<std::string> newest_first;
  size_t bytes = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    std::string line = LineOf(*entry);
    bytes += line.size();
    if (newest_first.size() == kChatHistoryEntries || bytes > kChatHistoryBytesMax) break;
    newest_first.push_back(std::move(line));
  }
  std::string file;
  for (auto line = newest_first.rbegin(); line != newest_first.rend(); ++line) file += *line;
  return file;
}

}  // namespace

Result<std::string> ChatHistory::UserPath() {
  TANDEM_ASSIGN_OR_RETURN(const std::string directory, UserStateDir());
  return directory + "/chat_history";
}

Result<std::vector<std::string>> ChatHistory::Load() const {
  Result<std::string> file = ReadSmallFile(fs_, path_, kChatHistoryBytesMax);
  if (!file.ok() && file.status().code() == StatusCode::kNotFound) {
    return std::vector<std::string>();
  }
  TANDEM_RETURN_IF_ERROR(file.status());
  std::vector<std::string> entries;
  std::string_view rest = *file;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const json entry = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_string()) entries.push_back(entry.get<std::string>());
  }
  return entries;
}

Status ChatHistory::Append(const std::string& text) const {
  if (text.size() > kChatHistoryEntryBytesMax) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> entries, Load());
  if (!entries.empty() && entries.back() == text) return OkStatus();
  entries.push_back(text);
  constexpr uint32_t kUserOnly = 0700;
  TANDEM_RETURN_IF_ERROR(fs_.CreateDirectories(path_.substr(0, path_.rfind('/')), kUserOnly));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(fs_, path_));
  const std::string content = FileOf(entries);
  TANDEM_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(content))));
  return file->Commit();
}

}  // namespace tandem
