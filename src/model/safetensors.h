// What: SafetensorsFile: the tensor table of a .safetensors file, and its tensors' bytes.
// Not here: which files make a model (hf_folder.h), what the names mean (hf_config.h).
// Threads: immutable after Open; any thread.
// Invariants: when Open has succeeded, the tensors cover the file behind its header exactly: no
//   holes, no overlaps, nothing behind the last; their sizes are those of their shapes and types.
// Cost: reads the header once; memory is a small multiple of it, and nothing is allocated that the
//   file's size does not allow. Tensor bytes are read on demand and never mapped.
// Based on: the safetensors format of Hugging Face; docs/formats/safetensors.md says what is
//   accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "os/file.h"
#include "tensor/dtype.h"

namespace tandem {

struct SafetensorsType {
  std::string_view name;       // "BF16"
  int32_t bits = 0;            // per value
  std::optional<DType> dtype;  // what Tandem computes with; none: known, not supported
};

// Null when the format knows no such type.
const SafetensorsType* FindSafetensorsType(std::string_view name);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> shape;  // outermost first, as in the file; empty for a scalar
  int64_t offset = 0;          // from the start of the file
  int64_t bytes = 0;

  // Requires a tensor of a SafetensorsFile.
  int64_t num_elements() const;
  // "[1536, 576]"
  std::string ShapeText() const;
};

class SafetensorsFile {
 public:
  // DATA_LOSS says what is wrong and where; OUT_OF_RANGE names a limit. The file's path is in the
  // message.
  static Result<SafetensorsFile> Open(FileSystem& fs, const std::string& path);
  // The same of an open file (tests, fuzzing).
  static Result<SafetensorsFile> Read(std::unique_ptr<ReadableFile> file);

  const std::string& path() const { return file_->path(); }
  const ReadableFile& file() const { return *file_; }
  // Of the file before its header was read.
  const FileStamp& stamp() const { return stamp_; }
  int64_t file_bytes() const { return file_->size(); }
  // Length field and header; the tensors' bytes begin here.
  int64_t header_bytes() const { return header_bytes_; }

  // In order of their bytes in the file.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* FindTensor(std::string_view name) const;  // null when absent
  // The entries of "__metadata__", in the file's order.
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }

 private:
  SafetensorsFile() = default;
  Status ReadHeader();
  Status PlaceTensors();

  std::unique_ptr<ReadableFile> file_;
  FileStamp stamp_;
  int64_t header_bytes_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<uint32_t> order_;  // indices sorted by name
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace tandem
