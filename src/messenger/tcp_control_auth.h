// What: how two nodes prove to each other that they know the shared secret, and the tags that the
//   frames after it carry.
// Not here: sockets and the order of messages (tcp_control_connection.h); where the secret is kept.
// Threads: values; const methods from any thread.
// Invariants: a proof is bound to the prover's role and to both nonces, so that neither a recorded
//   nor a reflected one is ever right. A tag is bound to its session, direction and place in it.
//   Nothing here hides what frames say: that is the network's work.
// Cost: a tag is one HMAC-SHA256 over the frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem {

// Who made the TCP connection, and who took it.
enum class LinkRole : uint8_t { kConnector, kListener };

using LinkNonce = std::array<uint8_t, 32>;
using LinkProof = std::array<uint8_t, 32>;
using FrameTag = std::array<uint8_t, 16>;

// What both sides have shown by random numbers.
struct LinkNonces {
  LinkNonce connector{};
  LinkNonce listener{};
};

// From the system. Its failure is INTERNAL.
Result<LinkNonce> NewLinkNonce();

// The tags of one direction of one session, in the order of its frames.
class FrameTagger {
 public:
  explicit FrameTagger(const LinkProof& session_key) : key_(session_key) {}
  // Of the next frame.
  FrameTag Next(std::string_view frame);
  // Whether `tag` belongs to the next frame, which it then was.
  bool CheckNext(std::string_view frame, const FrameTag& tag);

 private:
  LinkProof key_;
  uint64_t frames_ = 0;
};

class LinkSecret {
 public:
  static constexpr size_t kLeastBytes = 16;
  static constexpr size_t kMostBytes = 4096;

  // No secret: whoever reaches the address is trusted.
  LinkSecret() = default;
  // INVALID_ARGUMENT, without the key in it, when it is too short or too long.
  static Result<LinkSecret> Create(std::string key);
  // The content of a file without the blank space around it. FAILED_PRECONDITION when users other
  // than the owner and the group may read it; NOT_FOUND; INVALID_ARGUMENT as Create.
  static Result<LinkSecret> FromFile(const std::string& path);

  bool empty() const { return key_.empty(); }

  LinkProof Prove(LinkRole role, const LinkNonces& nonces) const;
  bool Check(LinkRole role, const LinkNonces& nonces, const LinkProof& proof) const;
  // For the frames that `sender` sends.
  FrameTagger TaggerOf(LinkRole sender, const LinkNonces& nonces) const;

 private:
  std::string key_;
};

}  // namespace tandem
