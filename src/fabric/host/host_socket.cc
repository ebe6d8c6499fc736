#include "fabric/host/host_socket.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace tandem::host {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kBacklog = 64;

// A leading zero byte: a name that is in no folder and goes away with its socket.
socklen_t AbstractName(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  TANDEM_CHECK_LT(name.size() + 1, sizeof(address->sun_path));
  std::copy(name.begin(), name.end(), address->sun_path + 1);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Io IoOfErrno() {
  return errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? Io::kLater : Io::kClosed;
}

}  // namespace

Result<Fd> Listen(const std::string& name) {
  sockaddr_un address;
  const socklen_t size = AbstractName(name, &address);
  Fd fd(socket(AF_UNIX, kType, 0));
  if (!fd.ok() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return UnavailableError("a socket for peers on this host: {}", strerror(errno));
  }
  return fd;
}

Result<Fd> Connect(const std::string& name) {
  sockaddr_un address;
  const socklen_t size = AbstractName(name, &address);
  Fd fd(socket(AF_UNIX, kType, 0));
  if (!fd.ok() || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return UnavailableError("connecting to a peer on this host: {}", strerror(errno));
  }
  return fd;
}

Fd Accept(int listener) {
  return Fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Io SendPacket(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  TANDEM_CHECK_LE(fds.size(), kFdsMost);
  iovec text = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr header = {};
  header.msg_iov = &text;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMost * sizeof(int))] = {};
  if (!fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ? Io::kOk : IoOfErrno();
}

Io ReceivePacket(int socket, size_t bytes_most, Packet* packet) {
  packet->bytes.resize(bytes_most);
  packet->fds.clear();
  iovec text = {packet->bytes.data(), bytes_most};
  msghdr header = {};
  header.msg_iov = &text;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kFdsMost * sizeof(int))] = {};
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return IoOfErrno();
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      packet->fds.emplace_back(fd);
    }
  }
  if (size == 0 || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Io::kClosed;
  packet->bytes.resize(static_cast<size_t>(size));
  return Io::kOk;
}

Result<pid_t> PeerProcess(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return UnavailableError("who a same-host peer is: {}", strerror(errno));
  }
  if (peer.uid != geteuid()) {
    return UnavailableError("a same-host peer is of user {}, not {}", peer.uid, geteuid());
  }
  if (peer.pid <= 0) return UnavailableError("a same-host peer is in another process namespace");
  return peer.pid;
}

Result<Fd> WatchProcess(pid_t pid) {
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.ok()) return UnavailableError("watching process {}: {}", pid, strerror(errno));
  return fd;
}

}  // namespace tandem::host
