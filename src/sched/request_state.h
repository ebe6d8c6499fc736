// What: RequestState: where a request stands, and which moves are allowed (spec S1).
// Not here: who moves it and why (scheduler.h). States of later roles (waiting-on-tool) join this
//   table with the features that enter them.
// Threads: values.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

enum class RequestState : uint8_t {
  kQueued,          // accepted, never admitted, holds nothing
  kAwaitingPrefix,  // off the queue until another request has computed a prefix of this one
  kAwaitingKv,      // off the queue, with blocks, until a prefill node has filled them
  kPrefill,         // admitted; known tokens are left to run
  kDecode,          // every known token is planned; each step adds one
  kPreempted,       // queued again, before the newcomers: tokens kept, blocks given up
  kSending,         // computed for a decode node; its state is still being read
  kFinished,
  kCancelled,
  kFailed,
};
inline constexpr int32_t kNumRequestStates = 10;

std::string_view NameOf(RequestState state);

// The transition table. A state never moves to itself, and no move leaves an end state.
bool CanMove(RequestState from, RequestState to);

inline bool IsQueued(RequestState s) {
  return s == RequestState::kQueued || s == RequestState::kPreempted;
}
inline bool IsWaiting(RequestState s) {
  return IsQueued(s) || s == RequestState::kAwaitingPrefix || s == RequestState::kAwaitingKv;
}
inline bool IsRunning(RequestState s) {
  return s == RequestState::kPrefill || s == RequestState::kDecode;
}
inline bool HoldsSlot(RequestState s) { return IsRunning(s) || s == RequestState::kAwaitingKv; }
inline bool IsEnd(RequestState s) {
  return !IsWaiting(s) && !IsRunning(s) && s != RequestState::kSending;
}

}  // namespace tandem
