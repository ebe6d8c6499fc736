#include "os/fault_file_system.h"

#include <algorithm>
#include <utility>

namespace tandem {

class FaultReadableFile final : public ReadableFile {
 public:
  FaultReadableFile(FaultFileSystem& fs, std::unique_ptr<ReadableFile> base)
      : fs_(fs), base_(std::move(base)) {}

  const std::string& path() const override { return base_->path(); }
  int64_t size() const override { return base_->size(); }
  Result<FileStamp> Stamp() const override {
    TANDEM_RETURN_IF_ERROR(fs_.Next("stamp", path()));
    return base_->Stamp();
  }
  Result<size_t> ReadSome(int64_t offset, std::span<std::byte> out) const override {
    TANDEM_RETURN_IF_ERROR(fs_.Next("read", path()));
    return base_->ReadSome(offset, out);
  }

 private:
  FaultFileSystem& fs_;
  const std::unique_ptr<ReadableFile> base_;
};

class FaultWritableFile final : public WritableFile {
 public:
  FaultWritableFile(FaultFileSystem& fs, std::string path, std::unique_ptr<WritableFile> base)
      : fs_(fs), path_(std::move(path)), base_(std::move(base)) {}

  Status Write(std::span<const std::byte> bytes) override {
    TANDEM_RETURN_IF_ERROR(fs_.Next("write", path_));
    const auto allowed =
        static_cast<size_t>(std::min(fs_.write_budget_, static_cast<int64_t>(bytes.size())));
    TANDEM_RETURN_IF_ERROR(base_->Write(bytes.first(allowed)));
    fs_.write_budget_ -= static_cast<int64_t>(allowed);
    if (allowed == bytes.size()) return OkStatus();
    return ResourceExhaustedError("cannot write {}: no space left (injected)", path_);
  }
  Status Sync() override {
    TANDEM_RETURN_IF_ERROR(fs_.Next("sync", path_));
    return base_->Sync();
  }

 private:
  FaultFileSystem& fs_;
  const std::string path_;
  const std::unique_ptr<WritableFile> base_;
};

void FaultFileSystem::FailAt(int64_t index, Status status, bool and_later) {
  fail_at_ = index;
  failure_ = std::move(status);
  and_later_ = and_later;
}

Status FaultFileSystem::Next(std::string_view operation, const std::string& path) {
  const int64_t index = operations_++;
  if (fail_at_ >= 0 && (index == fail_at_ || (and_later_ && index > fail_at_))) return failure_;
  return hook_ ? hook_(operation, path) : OkStatus();
}

Result<std::unique_ptr<ReadableFile>> FaultFileSystem::Open(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("open", path));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, base_.Open(path));
  return std::unique_ptr<ReadableFile>(std::make_unique<FaultReadableFile>(*this, std::move(file)));
}

Result<MappedFile> FaultFileSystem::Map(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("map", path));
  return base_.Map(path);
}

Result<std::unique_ptr<WritableFile>> FaultFileSystem::Create(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("create", path));
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, base_.Create(path));
  return std::unique_ptr<WritableFile>(
      std::make_unique<FaultWritableFile>(*this, path, std::move(file)));
}

Status FaultFileSystem::Rename(const std::string& from, const std::string& to) {
  TANDEM_RETURN_IF_ERROR(Next("rename", to));
  return base_.Rename(from, to);
}

Status FaultFileSystem::Remove(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("remove", path));
  return base_.Remove(path);
}

Status FaultFileSystem::SyncDirectory(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("sync_directory", path));
  return base_.SyncDirectory(path);
}

Status FaultFileSystem::CreateDirectories(const std::string& path, uint32_t mode) {
  TANDEM_RETURN_IF_ERROR(Next("create_directories", path));
  return base_.CreateDirectories(path, mode);
}

Result<std::vector<std::string>> FaultFileSystem::List(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("list", path));
  return base_.List(path);
}

Result<std::string> FaultFileSystem::Canonical(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("canonical", path));
  return base_.Canonical(path);
}

Result<std::unique_ptr<FileLock>> FaultFileSystem::TryLock(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(Next("lock", path));
  return base_.TryLock(path);
}

}  // namespace tandem
