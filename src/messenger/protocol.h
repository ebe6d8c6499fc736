// What: the messages of the hand-off and their bytes in a frame (docs/handoff.md).
// Not here: when they are sent (handoff_state.h, fetch_side.h, send_side.h), framing and
//   authentication (control_link.h).
// Threads: pure functions.
// Invariants: Decode takes what Encode makes and nothing else: every count, length and kind is
//   checked, nothing is left over, and Encode of the result gives the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "fabric/remote_region.h"
#include "fabric/transfer_engine.h"
#include "messenger/handoff_format.h"

namespace tandem {

// Raised with every change of a message, of its meaning, or of the page numbering.
inline constexpr uint16_t kHandoffVersion = 1;

// One attempt to hand one prompt's state over; the decode node's number, new for each attempt.
using HandoffId = StrongId<struct HandoffIdTag, uint64_t>;

inline constexpr size_t kMaxHandoffTokens = 1u << 20;
inline constexpr size_t kMaxHandoffPages = 1u << 20;
inline constexpr size_t kMaxHandoffExpectations = kMaxHandoffPages / kMaxExpectedPieces;
inline constexpr size_t kMaxSaltBytes = 4096;
inline constexpr size_t kMaxReasonBytes = 512;
inline constexpr size_t kMaxFabricAddressBytes = 1024;

// Both ways, the first frame of each.
struct Hello {
  uint64_t instance = 0;  // a random number of the process
  HandoffFormat format;
  std::string fabric_address;
  bool takes_jobs = false;  // the sender computes prompts
};

// prefill -> decode: the data path is there, `prepare` is welcome.
struct Ready {};

// decode -> prefill: compute this and write it there.
struct Prepare {
  HandoffId id;
  TimeNs budget = 0;  // from now; nobody waits longer
  std::vector<TokenId> tokens;
  int32_t have = 0;
  std::string cache_salt;
  struct Group {
    RemoteRegion region;
    std::vector<BlockId> blocks;  // of the pages in page_map.h, in their order
  };
  std::vector<Group> groups;
  std::vector<Expectation> expectations;  // kMaxExpectedPieces pages each, the last the rest
};

// prefill -> decode: a chunk up to position `end` has been submitted.
struct ProgressMade {
  HandoffId id;
  int32_t end = 0;
};

// prefill -> decode, exactly one of these three for each prepare, the last frame about it: no write
// of it is outstanding, and none will come.
struct Done {  // everything has been delivered
  HandoffId id;
  int32_t chunks = 0;
  int32_t pages = 0;
};
struct Failed {
  HandoffId id;
  StatusCode code = StatusCode::kInternal;  // not kOk
  std::string reason;
};
struct Stopped {  // the answer to Cancel
  HandoffId id;
};

// decode -> prefill: nobody wants it any more. Unknown numbers are no error: it may have ended.
struct CancelHandoff {
  HandoffId id;
};

// Both ways.
struct Heartbeat {};

// The order is that of the kinds in a frame.
using HandoffMessage = std::variant<Hello, Ready, Prepare, ProgressMade, Done, Failed, Stopped,
                                    CancelHandoff, Heartbeat>;

// Requires that the message keeps the limits above.
std::string EncodeMessage(const HandoffMessage& message);

// DATA_LOSS for what EncodeMessage does not make; FAILED_PRECONDITION for the hello of another
// version, with both numbers.
Result<HandoffMessage> DecodeMessage(std::string_view frame);

}  // namespace tandem
