// What: the chapter's vectors of the cache, by id (tests/data/chapter8/kv_vectors.json).
// Not here: those of the scheduler.
// Threads: any, after the first call.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::testing {

inline const nlohmann::json& Vector(const std::string& id) {
  static const nlohmann::json vectors = [] {
    std::ifstream file(TANDEM_SOURCE_DIR "/tests/data/chapter8/kv_vectors.json");
    return nlohmann::json::parse(file);
  }();
  return vectors.at(id);
}

}  // namespace tandem::testing
