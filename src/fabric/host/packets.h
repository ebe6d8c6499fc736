// What: the packets of a same-host link's socket: their kinds and layouts.
// Not here: sending them (host_socket.h).
// Threads: constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/transfer_engine.h"

namespace tandem::host {

// The first byte of a packet. Writer to receiver:
inline constexpr char kHello = 'h';    // magic u32, address u64, nonce u64; 3 descriptors: the
                                       // ring, the receiver's bell, the writer's bell
inline constexpr char kMessage = 'm';  // id u64, bytes
// Receiver to writer:
inline constexpr char kWelcome = 'w';  // the link is up
inline constexpr char kRefused = 'r';  // text: why not
inline constexpr char kAck = 'a';      // id u64 of a message

inline constexpr uint32_t kMagic = 0x31485354;  // "TSH1": changes with the layout of the ring
inline constexpr size_t kHelloFds = 3;
// What TransferCore puts before a message, and ours.
inline constexpr size_t kOverheadBytes = 64;
inline constexpr size_t kPacketBytes = TransferEngine::kMaxMessageBytes + kOverheadBytes;

}  // namespace tandem::host
