// What: packets between processes of one host (Unix sockets in the abstract namespace): connecting,
//   descriptors that travel along, who the other side is.
// Not here: what packets mean (outgoing_link.h, incoming_link.h).
// Threads: any; nothing blocks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/host/shared_ring.h"

namespace tandem::host {

inline constexpr size_t kFdsMost = 3;  // of one packet

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};
enum class Io : uint8_t { kOk, kLater, kClosed };

Result<Fd> Listen(const std::string& name);
// UNAVAILABLE when nobody listens there.
Result<Fd> Connect(const std::string& name);
// Not ok() when nobody waits.
Fd Accept(int listener);

Io SendPacket(int socket, std::span<const std::byte> bytes, std::span<const int> fds = {});
Io ReceivePacket(int socket, size_t bytes_most, Packet* packet);

// The process at the other end, as it was when it connected or listened. UNAVAILABLE when it is of
// another user, or in a process namespace that this one does not see.
Result<pid_t> PeerProcess(int socket);
// Readable when that process has ended: unlike its number, it is never given to another one.
Result<Fd> WatchProcess(pid_t pid);

}  // namespace tandem::host
