#include "model/weights_cache.h"

#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "kernels/packed_matrix.h"
#include "model/stamp_index.h"

namespace tandem {
namespace {

constexpr std::string_view kHeadMagic = "TNDMPACK";
constexpr std::string_view kTailMagic = "TNDMTAIL";
constexpr uint32_t kFormatVersion = 1;
constexpr size_t kHeadAlignment = 4096;  // the weights begin on a page
constexpr uint32_t kPrivate = 0700;

// The last bytes of the file.
struct Tail {
  char magic[8];
  uint64_t hash_high;  // of the weights
  uint64_t hash_low;
};
static_assert(sizeof(Tail) == 24);

class ByteWriter {
 public:
  template <typename T>
  void Put(T value) {
    const auto* p = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
  }
  void PutText(std::string_view text) {
    const auto* p = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), p, p + text.size());
  }
  void PutString(std::string_view text) {
    Put(static_cast<uint32_t>(text.size()));
    PutText(text);
  }
  void PadTo(size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<std::byte> EncodeHead(Hash128 identity, Shard shard, const WeightPlan& plan) {
  ByteWriter out;
  out.PutText(kHeadMagic);
  out.Put(kFormatVersion);
  out.Put(kPackedLayoutVersion);
  out.Put(identity.high);
  out.Put(identity.low);
  out.Put(static_cast<uint32_t>(shard.rank));
  out.Put(static_cast<uint32_t>(shard.world));
  out.Put(static_cast<uint64_t>(plan.total_bytes));
  out.Put(static_cast<uint64_t>(plan.entries.size()));
  for (const WeightEntry& entry : plan.entries) {
    out.PutString(entry.name);
    out.PutString(entry.kind == TensorKind::kMatrix ? "matrix" : "vector");
    out.PutString(NameOf(entry.dtype));
    out.Put(static_cast<uint64_t>(entry.rows));
    out.Put(static_cast<uint64_t>(entry.cols));
    out.Put(static_cast<uint64_t>(entry.offset));
    out.Put(static_cast<uint64_t>(entry.bytes));
  }
  out.PadTo(kHeadAlignment);
  return out.Take();
}

Tail TailOf(Hash128 hash) {
  Tail tail{};
  std::memcpy(tail.magic, kTailMagic.data(), sizeof tail.magic);
  tail.hash_high = hash.high;
  tail.hash_low = hash.low;
  return tail;
}

}  // namespace

WeightsCache::WeightsCache(FileSystem& fs, const std::string& cache_dir, Hash128 identity,
                           Shard shard, const WeightPlan& plan)
    : fs_(fs),
      cache_dir_(cache_dir),
      directory_(cache_dir + "/weights"),
      weights_bytes_(plan.total_bytes),
      head_(EncodeHead(identity, shard, plan)) {
  path_ = fmt::format("{}/{}-v{}-{}of{}.packed", directory_, identity.ToHex(), kPackedLayoutVersion,
                      shard.rank + 1, shard.world);
}

std::span<const std::byte> WeightsCache::WeightsOf(const MappedFile& file) const {
  return file.bytes().subspan(head_.size(), static_cast<size_t>(weights_bytes_));
}

Result<MappedFile> WeightsCache::Open() const {
  const int64_t moment_ns = fs_.NowNs();
  TANDEM_ASSIGN_OR_RETURN(MappedFile file, fs_.Map(path_));
  file.Prefetch();
  TANDEM_RETURN_IF_ERROR(Verify(file, moment_ns));
  return file;
}

Status WeightsCache::Verify(const MappedFile& file, int64_t moment_ns) const {
  const std::span<const std::byte> bytes = file.bytes();
  const size_t expected = head_.size() + static_cast<size_t>(weights_bytes_) + sizeof(Tail);
  if (bytes.size() != expected) {
    return DataLossError("it has {} bytes instead of {}", bytes.size(), expected);
  }
  if (std::memcmp(bytes.data(), head_.data(), head_.size()) != 0) {
    return DataLossError("its head does not describe this model");
  }
  Tail tail;
  std::memcpy(&tail, bytes.data() + bytes.size() - sizeof tail, sizeof tail);
  const Hash128 claimed = {tail.hash_high, tail.hash_low};
  const Tail right = TailOf(claimed);
  if (std::memcmp(&tail, &right, sizeof tail) != 0) return DataLossError("its tail is damaged");
  StampIndex index(fs_, cache_dir_);
  if (index.Find(path_, file.stamp()) == claimed) return OkStatus();
  if (HashBytes(WeightsOf(file)) != claimed) return DataLossError("the checksum does not match");
  index.Record(path_, file.stamp(), {moment_ns}, claimed);
  return OkStatus();
}

Result<std::unique_ptr<FileLock>> WeightsCache::Lock(int64_t wait_ms) const {
  TANDEM_RETURN_IF_ERROR(fs_.CreateDirectories(directory_, kPrivate));
  constexpr int64_t kPollMs = 50;
  const std::string lock_path = directory_ + "/lock";
  for (int64_t waited_ms = 0;; waited_ms += kPollMs) {
    Result<std::unique_ptr<FileLock>> lock = fs_.TryLock(lock_path);
    if (lock.ok()) return lock;
    if (lock.status().code() == StatusCode::kUnimplemented) {
      LogDebug("{}", lock.status().message());
      return std::unique_ptr<FileLock>();
    }
    if (lock.status().code() != StatusCode::kUnavailable || waited_ms >= wait_ms) return lock;
    if (waited_ms == 0) LogInfo("waiting for another process that packs weights in {}", directory_);
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
  }
}

Status WeightsCache::Build(const FileLock* lock,
                           const std::function<Status(const WeightSink&)>& fill,
                           bool* cache_failed) {
  *cache_failed = true;
  if (lock != nullptr) RemoveLeftovers();
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(fs_, path_));
  Status sink_status;
  const Status status = WriteAll(*file, fill, &sink_status);
  *cache_failed = !sink_status.ok();
  return status;
}

Status WeightsCache::WriteAll(AtomicFile& file,
                              const std::function<Status(const WeightSink&)>& fill,
                              Status* sink_status) {
  const auto write = [&](std::span<const std::byte> bytes) {
    if (sink_status->ok()) *sink_status = file.Write(bytes);
    return *sink_status;
  };
  Hasher hasher;
  TANDEM_RETURN_IF_ERROR(write(head_));
  TANDEM_RETURN_IF_ERROR(fill([&](std::span<const std::byte> bytes) {
    hasher.Update(bytes);
    return write(bytes);
  }));
  const Tail tail = TailOf(hasher.Digest());
  TANDEM_RETURN_IF_ERROR(write(std::as_bytes(std::span(&tail, 1))));
  *sink_status = file.Commit();
  return *sink_status;
}

void WeightsCache::RemoveLeftovers() const {
  const Result<std::vector<std::string>> names = fs_.List(directory_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.find(AtomicFile::kTempInfix) == std::string::npos) continue;
    const std::string path = directory_ + "/" + name;
    LogInfo("removing {}, left behind by a process that was killed", path);
    if (const Status s = fs_.Remove(path); !s.ok()) LogDebug("{}", s.message());
  }
}

}  // namespace tandem
