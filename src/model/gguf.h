// What: GgufFile: metadata and tensor table of a GGUF file (versions 2 and 3, little-endian), and
//   its tensors' bytes; of a file in parts, all of them as one.
// Not here: what the keys mean (spec_from_gguf.h), packing (weights.h).
// Threads: immutable after Open; any thread.
// Invariants: when Open has succeeded, every string, array and tensor lies within the file, names
//   are unique, and tensors of known types do not overlap. Nothing is allocated before its size was
//   checked against the file.
// Cost: reads the header once, in pieces; memory is that of the header (three times as much while
//   it is read). Tensor bytes are read on demand and never mapped, so a file that shrinks under us
//   is an error and not a signal.
// Based on: the GGUF specification of the ggml project; docs/formats/gguf.md says what is accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/ggml_types.h"
#include "os/file.h"

namespace tandem {

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
// "u32", "string", ...
std::string_view NameOf(GgufValueType type);

// A key and where its value lies. Read it with the getters of GgufFile.
struct GgufEntry {
  std::string_view key;
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element_type = GgufValueType::kU8;  // of an array; otherwise = type
  uint64_t count = 1;                               // elements of an array; otherwise 1
  uint64_t position = 0;                            // of the value (first element) in the header
  uint64_t bytes = 0;                               // of the value (all elements)
};

struct GgufTensor {
  std::string_view name;
  uint32_t type_id = 0;                // GGML type number
  const GgmlTypeInfo* type = nullptr;  // null when the number is not known
  int32_t num_dims = 0;
  int64_t dims[4] = {1, 1, 1, 1};  // innermost (contiguous) first; unused ones are 1
  uint32_t part = 0;               // the file that it lies in: GgufFile::part
  int64_t offset = 0;              // from the start of that file
  int64_t bytes = 0;               // 0 when the type is not known

  int64_t num_elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  // "Q4_1", or "type 99"
  std::string TypeName() const;
  // "[576, 1536]", innermost first as in the file
  std::string ShapeText() const;
};

class GgufFile {
 public:
  // DATA_LOSS says what is wrong and where; UNIMPLEMENTED names an endianness or version that is
  // not read. The file's path is in the message. Of a split file, `path` is the first part, whose
  // metadata is the model's; the others are found by their names beside it (NOT_FOUND names a
  // missing one), and tensors() are those of all.
  static Result<GgufFile> Open(FileSystem& fs, const std::string& path);
  // The same of an open file (tests, fuzzing), without its other parts.
  static Result<GgufFile> Read(std::unique_ptr<ReadableFile> file);

  size_t num_parts() const { return 1 + other_parts_.size(); }
  // 0 is this object. Only what follows, up to tensors(), is meant to be asked of the others.
  // Requires i < num_parts().
  const GgufFile& part(size_t i) const { return i == 0 ? *this : other_parts_[i - 1]; }

  const std::string& path() const { return file_->path(); }
  const ReadableFile& file() const { return *file_; }
  // Of the file before its header was read.
  const FileStamp& stamp() const { return stamp_; }
  uint32_t version() const { return version_; }
  int64_t alignment() const { return alignment_; }
  int64_t file_bytes() const { return file_->size(); }
  // Bytes before the padding that precedes the tensors' data.
  int64_t header_bytes() const { return header_bytes_; }
  int64_t data_start() const { return data_start_; }

  // In the file's order; of a split file, one part after the other.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufEntry* FindEntry(std::string_view key) const;     // null when absent
  const GgufTensor* FindTensor(std::string_view name) const;  // null when absent

  // Fills `out` with bytes of `tensor` from `offset` on; requires the range within the tensor.
  // DATA_LOSS when the file has shrunk.
  Status ReadTensor(const GgufTensor& tensor, int64_t offset, std::span<std::byte> out) const;

  // Getters. NOT_FOUND names the key; INVALID_ARGUMENT names key, expected and found type. Integers
  // come from any integer type, floats from f32, f64 or an integer. Views live as long as this
  // object.
  Result<std::string_view> GetString(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  Result<std::vector<int64_t>> GetInts(std::string_view key) const;
  Result<std::vector<float>> GetFloats(std::string_view key) const;
  // A scalar stands for each of `count` layers; an array must have `count` elements.
  Result<std::vector<int64_t>> GetIntPerLayer(std::string_view key, int64_t count) const;

  // As above; `fallback` when the key is absent.
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;
  Result<bool> GetBoolOr(std::string_view key, bool fallback) const;
  Result<int64_t> GetIntOr(std::string_view key, int64_t fallback) const;
  Result<double> GetFloatOr(std::string_view key, double fallback) const;

  // The value as text for people, at most about `max_chars` long: long strings and arrays are cut
  // and say how long they are; control characters are escaped.
  std::string ValueText(const GgufEntry& entry, size_t max_chars) const;
  // The value (of an array, its elements) as it lies in the file.
  std::span<const std::byte> ValueBytes(const GgufEntry& entry) const {
    return std::span(header_).subspan(entry.position, entry.bytes);
  }

 private:
  friend class GgufParser;
  GgufFile() = default;

  Status OpenOtherParts(FileSystem& fs);
  Status SortAllTensors();
  Result<const GgufEntry*> Require(std::string_view key) const;
  Result<const GgufEntry*> RequireArray(std::string_view key, std::string_view expected) const;

  std::unique_ptr<ReadableFile> file_;
  FileStamp stamp_;
  std::vector<std::byte> header_;  // the file's first bytes; entries and names point into it
  uint32_t version_ = 0;
  int64_t alignment_ = 32;
  int64_t header_bytes_ = 0;
  int64_t data_start_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> entry_order_;   // indices sorted by key
  std::vector<uint32_t> tensor_order_;  // indices sorted by name
  std::vector<GgufFile> other_parts_;   // their tensors are in ours
};

}  // namespace tandem
