#include "os/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "base/check.h"

namespace tandem {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;

Status ErrnoStatus(int error, std::string_view action, const std::string& path) {
  const std::string message =
      fmt::format("cannot {} {}: {}", action, path, std::generic_category().message(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: return Status(StatusCode::kNotFound, message);
    case EACCES:
    case EPERM:
    case EROFS:
    case EEXIST:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTEMPTY: return Status(StatusCode::kFailedPrecondition, message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE: return Status(StatusCode::kResourceExhausted, message);
    case EWOULDBLOCK: return Status(StatusCode::kUnavailable, message);
    default: return Status(StatusCode::kInternal, message);
  }
}

// Repeats a system call that a signal has interrupted.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<Descriptor> OpenPath(const std::string& path, int flags, mode_t mode,
                            std::string_view action) {
  if (path.find('\0') != std::string::npos) {
    return InvalidArgumentError("a path must not contain a NUL byte");
  }
  const int fd = Retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) return ErrnoStatus(errno, action, path);
  return Descriptor(fd);
}

int64_t NsOf(const struct timespec& t) { return int64_t{t.tv_sec} * kNsPerSecond + t.tv_nsec; }

Result<FileStamp> StampOf(const Descriptor& fd, const std::string& path) {
  struct stat s;
  if (::fstat(fd.get(), &s) != 0) return ErrnoStatus(errno, "examine", path);
  return FileStamp{s.st_ino, s.st_size, NsOf(s.st_mtim), NsOf(s.st_ctim)};
}

// Opens a regular file for reading. O_NONBLOCK keeps the open of a pipe from waiting; regular files
// ignore it.
Result<Descriptor> OpenRegular(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(Descriptor fd, OpenPath(path, O_RDONLY | O_NONBLOCK, 0, "open"));
  struct stat s;
  if (::fstat(fd.get(), &s) != 0) return ErrnoStatus(errno, "examine", path);
  if (!S_ISREG(s.st_mode)) {
    return FailedPreconditionError("cannot open {}: {}", path,
                                   S_ISDIR(s.st_mode) ? "it is a directory" : "not a regular file");
  }
  return fd;
}

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(std::string path, Descriptor fd, int64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  Result<FileStamp> Stamp() const override { return StampOf(fd_, path_); }
  Result<size_t> ReadSome(int64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = Retry([&] {
        return ::pread(fd_.get(), out.data() + done, out.size() - done,
                       offset + static_cast<int64_t>(done));
      });
      if (n < 0) return ErrnoStatus(errno, "read", path_);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return done;
  }

 private:
  const std::string path_;
  const Descriptor fd_;
  const int64_t size_;
};

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(std::string path, Descriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Status Write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = Retry([&] { return ::write(fd_.get(), bytes.data(), bytes.size()); });
      if (n < 0) return ErrnoStatus(errno, "write", path_);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return OkStatus();
  }
  Status Sync() override {
    if (Retry([&] { return ::fsync(fd_.get()); }) != 0) return ErrnoStatus(errno, "sync", path_);
    return OkStatus();
  }

 private:
  const std::string path_;
  const Descriptor fd_;
};

class RealFileLock final : public FileLock {
 public:
  explicit RealFileLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  const Descriptor fd_;  // closing it releases the lock
};

