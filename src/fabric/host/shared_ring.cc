#include "fabric/host/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace tandem {

Fd::~Fd() {
  if (fd_ >= 0) close(fd_);
}

Result<RingMapping> RingMapping::Map(int fd) {
  void* memory =
      mmap(nullptr, sizeof(SharedRing), PROT_READ | PROT_WRITE, MAP_SHARED, fd, /*offset=*/0);
  if (memory == MAP_FAILED) return ResourceExhaustedError("mapping a ring: {}", strerror(errno));
  return RingMapping(static_cast<SharedRing*>(memory));  // zeroed: all entries are free
}

Result<RingMapping> RingMapping::Create(Fd* fd) {
  *fd = Fd(memfd_create("tandem-fabric", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd->ok() || ftruncate(fd->get(), sizeof(SharedRing)) != 0 ||
      fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ResourceExhaustedError("memory for a ring: {}", strerror(errno));
  }
  return Map(fd->get());
}

Result<RingMapping> RingMapping::Open(int fd) {
  struct stat info = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &info) != 0 ||
      info.st_size != static_cast<off_t>(sizeof(SharedRing))) {
    return InvalidArgumentError("the peer's ring is not one of this version");
  }
  return Map(fd);
}

RingMapping::~RingMapping() {
  if (ring_ != nullptr) munmap(ring_, sizeof(SharedRing));
}

void RingBell(std::atomic<uint32_t>* asleep, int bell_fd) {
  // Pairs with the fence of whoever goes to sleep: it sees what was stored, or this sees it asleep.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (asleep->load(std::memory_order_relaxed) == 0) return;
  if (asleep->exchange(0, std::memory_order_relaxed) == 0) return;
  const uint64_t one = 1;
  // Full: it is readable already.
  if (write(bell_fd, &one, sizeof(one)) < 0 && errno != EAGAIN) {
    LogError("a same-host peer cannot be woken: {}", strerror(errno));
  }
}

}  // namespace tandem
