// What: the chapter's figures that the scheduler is tested against (tests/data/chapter8).
// Not here: the comparisons.
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace tandem::testing {

inline std::string ReadChapterFile(const std::string& name) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/data/chapter8/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// {"id", "inputs", "expected"} of one vector.
inline nlohmann::json ChapterVector(const std::string& file, const std::string& id) {
  for (nlohmann::json& v : nlohmann::json::parse(ReadChapterFile(file))) {
    if (v["id"] == id) return v;
  }
  ADD_FAILURE() << id << " is not in " << file;
  return {};
}

// The cells of a CSV file, header included.
inline std::vector<std::vector<std::string>> ChapterTable(const std::string& name) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(ReadChapterFile(name));
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) rows.back().push_back(cell);
  }
  return rows;
}

}  // namespace tandem::testing
