// What: ModelWeights: the packed matrices and f32 vectors of one model (or of one tensor-parallel
//   part of it), mapped from a cache file that all processes share, or packed into memory.
// Not here: the packed order (kernels/packed_matrix.h), the plan (weights_plan.h), the cache file
//   (weights_cache.h), what the names mean.
// Threads: Open on one thread; afterwards immutable, any thread.
// Invariants: weights exist once: a tied output is the embedding's matrix. A cache file is used
//   only for the content, packed layout and shard it was made from, and only whole and undamaged.
// Cost: the first start reads the model file twice (identity, packing). Later ones map the cache:
//   some milliseconds, plus one reading of it when it has not been verified yet as it lies there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/packed_matrix.h"
#include "model/model_source.h"
#include "model/weights_plan.h"
#include "os/file.h"
#include "os/memory.h"
#include "tensor/state_group.h"

namespace tandem {

struct WeightsOptions {
  std::string cache_dir;  // as UserCacheDir(); must not be empty with use_cache
  bool use_cache = true;  // false: pack into memory, touch no cache (tests)
  Shard shard;            // matrices are split as tensor_layout.h says
  // How long another process may keep us waiting that packs weights; then they are packed into
  // memory.
  int64_t lock_wait_ms = 600'000;
  LoadProgress progress;  // of packing; may be empty
};

class ModelWeights {
 public:
  // With the cache, requires that source.Identify has succeeded. A damaged cache is packed anew;
  // one that cannot be written (disk full, no permission) is replaced by memory; both are logged.
  // Fails on shapes that the shards do not divide, types without a packed layout (UNIMPLEMENTED, by
  // name), a file that ends early or changes while it is read, and when memory runs out. `source`
  // may go once this has returned.
  static Result<std::unique_ptr<ModelWeights>> Open(FileSystem& fs, const ModelSource& source,
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
  explicit ModelWeights(WeightPlan plan);
  // Leaves bytes_ empty when the cache cannot be used.
  Status UseCache(FileSystem& fs, const ModelSource& source, const WeightsOptions& options);
  Status PackIntoMemory(const ModelSource& source, const WeightsOptions& options);
  Status Fill(const ModelSource& source, const WeightsOptions& options,
              const WeightSink& sink) const;
  // The entry of this name and kind, or null.
  const WeightEntry* Find(std::string_view name, TensorKind kind) const;

  WeightPlan plan_;
  std::vector<uint32_t> order_;  // indices of plan_.entries sorted by name
  MappedFile map_;               // one of these two holds bytes_
  MemoryRegion memory_;
  std::span<const std::byte> bytes_;
  bool from_cache_ = false;
  std::string cache_path_;
};

}  // namespace tandem
