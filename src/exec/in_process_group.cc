#include "exec/in_process_group.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "device/cpu_device.h"

namespace tandem {

// One meeting point: the ranks arrive, and none leaves before all have arrived.
struct InProcessGroup::Shared {
  int32_t world = 0;
  std::vector<const float*> published;  // per rank, valid between the first and the second meeting
  std::atomic<int32_t> arrived{0};
  std::atomic<uint32_t> round{0};

  void Meet() {
    const uint32_t before = round.load();
    if (arrived.fetch_add(1) + 1 == world) {
      arrived.store(0);
      round.fetch_add(1);
      round.notify_all();
    } else {
      round.wait(before);
    }
  }
};

class InProcessGroup::Member final : public Communicator {
 public:
  Member(Shared* shared, Shard shard, Buffer scratch)
      : shared_(shared), shard_(shard), scratch_(std::move(scratch)) {}

  Shard shard() const override { return shard_; }

  void AllReduce(Stream& stream, float* data, int64_t count) override {
    TANDEM_CHECK_LE(static_cast<size_t>(count) * sizeof(float), scratch_.size());
    CpuStream& cpu = AsCpu(stream);
    const Args args{shared_, shard_.rank, data, scratch_.As<float>(), count};
    cpu.Launch<Args>(&Publish, args);
    cpu.Launch<Args>(&Sum, args);
    cpu.Launch<Args>(&Finish, args);
    cpu.Launch<Args>(&CopyBack, args);
  }

 private:
  struct Args {
    Shared* shared;
    int32_t rank;
    float* data;
    float* scratch;
    int64_t count;
  };
  static constexpr int64_t kFloatsPerTask = 4096;
  static int64_t NumTasks(const Args& args) {
    return (args.count + kFloatsPerTask - 1) / kFloatsPerTask;
  }

  static void Publish(CpuTaskContext& context, const Args& args) {
    while (context.NextTask(1) >= 0) {
      args.shared->published[static_cast<size_t>(args.rank)] = args.data;
      args.shared->Meet();
    }
  }
  static void Sum(CpuTaskContext& context, const Args& args) {
    const int64_t tasks = NumTasks(args);
    for (int64_t task = context.NextTask(tasks); task >= 0; task = context.NextTask(tasks)) {
      const int64_t begin = task * kFloatsPerTask;
      const int64_t end = std::min(args.count, begin + kFloatsPerTask);
      for (int64_t i = begin; i < end; ++i) {
        float sum = args.shared->published[0][i];
        for (int32_t r = 1; r < args.shared->world; ++r) {
          sum += args.shared->published[static_cast<size_t>(r)][i];
        }
        args.scratch[i] = sum;
      }
    }
  }
  static void Finish(CpuTaskContext& context, const Args& args) {
    while (context.NextTask(1) >= 0) args.shared->Meet();
  }
  static void CopyBack(CpuTaskContext& context, const Args& args) {
    while (context.NextTask(1) >= 0) {
      std::memcpy(args.data, args.scratch, static_cast<size_t>(args.count) * sizeof(float));
    }
  }

  Shared* const shared_;
  const Shard shard_;
  Buffer scratch_;
};

InProcessGroup::InProcessGroup() = default;
InProcessGroup::~InProcessGroup() = default;

Result<std::unique_ptr<InProcessGroup>> InProcessGroup::Create(std::vector<Device*> devices,
                                                               int64_t max_count) {
  std::unique_ptr<InProcessGroup> group(new InProcessGroup);
  group->shared_ = std::make_unique<Shared>();
  group->shared_->world = static_cast<int32_t>(devices.size());
  group->shared_->published.resize(devices.size());
  for (size_t r = 0; r < devices.size(); ++r) {
    TANDEM_CHECK(devices[r]->kind() == DeviceKind::kCpu);
    TANDEM_ASSIGN_OR_RETURN(Buffer scratch,
                            devices[r]->Allocate(static_cast<size_t>(max_count) * sizeof(float),
                                                 MemoryTerm::kActivations));
    group->members_.push_back(std::make_unique<Member>(
        group->shared_.get(), Shard{static_cast<int32_t>(r), group->shared_->world},
        std::move(scratch)));
  }
  return group;
}

int32_t InProcessGroup::world() const { return shared_->world; }
Communicator* InProcessGroup::communicator(int32_t rank) {
  return members_[static_cast<size_t>(rank)].get();
}

}  // namespace tandem
