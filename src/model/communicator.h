// What: Communicator: how tensor-parallel ranks add up their partial results.
// Not here: transport between nodes (fabric/); which rank computes what (Shard).
// Threads: AllReduce as the stream; every rank calls it in the same order.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "tensor/state_group.h"

namespace tandem {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual Shard shard() const = 0;
  // Enqueues: data[i] = sum over ranks of their data[i], added in rank order, so every rank gets
  // the same bits.
  virtual void AllReduce(Stream& stream, float* data, int64_t count) = 0;
};

// The only rank: nothing to add.
class SingleRank final : public Communicator {
 public:
  Shard shard() const override { return {}; }
  void AllReduce(Stream&, float*, int64_t) override {}
};

}  // namespace tandem
