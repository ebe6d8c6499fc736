// What: DeviceExecutor: the StepExecutor that runs plans on devices: one rank, or several
//   tensor-parallel ranks in this process.
// Not here: scheduling; memory of blocks' owners (kv/).
// Threads: as StepExecutor.
// Invariants: a plan is checked whole before it changes anything; results come back in order.
// Cost: a steady-state Submit and Poll allocate nothing once their buffers have grown.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/step_executor.h"
#include "exec/rank.h"
#include "exec/slot_table.h"

namespace tandem {

class DeviceExecutor final : public StepExecutor {
 public:
  // One config per rank, in rank order. The devices, weights and communicators must outlive the
  // executor.
  static Result<std::unique_ptr<DeviceExecutor>> Create(std::span<const RankConfig> ranks,
                                                        const RankShape& shape);
  ~DeviceExecutor() override;

  ExecutorLimits limits() const override;
  Status Submit(const StepPlan& plan) override;
  bool Poll(StepResult* result) override;
  void SetOnFinished(std::function<void()> callback) override;

  // Watches the layers of one rank. Set before the first Submit.
  void SetTap(int32_t rank, LayerTap* tap);
  // Tells whoever hands state on how far each step is (layer_counter.h); outlives the executor. Set
  // before the first Submit.
  void SetLayerCounter(LayerCounter* counter) { counter_ = counter; }

  const std::vector<StateGroup>& groups(int32_t rank) const;
  // The blocks of one state group on one rank: [num_blocks, BlockBytes()], at a page's border. For
  // whoever moves state between nodes; who may touch which block when is the pools' affair
  // (use-tokens).
  std::span<std::byte> state(int32_t rank, GroupId group);

 private:
  explicit DeviceExecutor(const RankShape& shape);
  // INVALID_ARGUMENT names a token of the plan that the vocabulary does not have.
  Status CheckTokens(const StepPlan& plan) const;
  // Lays out the result: rows, and room for what the lead rank reports.
  void PrepareResult(const StepPlan& plan, StepResult* result) const;
  void OnRankFinished(InFlightStep* step);

  const RankShape shape_;
  std::unique_ptr<SlotTable> table_;
  std::vector<std::unique_ptr<InFlightStep>> steps_;  // a ring of max_in_flight
  size_t next_ = 0;                                   // the ring entry of the next Submit
  size_t in_flight_ = 0;
  std::function<void()> on_finished_;
  LayerCounter* counter_ = nullptr;
  SteadyClock clock_;
  std::vector<std::unique_ptr<Rank>> ranks_;  // destroyed first: their streams touch the steps
};

}  // namespace tandem
