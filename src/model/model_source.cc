#include "model/model_source.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/log.h"
#include "model/hf_config.h"
#include "model/spec_from_gguf.h"
#include "model/stamp_index.h"
#include "model/tensor_layout.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr size_t kNameBytes = 100;  // of a name in a message

Status CheckUnchangedFile(const ReadableFile& file, const FileStamp& stamp) {
  TANDEM_ASSIGN_OR_RETURN(const FileStamp now, file.Stamp());
  if (now == stamp) return OkStatus();
  return UnavailableError("{} has changed while it was read; try again", file.path());
}

// Reads the whole file once.
Result<Hash128> HashFile(const ReadableFile& file, const LoadProgress& progress) {
  constexpr int64_t kPiece = 4 << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kPiece, file.size())));
  Hasher hasher;
  for (int64_t done = 0; done < file.size();) {
    const int64_t n = std::min(kPiece, file.size() - done);
    const std::span<std::byte> piece = std::span(buffer).first(static_cast<size_t>(n));
    TANDEM_RETURN_IF_ERROR(file.ReadAt(done, piece));
    hasher.Update(piece);
    done += n;
    if (progress) progress(done, file.size());
  }
  return hasher.Digest();
}

std::string FolderName(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

Result<SourceTensor> TakeFolderTensor(const HfFolder& folder, const TensorSpec& expected) {
  const std::string name = HfTensorName(expected.name);
  const HfFolder::Place place = folder.FindTensor(name);
  if (place.tensor == nullptr) return NotFoundError("tensor '{}' is missing", name);
  const SafetensorsTensor& tensor = *place.tensor;
  if (!tensor.type->dtype) {
    return UnimplementedError(
        "tensor '{}' is {}, which is not supported: Tandem runs F32, F16 and BF16", name,
        tensor.type->name);
  }
  std::vector<int64_t> shape = {expected.rows, expected.cols};
  if (expected.kind == TensorKind::kVector) shape = {expected.cols};
  if (tensor.shape != shape) {
    return InvalidArgumentError("tensor '{}' must have the shape [{}]; it has {}", name,
                                fmt::join(shape, ", "), tensor.ShapeText());
  }
  return SourceTensor{expected.name, *tensor.type->dtype, expected.rows, expected.cols,
                      tensor.bytes,  &place.file->file(), tensor.offset};
}

// Tensors that some checkpoints have and that follow from the configuration.
bool IsRedundant(std::string_view name, const ModelSpec& spec) {
  if (name.ends_with(".self_attn.rotary_emb.inv_freq")) return true;
  return spec.tied_embeddings && name == HfTensorName("output.weight");
}

}  // namespace

Result<std::unique_ptr<ModelSource>> ModelSource::Open(FileSystem& fs, const std::string& path) {
  std::unique_ptr<ModelSource> source(new ModelSource(fs, path));
  if (IsDirectory(fs, path)) {
    TANDEM_RETURN_IF_ERROR(source->OpenFolder());
  } else if (path.ends_with(".safetensors")) {
    return InvalidArgumentError("{} is a file of weights: name the folder that it lies in", path);
  } else {
    TANDEM_RETURN_IF_ERROR(source->OpenGguf());
  }
  source->order_.resize(source->tensors_.size());
  std::iota(source->order_.begin(), source->order_.end(), 0u);
  std::sort(source->order_.begin(), source->order_.end(), [&](uint32_t a, uint32_t b) {
    return source->tensors_[a].name < source->tensors_[b].name;
  });
  return source;
}

Status ModelSource::OpenGguf() {
  TANDEM_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(fs_, path_));
  gguf_ = std::make_unique<GgufFile>(std::move(file));
  TANDEM_ASSIGN_OR_RETURN(spec_, SpecFromGguf(*gguf_));
  for (const TensorSpec& expected : TensorsOf(spec_)) {
    const GgufTensor* tensor = gguf_->FindTensor(expected.name);
    TANDEM_CHECK(tensor != nullptr && tensor->type != nullptr && tensor->type->dtype);
    tensors_.push_back({expected.name, *tensor->type->dtype, tensor->dims[1], tensor->dims[0],
                        tensor->bytes, &gguf_->part(tensor->part).file(), tensor->offset});
  }
  for (size_t i = 0; i < gguf_->num_parts(); ++i) {
    files_.push_back({&gguf_->part(i).file(), gguf_->part(i).stamp()});
  }
  return OkStatus();
}

