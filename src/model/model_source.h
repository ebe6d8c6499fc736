// What: ModelSource: one model's configuration and tensors, wherever they lie: a GGUF file, a GGUF
//   file in parts, or a Hugging Face folder. Tensors have Tandem's names and shapes in all of them.
// Not here: the formats (gguf.h, hf_folder.h), packing (weights.h), tokenizers (their files are
//   reached by gguf() or folder()).
// Threads: Open and Identify on one thread; the rest from any.
// Invariants: when Open has succeeded, every tensor that TensorsOf(spec()) names is there with its
//   shape and a type that Tandem decodes, and there is none besides.
// Cost: Open reads headers; Identify reads every byte once, unless it knows the files already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/model_spec.h"
#include "model/gguf.h"
#include "model/hf_folder.h"
#include "os/file.h"
#include "tensor/dtype.h"

namespace tandem {

// Called now and then by long work, on the thread that does it, with done <= total in bytes.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

struct SourceTensor {
  std::string name;  // as in GGUF files: "blk.0.attn_q.weight"
  DType dtype = DType::kF32;
  int64_t rows = 1;   // 1 for a vector
  int64_t cols = 0;   // contiguous; the length of a vector
  int64_t bytes = 0;  // rows lie one after another, without gaps
  const ReadableFile* file = nullptr;
  int64_t offset = 0;  // from the start of `file`
};

class ModelSource {
 public:
  // `path` is a GGUF file (of a split one, the first part) or a folder. What Tandem does not run is
  // refused by name before a tensor is read. Errors as GgufFile::Open, SpecFromGguf,
  // HfFolder::OpenWeights and SpecFromHfConfig give them; they name the file. `fs` must outlive the
  // source.
  static Result<std::unique_ptr<ModelSource>> Open(FileSystem& fs, const std::string& path);
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;

  const std::string& path() const { return path_; }
  // Its `identity` is empty before Identify.
  const ModelSpec& spec() const { return spec_; }
  // In the order of TensorsOf.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  const SourceTensor* FindTensor(std::string_view name) const;  // null when absent

  // Fills `out` with bytes of `tensor` from `offset` on; requires the range within the tensor.
  // DATA_LOSS when the file has shrunk.
  Status ReadTensor(const SourceTensor& tensor, int64_t offset, std::span<std::byte> out) const;

  // Sets spec().identity to a hash of all bytes that make up the model, whatever its path; of a
  // single GGUF file, that of its bytes. With a `cache_dir`, files that lie there unchanged since
  // they were last hashed are not read again; an empty one means none. DATA_LOSS or UNAVAILABLE
  // when a file shrinks or changes meanwhile.
  Status Identify(const std::string& cache_dir, const LoadProgress& progress = {});
  // UNAVAILABLE when a file has changed since Open, so that what was read may not fit together.
  Status CheckUnchanged() const;

  // One of the two, the other null.
  const GgufFile* gguf() const { return gguf_.get(); }
  const HfFolder* folder() const { return folder_.get(); }

 private:
  struct File {
    const ReadableFile* file = nullptr;
    FileStamp stamp;  // when its header was read
  };

  ModelSource(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  Status OpenGguf();
  Status OpenFolder();
  Status TakeFolderTensors();
  Status CheckNoOthers() const;
  Result<Hash128> HashOf(const File& file, const std::string& cache_dir,
                         const LoadProgress& progress) const;

  FileSystem& fs_;
  const std::string path_;
  std::unique_ptr<GgufFile> gguf_;
  std::unique_ptr<HfFolder> folder_;
  ModelSpec spec_;
  std::vector<SourceTensor> tensors_;
  std::vector<uint32_t> order_;  // indices sorted by name
  std::vector<File> files_;      // that hold tensors
};

}  // namespace tandem
