// What: ModelWeights: the packed matrices and f32 vectors of one model (or of one tensor-parallel
// part of it), mapped
//   from a cache file that all processes share, or packed into memory.
// Not here: the packed order (kernels/packed_matrix.h), the cache file's format (weights_cache.h),
// what the names mean. Threads: Open on one thread; afterwards immutable, any thread. Invariants:
// weights exist once: a tied output is the embedding's matrix. A cache file is used only if its
// header,
//   every table entry and the checksum of its data hold, and only for the content, packed layout
//   and shard it was made from; it is written beside its name and renamed, so nobody sees half of
//   one.
// Cost: the first start reads the model file twice (identity, packing); later ones map the cache:
// about 1 ms, plus one
//   reading of the data when the cache was not yet verified as it lies there (stamp_index.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/model_spec.h"
#include "kernels/packed_matrix.h"
#include "os/file.h"
#include "tensor/state_group.h"

namespace tandem {

class GgufFile;

// Called now and then from long work, on the thread that does it, with done <= total in bytes.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

struct WeightsOptions {
  std::string cache_dir;  // as UserCacheDir(); the files lie in cache_dir/weights
  bool use_cache = true;  // false: pack into memory, touch no cache (tests, read-only machines)
  Shard shard;            // matrices are split as tensor_layout.h says
  LoadProgress progress;  // packing only; may be empty
};

class ModelWeights {
 public:
  // Requires `spec` from SpecFromGguf(file), with its identity set when the cache is used. A cache
  // that is damaged is packed anew; one that cannot be written is replaced by memory; both are
  // logged. Fails on shapes that the shard count does not divide, types without packed layout
  // (UNIMPLEMENTED, by name), a file that ends early or changes while it is read, and when memory
  // runs out. `file` may go once this has returned.
  static Result<std::unique_ptr<ModelWeights>> Open(FileSystem& fs, const GgufFile& file,
                                                    const ModelSpec& spec,
                                                    const WeightsOptions& options);
  ModelWeights(const ModelWeights&) = delete;
  ModelWeights& operator=(const ModelWeights&) = delete;

  // By the tensor's GGUF name ("blk.0.attn_q.weight"); the shard's part of it. NOT_FOUND names the
  // tensor. The bytes live as long as this object.
  Result<PackedMatrix> Matrix(std::string_view name) const;
  Result<std::span<const float>> Vector(std::string_view name) const;

  // M_w: bytes of all matrices and vectors, mapped or not.
  int64_t resident_bytes() const { return static_cast<int64_t>(bytes_.size()); }
  // The bytes are those of a cache file that existed before.
  bool from_cache() const { return from_cache_; }
  // Where the cache file lies; empty when the weights are in memory.
  const std::string& cache_path() const { return cache_path_; }

 private:
  ModelWeights(std::vector<PackedEntry> entries, PackedBytesOwner owner);
  const PackedEntry* Find(std::string_view name, PackedEntry::Kind kind) const;

};

}  // namespace tandem
