#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "model/weights_cache.h"

namespace tandem {
namespace {

// Open, with what is worth telling: anything but "there is none".
Result<MappedFile> TryCache(const WeightsCache& cache) {
  Result<MappedFile> file = cache.Open();
  if (!file.ok() && file.status().code() != StatusCode::kNotFound) {
    LogWarning("the packed weights in {} are not usable and will be packed anew: {}", cache.path(),
               file.status().message());
  }
  return file;
}

}  // namespace

ModelWeights::ModelWeights(WeightPlan plan) : plan_(std::move(plan)) {
  order_.resize(plan_.entries.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::sort(order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) {
    return plan_.entries[a].name < plan_.entries[b].name;
  });
}

Result<std::unique_ptr<ModelWeights>> ModelWeights::Open(FileSystem& fs, const ModelSource& source,
                                                         const WeightsOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(WeightPlan plan, PlanWeights(source, options.shard));
  std::unique_ptr<ModelWeights> weights(new ModelWeights(std::move(plan)));
  if (options.use_cache) {
    TANDEM_RETURN_IF_ERROR(weights->UseCache(fs, source, options));
  }
  if (weights->bytes_.empty()) {
    TANDEM_RETURN_IF_ERROR(weights->PackIntoMemory(source, options));
  }
  for (WeightEntry& entry : weights->plan_.entries) entry.source = nullptr;  // it may go
  return weights;
}

Status ModelWeights::UseCache(FileSystem& fs, const ModelSource& source,
                              const WeightsOptions& options) {
  const Hash128 identity = source.spec().identity;
  TANDEM_CHECK(!options.cache_dir.empty());
  TANDEM_CHECK(!(identity == Hash128()));
  WeightsCache cache(fs, options.cache_dir, identity, options.shard, plan_);
  Result<MappedFile> mapped = TryCache(cache);
  from_cache_ = mapped.ok();
  if (!mapped.ok()) {
    bool cache_failed = true;
    const Result<std::unique_ptr<FileLock>> lock = cache.Lock(options.lock_wait_ms);
    Status status = lock.status();
    if (lock.ok()) {
      mapped = cache.Open();  // another process may have packed it while we waited
      from_cache_ = mapped.ok();
      if (!mapped.ok()) {
        status = cache.Build(
            lock->get(), [&](const WeightSink& sink) { return Fill(source, options, sink); },
            &cache_failed);
        if (!status.ok() && !cache_failed) return status;
        if (status.ok()) {
          mapped = cache.Open();
          status = mapped.status();
        }
      }
    }
    if (!status.ok()) {
      LogWarning("the packed weights are kept in memory, and packed again at the next start: {}",
                 status.message());
      return OkStatus();
    }
    if (!from_cache_) {
      LogInfo("packed weights: {} (it may be removed at any time)", cache.path());
    }
  }
  map_ = std::move(mapped).value();
  bytes_ = cache.WeightsOf(map_);
  cache_path_ = cache.path();
  return OkStatus();
}

Status ModelWeights::PackIntoMemory(const ModelSource& source, const WeightsOptions& options) {
  Result<MemoryRegion> memory = MemoryRegion::Allocate(plan_.total_bytes);
  if (!memory.ok()) return memory.status().WithContext("packing the weights");
  memory_ = std::move(memory).value();
  std::span<std::byte> room = memory_.bytes();
  TANDEM_RETURN_IF_ERROR(Fill(source, options, [&room](std::span<const std::byte> bytes) {
    std::memcpy(room.data(), bytes.data(), bytes.size());
    room = room.subspan(bytes.size());
    return OkStatus();
  }));
  bytes_ = std::as_const(memory_).bytes();
  return OkStatus();
}

Status ModelWeights::Fill(const ModelSource& source, const WeightsOptions& options,
                          const WeightSink& sink) const {
  constexpr int64_t kReportBytes = 1 << 20;
  int64_t done = 0;
  int64_t reported = 0;
  const WeightSink counting = [&](std::span<const std::byte> bytes) -> Status {
    TANDEM_RETURN_IF_ERROR(sink(bytes));
    done += static_cast<int64_t>(bytes.size());
    if (options.progress && (done - reported >= kReportBytes || done == plan_.total_bytes)) {
      options.progress(done, plan_.total_bytes);
      reported = done;
    }
    return OkStatus();
  };
  TANDEM_RETURN_IF_ERROR(WriteWeights(source, plan_, counting));
  return source.CheckUnchanged();
}

const WeightEntry* ModelWeights::Find(std::string_view name, TensorKind kind) const {
  const auto it = std::lower_bound(
      order_.begin(), order_.end(), name,
      [this](uint32_t i, std::string_view n) { return plan_.entries[i].name < n; });
  if (it == order_.end()) return nullptr;
  const WeightEntry& entry = plan_.entries[*it];
  return entry.name == name && entry.kind == kind ? &entry : nullptr;
}

Result<PackedMatrix> ModelWeights::Matrix(std::string_view name) const {
  const WeightEntry* entry = Find(name, TensorKind::kMatrix);
  if (entry == nullptr) return NotFoundError("there is no weight matrix '{}'", name);
  return PackedMatrix{bytes_.data() + entry->offset, entry->dtype, entry->rows, entry->cols};
}

Result<std::span<const float>> ModelWeights::Vector(std::string_view name) const {
  const WeightEntry* entry = Find(name, TensorKind::kVector);
  if (entry == nullptr) return NotFoundError("there is no weight vector '{}'", name);
  return std::span(reinterpret_cast<const float*>(bytes_.data() + entry->offset),
                   static_cast<size_t>(entry->cols));
}

}  // namespace tandem
