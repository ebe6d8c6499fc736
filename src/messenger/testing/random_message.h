// What: random messages of the hand-off, every field of them, for tests of the protocol.
// Not here: bytes (protocol.h).
// Threads: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "messenger/protocol.h"

namespace tandem::testing {

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  HandoffMessage Next() {
    switch (random_.Below(9)) {
      case 0: return NextHello();
      case 1: return Ready{};
      case 2: return NextPrepare();
      case 3: return ProgressMade{Id(), Natural()};
      case 4: return Done{Id(), Natural(), Natural()};
      case 5:
        return Failed{Id(), static_cast<StatusCode>(1 + random_.Below(10)), Text(kMaxReasonBytes)};
      case 6: return Stopped{Id()};
      case 7: return CancelHandoff{Id()};
      default: return Heartbeat{};
    }
  }

 private:
  HandoffId Id() { return HandoffId(random_.Next()); }
  int32_t Natural() { return static_cast<int32_t>(random_.Next() >> (33 + random_.Below(31))); }
  std::string Text(size_t most) {
    std::string text(random_.Below(most / 4 + 1), ' ');
    for (char& c : text) c = static_cast<char>(random_.Below(256));
    return text;
  }

  Hello NextHello() {
    Hello hello{.instance = random_.Next(), .fabric_address = Text(kMaxFabricAddressBytes)};
    hello.takes_jobs = random_.Below(2) == 0;
    hello.format.model = Text(HandoffFormat::kMaxNameBytes);
    hello.format.identity = {random_.Next(), random_.Next()};
    hello.format.numerics = Text(32);
    hello.format.groups.resize(random_.Below(4));
    for (StateGroup& group : hello.format.groups) {
      group.kind = random_.Below(2) == 0 ? StateKind::kPaged : StateKind::kWindow;
      group.layers.resize(random_.Below(40));
      for (int32_t& layer : group.layers) layer = Natural();
      group.num_heads = Natural();
      group.planes.resize(random_.Below(3));
      for (StatePlane& plane : group.planes) {
        plane = {.name = Text(16),
                 .dtype = static_cast<DType>(random_.Below(16)),
                 .tile = random_.Below(2) == 0 ? TileLayout::kTokenMajor : TileLayout::kDimMajor,
                 .dims = Natural()};
      }
      group.tokens_per_block = Natural();
      group.window_tokens = Natural();
      group.shard = {Natural(), Natural()};
    }
    return hello;
  }

  Prepare NextPrepare() {
    Prepare prepare{.id = Id(),
                    .budget = 1 + static_cast<TimeNs>(random_.Next() >> 20),
                    .have = Natural(),
                    .cache_salt = Text(64)};
    prepare.tokens.resize(random_.Below(200));
    for (TokenId& token : prepare.tokens) token = TokenId(Natural());
    prepare.groups.resize(random_.Below(4));
    for (Prepare::Group& group : prepare.groups) {
      group.region.bytes = random_.Next();
      group.region.nics.resize(1 + random_.Below(3));
      for (RemoteRegion::Nic& nic : group.region.nics) nic = {random_.Next(), random_.Next(), {}};
      group.blocks.resize(random_.Below(100));
      for (BlockId& block : group.blocks) block = BlockId(Natural());
    }
    prepare.expectations.resize(random_.Below(5));
    for (Expectation& expectation : prepare.expectations) {
      expectation = {static_cast<uint32_t>(random_.Next()), static_cast<uint32_t>(random_.Next())};
    }
    return prepare;
  }

  SplitMix64 random_;
};

}  // namespace tandem::testing
