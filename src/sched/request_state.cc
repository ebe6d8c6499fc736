#include "sched/request_state.h"

namespace tandem {
namespace {

constexpr bool kNo = false;
constexpr bool kYes = true;
// [from][to], both in the order of the enum.
constexpr bool kMoves[kNumRequestStates][kNumRequestStates] = {
    // queued awaiting-prefix awaiting-kv prefill decode preempted sending finished cancelled failed
    {kNo, kYes, kYes, kYes, kNo, kNo, kNo, kNo, kYes, kYes},  // queued
    {kYes, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kYes, kYes},    // awaiting-prefix
    {kYes, kNo, kNo, kYes, kNo, kNo, kNo, kNo, kYes, kYes},   // awaiting-kv
    {kNo, kNo, kNo, kNo, kYes, kYes, kYes, kNo, kYes, kYes},  // prefill
    {kNo, kNo, kNo, kNo, kNo, kYes, kNo, kYes, kYes, kYes},   // decode
    // preempted: a token in flight may be its last
    {kNo, kNo, kNo, kYes, kNo, kNo, kNo, kYes, kYes, kYes},
    {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kYes, kYes, kYes},  // sending
    {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},     // finished
    {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},     // cancelled
    {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},     // failed
};

}  // namespace

std::string_view NameOf(RequestState state) {
  switch (state) {
    case RequestState::kQueued: return "queued";
    case RequestState::kAwaitingPrefix: return "awaiting-prefix";
    case RequestState::kAwaitingKv: return "awaiting-kv";
    case RequestState::kPrefill: return "prefill";
    case RequestState::kDecode: return "decode";
    case RequestState::kPreempted: return "preempted";
    case RequestState::kSending: return "sending";
    case RequestState::kFinished: return "finished";
    case RequestState::kCancelled: return "cancelled";
    case RequestState::kFailed: return "failed";
  }
  return "unknown";
}

bool CanMove(RequestState from, RequestState to) {
  return kMoves[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace tandem
