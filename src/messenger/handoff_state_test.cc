#include "messenger/handoff_state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

// Every state can be reached from the first, none moves to itself, only the last is an end, and
// every name is its own.
template <typename State>
void CheckTable(int32_t count) {
  std::set<int32_t> reached = {0};
  for (int32_t round = 0; round < count; ++round) {
    for (const int32_t from : std::set<int32_t>(reached)) {
      for (int32_t to = 0; to < count; ++to) {
        if (CanMove(static_cast<State>(from), static_cast<State>(to))) reached.insert(to);
      }
    }
  }
  EXPECT_EQ(reached.size(), static_cast<size_t>(count));
  std::set<std::string_view> names;
  for (int32_t from = 0; from < count; ++from) {
    names.insert(NameOf(static_cast<State>(from)));
    EXPECT_FALSE(CanMove(static_cast<State>(from), static_cast<State>(from)));
    bool ends = true;
    for (int32_t to = 0; to < count; ++to) {
      ends &= !CanMove(static_cast<State>(from), static_cast<State>(to));
    }
    EXPECT_EQ(ends, from == count - 1);
    EXPECT_EQ(CanMove(static_cast<State>(from), static_cast<State>(count - 1)), !ends);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
}

TEST(HandoffState, TablesReachEveryStateAndEndInOne) {
  CheckTable<FetchState>(kNumFetchStates);
  CheckTable<SendState>(kNumSendStates);
  CheckTable<NodeState>(kNumNodeStates);
}

TEST(HandoffState, NothingIsWantedAgainOnceItStops) {
  EXPECT_FALSE(CanMove(FetchState::kStopping, FetchState::kArrived));
  EXPECT_FALSE(CanMove(FetchState::kStopping, FetchState::kReceiving));
  EXPECT_FALSE(CanMove(SendState::kStopping, SendState::kSending));
  EXPECT_FALSE(CanMove(SendState::kReleasing, SendState::kStopping));
}

}  // namespace
}  // namespace tandem