class RealFileSystemImpl final : public FileSystem {
 public:
  Result<std::unique_ptr<ReadableFile>> Open(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(Descriptor fd, OpenRegular(path));
    TANDEM_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(fd, path));
    return std::unique_ptr<ReadableFile>(
        std::make_unique<RealReadableFile>(path, std::move(fd), stamp.size));
  }

  Result<MappedFile> Map(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(const Descriptor fd, OpenRegular(path));
    TANDEM_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(fd, path));
    const auto size = static_cast<size_t>(stamp.size);
    if (size == 0) return MappedFile(nullptr, 0, stamp);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) return ErrnoStatus(errno, "map", path);
    return MappedFile(static_cast<const std::byte*>(data), size, stamp);
  }

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(Descriptor fd,
                            OpenPath(path, O_WRONLY | O_CREAT | O_EXCL, 0600, "create"));
    return std::unique_ptr<WritableFile>(std::make_unique<RealWritableFile>(path, std::move(fd)));
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoStatus(errno, "rename to", to);
    return OkStatus();
  }

  Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return ErrnoStatus(errno, "remove", path);
    return OkStatus();
  }

  Status SyncDirectory(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(const Descriptor fd,
                            OpenPath(path, O_RDONLY | O_DIRECTORY, 0, "open directory"));
    // Some network file systems cannot sync a directory and say EINVAL: nothing more can be done.
    if (Retry([&] { return ::fsync(fd.get()); }) != 0 && errno != EINVAL) {
      return ErrnoStatus(errno, "sync directory", path);
    }
    return OkStatus();
  }

  Status CreateDirectories(const std::string& path, uint32_t mode) override {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string part = path.substr(0, end);
      if (::mkdir(part.c_str(), mode) != 0) {
        const int error = errno;  // a parent may refuse mkdir and yet be there (EROFS, EACCES)
        struct stat s;
        if (::stat(part.c_str(), &s) != 0) return ErrnoStatus(error, "create directory", part);
        if (!S_ISDIR(s.st_mode)) return ErrnoStatus(EEXIST, "create directory", part);
      }
      if (end == std::string::npos) return OkStatus();
    }
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
    if (dir == nullptr) return ErrnoStatus(errno, "list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return ErrnoStatus(errno, "list", path);
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<std::string> Canonical(const std::string& path) override {
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), &::free);
    if (real == nullptr) return ErrnoStatus(errno, "resolve", path);
    return std::string(real.get());
  }

  Result<std::unique_ptr<FileLock>> TryLock(const std::string& path) override {
    TANDEM_ASSIGN_OR_RETURN(Descriptor fd, OpenPath(path, O_RDWR | O_CREAT, 0600, "open"));
    if (Retry([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno == EOPNOTSUPP || errno == ENOLCK || errno == ENOSYS) {
        return UnimplementedError("the file system of {} has no locks", path);
      }
      return ErrnoStatus(errno, "lock", path);
    }
    return std::unique_ptr<FileLock>(std::make_unique<RealFileLock>(std::move(fd)));
  }

  int64_t NowNs() override {
    struct timespec now;
    ::clock_gettime(CLOCK_REALTIME, &now);
    return NsOf(now);
  }
};

class MemoryFile final : public ReadableFile {
 public:
  MemoryFile(std::span<const std::byte> bytes, std::string path)
      : bytes_(bytes), path_(std::move(path)) {}

  const std::string& path() const override { return path_; }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  Result<FileStamp> Stamp() const override { return FileStamp{.size = size()}; }
  Result<size_t> ReadSome(int64_t offset, std::span<std::byte> out) const override {
    TANDEM_CHECK_GE(offset, 0);
    if (offset >= size()) return size_t{0};
    const auto begin = static_cast<size_t>(offset);
    const size_t n = std::min(out.size(), bytes_.size() - begin);
    if (n > 0) std::memcpy(out.data(), bytes_.data() + begin, n);
    return n;
  }

 private:
  const std::span<const std::byte> bytes_;
  const std::string path_;
};

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Status ReadableFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  TANDEM_ASSIGN_OR_RETURN(const size_t n, ReadSome(offset, out));
  if (n == out.size()) return OkStatus();
  return DataLossError("{} ends at byte {}, {} bytes before the end of what is needed", path(),
                       offset + static_cast<int64_t>(n), out.size() - n);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Prefetch() const {
  if (data_ != nullptr) ::madvise(const_cast<std::byte*>(data_), size_, MADV_WILLNEED);
}