Status ModelSource::OpenFolder() {
  TANDEM_ASSIGN_OR_RETURN(HfFolder folder, HfFolder::Open(fs_, path_));
  folder_ = std::make_unique<HfFolder>(std::move(folder));
  Result<ModelSpec> spec = SpecFromHfConfig(folder_->config(), FolderName(path_));
  if (!spec.ok()) return spec.status().WithContext(path_);
  spec_ = std::move(spec).value();
  TANDEM_RETURN_IF_ERROR(folder_->OpenWeights(fs_));
  return TakeFolderTensors().WithContext(path_);
}

Status ModelSource::TakeFolderTensors() {
  for (const SafetensorsFile& file : folder_->files()) {
    files_.push_back({&file.file(), file.stamp()});
  }
  for (const TensorSpec& expected : TensorsOf(spec_)) {
    TANDEM_ASSIGN_OR_RETURN(SourceTensor tensor, TakeFolderTensor(*folder_, expected));
    tensors_.push_back(std::move(tensor));
  }
  return CheckNoOthers();
}

Status ModelSource::CheckNoOthers() const {
  std::set<std::string, std::less<>> known;
  for (const SourceTensor& tensor : tensors_) known.insert(HfTensorName(tensor.name));
  for (const SafetensorsFile& file : folder_->files()) {
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (known.contains(tensor.name) || IsRedundant(tensor.name, spec_)) continue;
      return UnimplementedError("tensor '{}' has no place in a {} model as Tandem computes it",
                                EscapeText(tensor.name, kNameBytes), spec_.architecture);
    }
  }
  return OkStatus();
}

const SourceTensor* ModelSource::FindTensor(std::string_view name) const {
  const auto it =
      std::lower_bound(order_.begin(), order_.end(), name,
                       [this](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == order_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

Status ModelSource::ReadTensor(const SourceTensor& tensor, int64_t offset,
                               std::span<std::byte> out) const {
  TANDEM_CHECK_GE(offset, 0);
  TANDEM_CHECK_LE(offset + static_cast<int64_t>(out.size()), tensor.bytes);
  const Status status = tensor.file->ReadAt(tensor.offset + offset, out);
  if (status.ok()) return status;
  return status.WithContext(fmt::format("reading tensor '{}'", tensor.name));
}

Status ModelSource::CheckUnchanged() const {
  for (const File& f : files_) TANDEM_RETURN_IF_ERROR(CheckUnchangedFile(*f.file, f.stamp));
  return OkStatus();
}

Result<Hash128> ModelSource::HashOf(const File& f, const std::string& cache_dir,
                                    const LoadProgress& progress) const {
  std::unique_ptr<StampIndex> index;
  StampIndex::Moment moment;
  if (!cache_dir.empty()) {
    index = std::make_unique<StampIndex>(fs_, cache_dir);
    moment = index->Now();
    TANDEM_RETURN_IF_ERROR(CheckUnchangedFile(*f.file, f.stamp));  // the stamp is of this moment
    if (const std::optional<Hash128> known = index->Find(f.file->path(), f.stamp)) return *known;
  }
  LogDebug("hashing {}", f.file->path());
  TANDEM_ASSIGN_OR_RETURN(const Hash128 hash, HashFile(*f.file, progress));
  TANDEM_RETURN_IF_ERROR(CheckUnchangedFile(*f.file, f.stamp));
  if (index != nullptr) index->Record(f.file->path(), f.stamp, moment, hash);
  return hash;
}

Status ModelSource::Identify(const std::string& cache_dir, const LoadProgress& progress) {
  int64_t total = 0;
  for (const File& f : files_) total += f.file->size();
  Hasher all;
  // The configuration is part of a folder's model; a GGUF file holds its own.
  all.Update(folder_ != nullptr ? folder_->config() : std::string("gguf"));
  int64_t before = 0;
  Hash128 last;
  for (const File& f : files_) {
    LoadProgress of_all;
    if (progress) of_all = [&](int64_t done, int64_t) { progress(before + done, total); };
    TANDEM_ASSIGN_OR_RETURN(last, HashOf(f, cache_dir, of_all));
    all.Update(last.high);
    all.Update(last.low);
    before += f.file->size();
  }
  spec_.identity = gguf_ != nullptr && files_.size() == 1 ? last : all.Digest();
  return OkStatus();
}

}  // namespace tandem
