#include "messenger/membership_file.h"

#include <sstream>
#include <utility>

namespace tandem {

FileMembershipSource::FileMembershipSource(FileSystem& fs, std::string path)
    : fs_(fs), path_(std::move(path)) {}

Result<std::vector<std::string>> FileMembershipSource::Look() {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(fs_, path_, kMaxBytes));
  std::vector<std::string> nodes;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    const auto address = ParseHostPort(line);
    if (!address.ok())
      return InvalidArgumentError("line {}: {}", number, address.status().message());
    nodes.push_back(address->ToString());
  }
  return nodes;
}

}  // namespace tandem
