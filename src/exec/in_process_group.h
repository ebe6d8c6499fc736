// What: InProcessGroup: tensor-parallel ranks in one process that add up through shared memory.
// Not here: ranks as separate processes; other transports.
// Threads: each rank's communicator as its stream. Ranks' streams must be able to run at the same
//   time.
// Invariants: every rank calls AllReduce in the same order with the same count.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/communicator.h"

namespace tandem {

class InProcessGroup {
 public:
  // `max_count` is the longest vector that will be reduced. The devices must be CPU devices.
  static Result<std::unique_ptr<InProcessGroup>> Create(std::vector<Device*> devices,
                                                        int64_t max_count);
  ~InProcessGroup();

  int32_t world() const;
  Communicator* communicator(int32_t rank);

 private:
  class Member;
  struct Shared;
  InProcessGroup();
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace tandem
