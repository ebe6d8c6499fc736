#include "model/hf_folder.h"

#include <algorithm>
#include <map>

#include "model/bounded_json.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;  // real ones have some KiB
constexpr size_t kMaxIndexBytes = 64 << 20;  // the largest public model's has about 10 MiB
constexpr size_t kMaxIndexValues = 1'000'000;
// All are open at once, and a process may have 1024 files; the largest public model has 200 or so.
constexpr size_t kMaxShards = 512;
constexpr size_t kNameBytes = 100;  // of a name in a message

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";

// A name in the index must not lead out of the folder.
bool IsPlainName(std::string_view name) {
  return name.ends_with(".safetensors") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// Collects "weight_map"; passes over the rest.
class IndexHandler final : public JsonHandler {
 public:
  IndexHandler() : JsonHandler({.max_depth = 8, .max_values = kMaxIndexValues}) {}

  // From file names to their tensors' names.
  std::map<std::string, std::vector<std::string>, std::less<>> shards;
  bool has_weight_map = false;

 private:
  Status OnBegin(bool is_object) override {
    if (depth() == 1 && !is_object) return DataLossError("a list, not a JSON object");
    if (!in_map_) return OkStatus();
    if (depth() == 2 && is_object) return OkStatus();
    return DataLossError("'weight_map' must map tensors to files");
  }
  Status OnEnd() override {
    if (depth() == 1) in_map_ = false;
    return OkStatus();
  }
  Status OnKey(std::string_view key) override {
    if (depth() == 1) {
      in_map_ = key == "weight_map";
      has_weight_map |= in_map_;
    }
    key_ = key;
    return OkStatus();
  }
  Status OnScalar(const JsonScalar& scalar) override {
    if (depth() == 0) return DataLossError("{}, not a JSON object", NameOf(scalar));
    if (!in_map_) return OkStatus();
    const auto* file = std::get_if<std::string_view>(&scalar);
    if (depth() != 2 || file == nullptr) {
      return DataLossError("'weight_map' must map tensors to files; it has {}", NameOf(scalar));
    }
    if (!IsPlainName(*file)) {
      return DataLossError(
          "'weight_map' names the file '{}'; only names of .safetensors files "
          "beside the index are allowed",
          EscapeText(*file, kNameBytes));
    }
    auto it = shards.find(*file);
    if (it == shards.end()) it = shards.try_emplace(std::string(*file)).first;
    it->second.push_back(key_);
    if (shards.size() <= kMaxShards) return OkStatus();
    return OutOfRangeError("'weight_map' names more than {} files", kMaxShards);
  }

  bool in_map_ = false;
  std::string key_;
};

}  // namespace

bool IsDirectory(FileSystem& fs, const std::string& path) { return fs.List(path).ok(); }

std::string HfFolder::PathOf(std::string_view name) const {
  return fmt::format("{}{}{}", directory_, directory_.ends_with('/') ? "" : "/", name);
}

Result<std::string> HfFolder::ReadText(FileSystem& fs, std::string_view name,
                                       size_t max_bytes) const {
  return ReadSmallFile(fs, PathOf(name), max_bytes);
}

Result<HfFolder> HfFolder::Open(FileSystem& fs, const std::string& directory) {
  HfFolder folder;
  folder.directory_ = directory;
  Result<std::string> config = folder.ReadText(fs, "config.json", kMaxConfigBytes);
  if (!config.ok() && config.status().code() == StatusCode::kNotFound) {
    return NotFoundError(
        "{} has no config.json, so it is not a model folder; to load a GGUF file, name the file",
        directory);
  }
  if (!config.ok()) return config.status();
  folder.config_ = std::move(config).value();
  Result<std::string> generation = folder.ReadText(fs, "generation_config.json", kMaxConfigBytes);
  if (generation.ok()) {
    folder.generation_config_ = std::move(generation).value();
  } else if (generation.status().code() != StatusCode::kNotFound) {
    return generation.status();
  }
  return folder;
}

Status HfFolder::OpenWeights(FileSystem& fs) {
  Result<SafetensorsFile> single = SafetensorsFile::Open(fs, PathOf(kSingleFile));
  if (single.ok()) {
    files_.push_back(std::move(single).value());
    return OkStatus();
  }
  if (single.status().code() != StatusCode::kNotFound) return single.status();
  const std::string index_path = PathOf(kIndexFile);
  const Result<std::string> index = ReadSmallFile(fs, index_path, kMaxIndexBytes);
  if (index.ok()) return OpenShards(fs, index_path, *index);
  return index.status().code() == StatusCode::kNotFound ? MissingWeights(fs) : index.status();
}

Status HfFolder::MissingWeights(FileSystem& fs) const {
  const Result<std::vector<std::string>> names = fs.List(directory_);
  const bool torch = names.ok() && std::any_of(names->begin(), names->end(), [](const auto& name) {
                       return name.starts_with("pytorch_model") && name.ends_with(".bin");
                     });
  if (torch) {
    return UnimplementedError(
        "{} holds its weights as pytorch_model.bin, which is not read: save them as safetensors",
        directory_);
  }
  return NotFoundError("{} has neither {} nor {}", directory_, kSingleFile, kIndexFile);
}

Status HfFolder::OpenShards(FileSystem& fs, const std::string& index_path, std::string_view index) {
  IndexHandler handler;
  Status status = handler.Run(index);
  if (status.ok() && handler.shards.empty()) {
    status = DataLossError(
        "{}", handler.has_weight_map ? "'weight_map' names no tensor" : "'weight_map' is missing");
  }
  if (!status.ok()) return status.WithContext(index_path);
  for (const auto& [name, tensors] : handler.shards) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(fs, PathOf(name));
    if (!file.ok() && file.status().code() == StatusCode::kNotFound) {
      return NotFoundError("{} is missing: {} names it (part {} of {})", PathOf(name), kIndexFile,
                           files_.size() + 1, handler.shards.size());
    }
    if (!file.ok()) return file.status();
    for (const std::string& tensor : tensors) {
      if (file->FindTensor(tensor) != nullptr) continue;
      return DataLossError("{} has no tensor '{}', though {} says so", PathOf(name),
                           EscapeText(tensor, kNameBytes), kIndexFile);
    }
    // The index names each tensor once, so any more are ones that it does not have here.
    if (file->tensors().size() != tensors.size()) {
      return DataLossError("{} has {} tensors; {} knows of {}", PathOf(name),
                           file->tensors().size(), kIndexFile, tensors.size());
    }
    files_.push_back(std::move(file).value());
  }
  return OkStatus();
}

HfFolder::Place HfFolder::FindTensor(std::string_view name) const {
  for (const SafetensorsFile& file : files_) {
    if (const SafetensorsTensor* tensor = file.FindTensor(name)) return {&file, tensor};
  }
  return {};
}

}  // namespace tandem
