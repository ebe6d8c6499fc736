// What: the cache file of packed weights: its name, its bytes around the weights, and how it is
//   checked, written once and shared.
// Not here: the weights' own bytes (weights_plan.h); the fall-back to memory (weights.h).
// Threads: one; any number of processes at the same directory.
// Invariants: the head of a file is a function of its key and plan, so a file is accepted only if
//   it begins with exactly the bytes that we would write: nothing in it is parsed or trusted. The
//   tail holds a checksum of the weights, verified unless the stamp index knows that this very file
//   was.
// Based on: docs/formats/packed-cache.md, which describes the file for people.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "model/weights_plan.h"
#include "os/file.h"

namespace tandem {

class WeightsCache {
 public:
  // For weights of a model whose content is `identity`. `plan` must outlive this object.
  WeightsCache(FileSystem& fs, const std::string& cache_dir, Hash128 identity, Shard shard,
               const WeightPlan& plan);

  const std::string& path() const { return path_; }

  // The mapped file. NOT_FOUND when there is none; DATA_LOSS says what is damaged.
  Result<MappedFile> Open() const;

  // Waits until no other process writes a cache here. Null when the file system has no locks, which
  // costs double work and nothing else. UNAVAILABLE after `wait_ms`.
  Result<std::unique_ptr<FileLock>> Lock(int64_t wait_ms) const;

  // Writes the file: `fill` passes the weights to its sink. What it returns is returned; a failure
  // of the file itself sets `*cache_failed`. With a `lock`, removes what a killed process has left
  // behind.
  Status Build(const FileLock* lock, const std::function<Status(const WeightSink&)>& fill,
               bool* cache_failed);

  // The weights in a mapping that Open has returned.
  std::span<const std::byte> WeightsOf(const MappedFile& file) const;

 private:
  Status Verify(const MappedFile& file, int64_t moment_ns) const;
  Status WriteAll(AtomicFile& file, const std::function<Status(const WeightSink&)>& fill,
                  Status* sink_status);
  void RemoveLeftovers() const;

  FileSystem& fs_;
  const std::string cache_dir_;
  const std::string directory_;
  std::string path_;
  const int64_t weights_bytes_;
  std::vector<std::byte> head_;
};

}  // namespace tandem