FileSystem& RealFileSystem() {
  static RealFileSystemImpl* const instance =
      new RealFileSystemImpl();  // never destroyed: no order at exit
  return *instance;
}

AtomicFile::AtomicFile(FileSystem& fs, std::string path, std::string temp_path,
                       std::unique_ptr<WritableFile> file)
    : fs_(fs), path_(std::move(path)), temp_path_(std::move(temp_path)), file_(std::move(file)) {}

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(FileSystem& fs, const std::string& path) {
  // Two processes have different ids, except in containers that share a directory: hence the
  // numbers.
  constexpr int kAttempts = 100;
  Status last;
  for (int i = 0; i < kAttempts; ++i) {
    const std::string temp = fmt::format("{}{}{}-{}", path, kTempInfix, ::getpid(), i);
    Result<std::unique_ptr<WritableFile>> file = fs.Create(temp);
    if (file.ok()) {
      return std::unique_ptr<AtomicFile>(new AtomicFile(fs, path, temp, std::move(file).value()));
    }
    last = file.status();
    if (last.code() != StatusCode::kFailedPrecondition) break;
  }
  return last;
}

AtomicFile::~AtomicFile() {
  file_.reset();
  if (!renamed_)
    static_cast<void>(fs_.Remove(temp_path_));  // nobody to tell; the name says what it is
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  TANDEM_CHECK(file_ != nullptr);
  return file_->Write(bytes);
}

Status AtomicFile::Commit() {
  TANDEM_CHECK(file_ != nullptr);
  const Status synced = file_->Sync();
  file_.reset();
  TANDEM_RETURN_IF_ERROR(synced);
  TANDEM_RETURN_IF_ERROR(fs_.Rename(temp_path_, path_));
  renamed_ = true;
  return fs_.SyncDirectory(DirectoryOf(path_));
}

Result<std::string> ReadSmallFile(FileSystem& fs, const std::string& path, size_t max_bytes) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, fs.Open(path));
  std::string text;
  constexpr size_t kPiece = 16 << 10;
  for (;;) {
    const size_t have = text.size();
    text.resize(have + std::min(kPiece, max_bytes + 1 - have));
    const std::span<char> room(text.data() + have, text.size() - have);
    TANDEM_ASSIGN_OR_RETURN(
        const size_t n, file->ReadSome(static_cast<int64_t>(have), std::as_writable_bytes(room)));
    text.resize(have + n);
    if (text.size() > max_bytes) {
      return OutOfRangeError("{} is longer than {} bytes", path, max_bytes);
    }
    if (n == 0) return text;
  }
}

std::unique_ptr<ReadableFile> MakeMemoryFile(std::span<const std::byte> bytes, std::string path) {
  return std::make_unique<MemoryFile>(bytes, std::move(path));
}

namespace {

// A directory of the XDG rules; a value that is no absolute path counts as unset.
Result<std::string> UserDir(const char* what, const char* variable, const char* value,
                            const char* home, const char* below_home) {
  if (value != nullptr && value[0] == '/') return std::string(value) + "/tandem";
  if (home != nullptr && home[0] == '/') return fmt::format("{}/{}/tandem", home, below_home);
  return FailedPreconditionError("no {} directory: neither {} nor HOME is set to an absolute path",
                                 what, variable);
}

}  // namespace

Result<std::string> UserCacheDir() {
  return UserCacheDir(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

Result<std::string> UserCacheDir(const char* xdg_cache_home, const char* home) {
  return UserDir("cache", "XDG_CACHE_HOME", xdg_cache_home, home, ".cache");
}

Result<std::string> UserStateDir() {
  return UserStateDir(std::getenv("XDG_STATE_HOME"), std::getenv("HOME"));
}

Result<std::string> UserStateDir(const char* xdg_state_home, const char* home) {
  return UserDir("state", "XDG_STATE_HOME", xdg_state_home, home, ".local/state");
}

}  // namespace tandem
