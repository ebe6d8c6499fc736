// What: GgufHeader, the metadata and tensor table of a GGUF file to be written; and GgufWriter,
//   which writes such a file (version 3, little-endian) with its tensors' bytes streamed behind it.
// Not here: reading (gguf.h), which keys a model needs (synth.h), codecs.
// Threads: one.
// Invariants: the file appears under its name complete, with Commit, or not at all.
// Cost: memory is that of the header.
// Based on: the GGUF specification of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/ggml_types.h"
#include "model/gguf.h"
#include "os/file.h"

namespace tandem {

class GgufHeader {
 public:
  // Tensors begin at multiples of it: a power of two. Other values than 32 need the key
  // "general.alignment" too.
  explicit GgufHeader(int64_t alignment = 32);

  // Adds a key, which must not be there yet.
  void AddU32(std::string_view key, uint32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddI32s(std::string_view key, std::span<const int32_t> values);
  // Adds a key with its value as it lies in another file.
  void AddEntry(const GgufFile& file, const GgufEntry& entry);

  // Adds a matrix [rows, cols], or, with dims of one number, a vector: `dims` innermost first.
  // Requires that the type's block divides dims[0].
  void AddTensor(std::string_view name, std::span<const int64_t> dims, const GgmlTypeInfo& type);

  size_t num_tensors() const { return tensor_bytes_.size(); }
  int64_t tensor_bytes(size_t i) const { return tensor_bytes_[i]; }
  int64_t alignment() const { return alignment_; }
  // Of the whole file.
  int64_t file_bytes() const;
  // Everything before the first tensor's bytes, padded.
  std::string Serialize() const;

 private:
  void AddKey(std::string_view key, GgufValueType type);

  const int64_t alignment_;
  uint64_t num_entries_ = 0;
  std::string entries_;  // as in the file
  std::string tensors_;  // as in the file
  std::vector<int64_t> tensor_bytes_;
  int64_t data_bytes_ = 0;  // with padding behind each tensor
};

class GgufWriter {
 public:
  // Creates the file beside `path` and writes the header. Errors are those of AtomicFile.
  static Result<std::unique_ptr<GgufWriter>> Create(FileSystem& fs, const std::string& path,
                                                    const GgufHeader& header);

  // The next bytes of the tensors' data, in the header's order; a piece must not reach beyond its
  // tensor's end. Padding between tensors is the writer's.
  Status Write(std::span<const std::byte> bytes);
  // Makes the file appear. Requires that every tensor has been written whole.
  Status Commit();

  int64_t bytes_written() const { return bytes_written_; }

 private:
  GgufWriter(std::unique_ptr<AtomicFile> file, const GgufHeader& header);
  Status Put(std::span<const std::byte> bytes);
  Status FinishTensors();

  std::unique_ptr<AtomicFile> file_;
  std::vector<int64_t> tensor_bytes_;
  const int64_t alignment_;
  size_t tensor_ = 0;  // being written
  int64_t left_ = 0;   // of it
  int64_t bytes_written_ = 0;
};

}  // namespace tandem
