#include "messenger/handoff_state.h"

#include <cstddef>

namespace tandem {
namespace {

constexpr bool kNo = false;
constexpr bool kYes = true;

// All [from][to], in the order of the enums.
constexpr bool kFetchMoves[kNumFetchStates][kNumFetchStates] = {
    // preparing receiving delivered arrived stopping over
    {kNo, kYes, kNo, kYes, kYes, kYes},  // preparing
    {kNo, kNo, kYes, kYes, kYes, kYes},  // receiving
    {kNo, kNo, kNo, kNo, kNo, kYes},     // delivered
    {kNo, kNo, kNo, kNo, kYes, kYes},    // arrived
    {kNo, kNo, kNo, kNo, kNo, kYes},     // stopping
    {kNo, kNo, kNo, kNo, kNo, kNo},      // over
};
constexpr bool kSendMoves[kNumSendStates][kNumSendStates] = {
    // queued sending stopping releasing over
    {kNo, kYes, kNo, kYes, kYes},  // queued
    {kNo, kNo, kYes, kYes, kYes},  // sending
    {kNo, kNo, kNo, kYes, kYes},   // stopping
    {kNo, kNo, kNo, kNo, kYes},    // releasing
    {kNo, kNo, kNo, kNo, kNo},     // over
};
constexpr bool kNodeMoves[kNumNodeStates][kNumNodeStates] = {
    // waiting connecting greeting ready leaving over
    {kNo, kYes, kNo, kNo, kNo, kYes},   // waiting
    {kYes, kNo, kYes, kNo, kNo, kYes},  // connecting
    {kYes, kNo, kNo, kYes, kNo, kYes},  // greeting
    {kYes, kNo, kNo, kNo, kYes, kYes},  // ready
    {kNo, kNo, kNo, kYes, kNo, kYes},   // leaving: it may be wanted again
    {kNo, kNo, kNo, kNo, kNo, kNo},     // over
};

}  // namespace

std::string_view NameOf(FetchState state) {
  switch (state) {
    case FetchState::kPreparing: return "preparing";
    case FetchState::kReceiving: return "receiving";
    case FetchState::kDelivered: return "delivered";
    case FetchState::kArrived: return "arrived";
    case FetchState::kStopping: return "stopping";
    case FetchState::kOver: return "over";
  }
  return "unknown";
}

std::string_view NameOf(SendState state) {
  switch (state) {
    case SendState::kQueued: return "queued";
    case SendState::kSending: return "sending";
    case SendState::kStopping: return "stopping";
    case SendState::kReleasing: return "releasing";
    case SendState::kOver: return "over";
  }
  return "unknown";
}

std::string_view NameOf(NodeState state) {
  switch (state) {
    case NodeState::kWaiting: return "waiting";
    case NodeState::kConnecting: return "connecting";
    case NodeState::kGreeting: return "greeting";
    case NodeState::kReady: return "ready";
    case NodeState::kLeaving: return "leaving";
    case NodeState::kOver: return "over";
  }
  return "unknown";
}

bool CanMove(FetchState from, FetchState to) {
  return kFetchMoves[static_cast<size_t>(from)][static_cast<size_t>(to)];
}
bool CanMove(SendState from, SendState to) {
  return kSendMoves[static_cast<size_t>(from)][static_cast<size_t>(to)];
}
bool CanMove(NodeState from, NodeState to) {
  return kNodeMoves[static_cast<size_t>(from)][static_cast<size_t>(to)];
}

}  // namespace tandem
