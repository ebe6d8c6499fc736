// GGUF files in parts: finds the others of a first part and checks that they are one model.
#include <algorithm>
#include <numeric>

#include "model/gguf.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

// All are open at once, and a process may have 1024 files; the largest public model has about 200.
constexpr int64_t kMaxParts = 512;

std::string Suffix(int64_t part, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, count);
}

// Requires a part that says it is not the only one.
Status CheckNumbers(const GgufFile& file, int64_t part, int64_t count) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t own_count, file.GetInt("split.count"));
  TANDEM_ASSIGN_OR_RETURN(const int64_t own_part, file.GetInt("split.no"));
  if (own_count == count && own_part == part) return OkStatus();
  return DataLossError("{} says that it is part {} of {}; it lies where part {} of {} belongs",
                       file.path(), own_part + 1, own_count, part + 1, count);
}

}  // namespace

Status GgufFile::OpenOtherParts(FileSystem& fs) {
  TANDEM_ASSIGN_OR_RETURN(const int64_t count, GetIntOr("split.count", 1));
  if (count < 0 || count > kMaxParts) {
    return OutOfRangeError("{}: the file is one of {} parts; at most {} are allowed", path(), count,
                           kMaxParts);
  }
  if (count <= 1) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t number, GetIntOr("split.no", 0));
  const std::string suffix = Suffix(number, count);
  if (number < 0 || number >= count || !path().ends_with(suffix)) {
    return FailedPreconditionError(
        "{} says that it is part {} of {}; its name must end in {} for the others to be found",
        path(), number + 1, count, suffix);
  }
  const std::string prefix = path().substr(0, path().size() - suffix.size());
  if (number != 0) {
    return InvalidArgumentError("{} is part {} of {}: name the first part, {}{}", path(),
                                number + 1, count, prefix, Suffix(0, count));
  }
  for (int64_t part = 1; part < count; ++part) {
    const std::string other = prefix + Suffix(part, count);
    Result<std::unique_ptr<ReadableFile>> file = fs.Open(other);
    if (!file.ok() && file.status().code() == StatusCode::kNotFound) {
      return NotFoundError("part {} of {} is missing: {}", part + 1, count, other);
    }
    if (!file.ok()) return file.status();
    TANDEM_ASSIGN_OR_RETURN(GgufFile opened, Read(std::move(file).value()));
    TANDEM_RETURN_IF_ERROR(CheckNumbers(opened, part, count));
    for (GgufTensor& tensor : opened.tensors_) {
      tensor.part = static_cast<uint32_t>(part);
      tensors_.push_back(tensor);
    }
    opened.tensors_.clear();
    opened.tensor_order_.clear();
    other_parts_.push_back(std::move(opened));
  }
  return SortAllTensors();
}

Status GgufFile::SortAllTensors() {
  tensor_order_.resize(tensors_.size());
  std::iota(tensor_order_.begin(), tensor_order_.end(), 0u);
  std::sort(tensor_order_.begin(), tensor_order_.end(),
            [this](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  const auto twice = std::adjacent_find(
      tensor_order_.begin(), tensor_order_.end(),
      [this](uint32_t a, uint32_t b) { return tensors_[a].name == tensors_[b].name; });
  if (twice != tensor_order_.end()) {
    return DataLossError("tensor '{}' is in part {} and in part {} of {}",
                         EscapeText(tensors_[twice[0]].name, 100), tensors_[twice[0]].part + 1,
                         tensors_[twice[1]].part + 1, path());
  }
  const auto all = static_cast<int64_t>(tensors_.size());
  TANDEM_ASSIGN_OR_RETURN(const int64_t expected, GetIntOr("split.tensors.count", all));
  if (expected == all) return OkStatus();
  return DataLossError("{} and its other parts should have {} tensors; they have {}", path(),
                       expected, all);
}

}  // namespace tandem
