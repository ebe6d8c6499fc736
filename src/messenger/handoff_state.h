// What: the state machines of the hand-off, one per side and hand-off, and that of a prefill node
//   as a decode node sees it: states and allowed moves (docs/handoff.md draws them).
// Not here: what moves them and what a move does (fetch_side.h, send_side.h).
// Threads: values.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

// Decode side: one attempt to get a prompt's state.
enum class FetchState : uint8_t {
  kPreparing,  // `prepare` is sent; nothing has been heard of it
  kReceiving,  // the prefill node has announced a chunk
  kDelivered,  // `done` came before all pages were counted: writes are over, the count lags behind
  kArrived,    // every page has been counted, the request runs; writes may not be over
  kStopping,   // nobody wants it: cancelled or late; writes may land until the peer says no
  kOver,       // nothing lands any more
};
inline constexpr int32_t kNumFetchStates = 6;
std::string_view NameOf(FetchState state);
bool CanMove(FetchState from, FetchState to);

// Prefill side: one prompt for a decode node.
enum class SendState : uint8_t {
  kQueued,     // the job is with the engine; no chunk has come
  kSending,    // pages go out as layers are complete
  kStopping,   // nothing more is posted; what was posted is awaited
  kReleasing,  // no write is outstanding and the peer knows; the engine has not ended the job
  kOver,
};
inline constexpr int32_t kNumSendStates = 5;
std::string_view NameOf(SendState state);
bool CanMove(SendState from, SendState to);

// Decode side: one prefill node.
enum class NodeState : uint8_t {
  kWaiting,     // no connection; the next attempt has its time
  kConnecting,  // a link is being made
  kGreeting,    // the link is up; `hello` and then `ready` are awaited
  kReady,       // takes fetches
  kLeaving,     // takes no more; closed when its fetches are over
  kOver,        // removed
};
inline constexpr int32_t kNumNodeStates = 6;
std::string_view NameOf(NodeState state);
bool CanMove(NodeState from, NodeState to);

}  // namespace tandem
