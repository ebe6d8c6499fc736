// What: Rank: one device's share of an executor: its stream, model, state pools and buffers, and
//   the thread that enqueues steps on the stream.
// Not here: plans and tables (device_executor.h); which ranks exist.
// Threads: Start from the engine's thread; the rank's own thread enqueues; on_finished comes from a
//   stream thread.
// Invariants: steps run in the order of Start. Submission has its own thread because a stream's
//   ring is bounded and ranks wait for each other in AllReduce: no rank may wait for another one's
//   turn to enqueue.
//   What a choice depends on beyond its logits is on the device. Penalties need the tokens that
//   came before, the last of which the host does not know yet when it submits a row behind a
//   running step; so each slot has a history there, and rows append to it from the token table
//   before they are sampled from. By position, not as counts: a row that runs again, after a
//   preemption or a rollback, then writes what it wrote before. Only slots whose parameters use it
//   pay for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "core/layer_counter.h"
#include "exec/step_inputs.h"
#include "model/model.h"

namespace tandem {

// One step on its way through the ranks. Owned by the executor; reused.
struct InFlightStep {
  InFlightStep(const SlabLimits& limits, std::span<const StateGroup> groups)
      : inputs(limits, groups) {}
  StepInputs inputs;
  StepResult result;               // rows are filled in by the executor at Submit
  std::vector<int32_t> sampled;    // [num_slots], rank 0's copy of the token table after the step
  std::atomic<TimeNs> started{0};  // rank 0
  std::atomic<TimeNs> finished{0};
  LayerCounter* counter = nullptr;  // rank 0 advances it, if there is one
  std::atomic<int32_t> ranks_left{0};
};

struct RankConfig {
  Device* device = nullptr;
  const ModelWeights* weights = nullptr;
  Communicator* communicator = nullptr;
};

// What all ranks of an executor share.
struct RankShape {
  ModelSpec spec;
  Numerics numerics = Numerics::kFast;
  std::vector<int32_t> num_blocks;  // per state group
  int32_t tokens_per_block = kDefaultTokensPerBlock;
  int32_t num_slots = 16;
  int32_t max_context = 0;
  int32_t max_in_flight = 2;
  int32_t num_threads = 1;  // of the device's streams
  SlabLimits slab;
};

// Bytes of one rank's buffers by term, without the weights; see Rank::Create, which allocates
// exactly these.
struct RankBytes {
  int64_t kv = 0;
  int64_t activations = 0;
  int64_t runtime = 0;
};
RankBytes BytesOfRank(const RankShape& shape, const Model& model,
                      std::span<const StateGroup> groups);

class Rank {
 public:
  static Result<std::unique_ptr<Rank>> Create(const RankConfig& config, const RankShape& shape);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // `on_rank_finished` is called on a stream thread after each step.
  void SetOnFinished(std::function<void(InFlightStep*)> on_rank_finished);
  // Takes the step's turn behind the earlier ones. `step` must stay until it has finished.
  void Start(InFlightStep* step);
  void SetTap(LayerTap* tap) { tap_ = tap; }

  const std::vector<StateGroup>& groups() const { return groups_; }
  // The blocks of one state group.
  std::span<std::byte> state(GroupId group) {
    const auto g = static_cast<size_t>(group.value());
    const int64_t bytes = groups_[g].BlockBytes() * shape_.num_blocks[g];
    return {state_[g].data(), static_cast<size_t>(bytes)};
  }

 private:
  Rank(const RankConfig& config, const RankShape& shape);
  Status Allocate();
  void Loop();
  void Enqueue(InFlightStep& step);
  void EnqueueDeltas(const StepInputs& inputs);
  // `tokens` is what the write's index counts from.
  void EnqueueHistory(const HistoryWrite& write, const int32_t* tokens);
  // `progress` sees the layers of the pass; null: nobody does.
  void EnqueueLayers(const Pass& pass, StateProgress* progress);
  // The views of one slab's rows for every group, and its arguments for the model.
  void AddSlab(const Pass& pass, size_t index);
  void EnqueueChunk(const Pass& pass, const Pass::Chunk& chunk);
  // Where the next reported values of a step's result go.
  struct Reported {
    float* logits;
    TokenLogprob* logprobs;
  };
  void EnqueueReports(const Pass& pass, const Pass::Chunk& chunk, Reported* to);

  const RankConfig config_;
  const RankShape shape_;
  const bool lead_;  // rank 0 reports results
  WorkspaceLimits limits_;
  std::vector<StateGroup> groups_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> state_;  // per group
  Buffer workspace_;
  Buffer logits_;          // the running chunk's [max_logits, vocab_size]
  Buffer logprobs_;        // the running chunk's entries
  Buffer sample_scratch_;  // of each thread
  Buffer ints_;            // the running pass's array
  Buffer token_table_;     // [num_slots + max_pass_tokens]
  Buffer history_;         // [num_slots, max_context]
  Buffer sample_rows_;     // the running chunk's [max_logits], as the next two
  Buffer logprob_rows_;
  Buffer biases_;
  std::vector<GroupBatch> group_batches_;  // [slab of the running pass][group]
  std::vector<SlabArgs> slab_args_;        // [slab of the running pass]
  LayerTap* tap_ = nullptr;
  std::function<void(InFlightStep*)> on_rank_finished_;
  SteadyClock clock_;
  BoundedQueue<InFlightStep*> queue_;
  std::thread thread_;
};

}  // namespace tandem
