// What: HfFolder: a model folder as Hugging Face lays it out: config.json, generation_config.json,
//   and model.safetensors or model.safetensors.index.json with its shards.
// Not here: what config.json means (hf_config.h), tokenizer files (text/).
// Threads: filled by Open and OpenWeights on one thread; afterwards immutable, any thread.
// Invariants: after OpenWeights, a tensor name occurs in one file only, and in the file that the
//   index names; every shard's own checks hold (safetensors.h).
// Based on: docs/formats/safetensors.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/safetensors.h"
#include "os/file.h"

namespace tandem {

class HfFolder {
 public:
  // Reads the two configuration files, so that a model that Tandem does not run is refused before
  // more is opened. NOT_FOUND when there is no config.json.
  static Result<HfFolder> Open(FileSystem& fs, const std::string& directory);
  // Opens the files of weights and reads their headers. NOT_FOUND names the missing file.
  Status OpenWeights(FileSystem& fs);

  const std::string& directory() const { return directory_; }
  // Text of config.json.
  const std::string& config() const { return config_; }
  // Text of generation_config.json; empty when there is none.
  const std::string& generation_config() const { return generation_config_; }
  // Text of another file of the folder. NOT_FOUND and OUT_OF_RANGE name it.
  Result<std::string> ReadText(FileSystem& fs, std::string_view name, size_t max_bytes) const;

  // Of weights, by name.
  const std::vector<SafetensorsFile>& files() const { return files_; }
  struct Place {
    const SafetensorsFile* file = nullptr;  // null when there is no such tensor
    const SafetensorsTensor* tensor = nullptr;
  };
  Place FindTensor(std::string_view name) const;

 private:
  HfFolder() = default;
  std::string PathOf(std::string_view name) const;
  Status OpenShards(FileSystem& fs, const std::string& index_path, std::string_view index);
  Status MissingWeights(FileSystem& fs) const;

  std::string directory_;
  std::string config_;
  std::string generation_config_;
  std::vector<SafetensorsFile> files_;
};

// Whether `path` is a directory.
bool IsDirectory(FileSystem& fs, const std::string& path);

}  // namespace tandem
