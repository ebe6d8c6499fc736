#include "model/stamp_index.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "base/log.h"

namespace tandem {
namespace {

// On disk: this record, in the machine's byte order (the index never leaves the machine).
struct StampRecord {
  char magic[8];
  uint64_t inode;
  int64_t size;
  int64_t mtime_ns;
  int64_t ctime_ns;
  uint64_t hash_high;
  uint64_t hash_low;
  uint64_t check_high;  // hash of the fields above and the path
  uint64_t check_low;
};
static_assert(sizeof(StampRecord) == 72);

constexpr std::string_view kMagic = "TNDMSTM1";

StampRecord MakeRecord(const std::string& canonical, const FileStamp& stamp, Hash128 hash) {
  StampRecord r{};
  std::memcpy(r.magic, kMagic.data(), sizeof r.magic);
  r.inode = stamp.inode;
  r.size = stamp.size;
  r.mtime_ns = stamp.mtime_ns;
  r.ctime_ns = stamp.ctime_ns;
  r.hash_high = hash.high;
  r.hash_low = hash.low;
  Hasher hasher;
  hasher.Update(std::as_bytes(std::span(&r, 1)).first(offsetof(StampRecord, check_high)));
  hasher.Update(canonical);
  const Hash128 check = hasher.Digest();
  r.check_high = check.high;
  r.check_low = check.low;
  return r;
}

std::string FileFor(const std::string& directory, const std::string& canonical) {
  return fmt::format("{}/{}.stamp", directory,
                     HashBytes(std::as_bytes(std::span(canonical))).ToHex());
}

}  // namespace

StampIndex::StampIndex(FileSystem& fs, const std::string& cache_dir)
    : fs_(fs), directory_(cache_dir + "/index") {}

std::optional<Hash128> StampIndex::Find(const std::string& path, const FileStamp& stamp) const {
  const Result<std::string> canonical = fs_.Canonical(path);
  if (!canonical.ok()) return std::nullopt;
  const Result<std::string> text =
      ReadSmallFile(fs_, FileFor(directory_, *canonical), sizeof(StampRecord));
  if (!text.ok() || text->size() != sizeof(StampRecord)) return std::nullopt;
  StampRecord r;
  std::memcpy(&r, text->data(), sizeof r);
  const Hash128 hash = {r.hash_high, r.hash_low};
  // The record of this very path, stamp and hash has one form; any other bytes are not it.
  const StampRecord expected = MakeRecord(*canonical, stamp, hash);
  if (std::memcmp(&r, &expected, sizeof r) != 0) return std::nullopt;
  return hash;
}

void StampIndex::Record(const std::string& path, const FileStamp& stamp, Moment moment,
                        Hash128 hash) {
  if (stamp.ctime_ns > moment.ns - kQuietNs) {
    LogDebug("{} has changed just now: its hash is not recorded", path);
    return;
  }
  const Result<std::string> canonical = fs_.Canonical(path);
  const Status status = canonical.ok()
                            ? Write(FileFor(directory_, *canonical), *canonical, stamp, hash)
                            : canonical.status();
  if (!status.ok()) LogDebug("the hash of {} is not recorded: {}", path, status.message());
}

Status StampIndex::Write(const std::string& file, const std::string& canonical,
                         const FileStamp& stamp, Hash128 hash) {
  constexpr uint32_t kPrivate = 0700;
  TANDEM_RETURN_IF_ERROR(fs_.CreateDirectories(directory_, kPrivate));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> out, AtomicFile::Create(fs_, file));
  const StampRecord record = MakeRecord(canonical, stamp, hash);
  TANDEM_RETURN_IF_ERROR(out->Write(std::as_bytes(std::span(&record, 1))));
  return out->Commit();
}

}  // namespace tandem
