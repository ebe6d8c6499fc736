// What: FakePrefiller: a prefill node's engine for the hand-off's tests: computes prompts chunk by
//   chunk and layer by layer in virtual time, with steps in flight, a prefix cache, a pool that may
//   be full, refusals and steps that fail.
// Not here: the network (fabric/sim), the prompts' content (fake_state.h).
// Threads: the world's owner.
// Invariants: a block whose send is not drained is not reused; kOutboundWrite says so to the pool.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/layer_counter.h"
#include "fabric/sim/sim_world.h"
#include "messenger/messenger_config.h"
#include "messenger/testing/fake_state.h"

namespace tandem::testing {

struct FakePrefillerOptions {
  int32_t blocks = 64;
  int32_t chunk_most = 12;
  size_t jobs_most = 16;
  double refuse = 0;  // of jobs
  double step_fails = 0;
  double reuses = 0.7;  // prompts whose state is kept
  TimeNs layer_least = 5 * kNsPerUs;
  TimeNs layer_most = 100 * kNsPerUs;
};

class FakePrefiller final : public PrefillJobs {
 public:
  FakePrefiller(SimWorld* world, SimNodeId node, const FakePrefillerOptions& options)
      : world_(world), node_(node), options_(options), pools_(options.blocks), cache_(&pools_) {}

  // The calls into the messenger, and a turn of its loop.
  void Attach(HandoffPort* port, std::function<void()> wake) {
    port_ = port;
    wake_ = std::move(wake);
  }
  const LayerCounter& layers() const { return layers_; }
  FakePools& pools() { return pools_; }
  size_t jobs() const { return jobs_.size(); }

  Status Start(SendId id, std::vector<TokenId> tokens, std::string cache_salt, TimeNs) override {
    if (jobs_.size() >= options_.jobs_most || world_->Chance(options_.refuse)) {
      return ResourceExhaustedError("the queue is full");
    }
    Job job{.tokens = std::move(tokens), .salt = std::move(cache_salt)};
    job.histories = Histories(job.tokens);
    jobs_.emplace(id, std::move(job));
    Soon([this] { Plan(); });
    return OkStatus();
  }

  void Cancel(SendId id) override {
    Soon([this, id] {
      const auto it = jobs_.find(id);
      if (it == jobs_.end() || it->second.ended) return;
      EndJob(id, CancelledError("cancelled"));
    });
  }

  void OnEvent(const HandoffEvent& event) {
    if (event.kind != HandoffEvent::Kind::kSendDrained) return;
    Job& job = jobs_.at(event.send);
    TANDEM_CHECK(!job.drained);
    job.drained = true;
    for (size_t g = 0; g < job.used.size(); ++g) {
      for (const BlockId block : job.used[g]) {
        pools_.pools[g].blocks.EndUse(block, UseAgent::kOutboundWrite);
      }
    }
    if (event.status.ok()) TANDEM_CHECK_EQ(job.submitted, static_cast<int32_t>(job.tokens.size()));
    ForgetIfOver(event.send);
    Soon([this] { Plan(); });
  }

  void CheckIdle() {
    TANDEM_CHECK(jobs_.empty());
    while (cache_.Evict()) {
    }
    for (FakePool& pool : pools_.pools) {
      TANDEM_CHECK_EQ(pool.blocks.free(), pool.blocks.total());
      TANDEM_CHECK(pool.blocks.CheckIntegrity().ok());
    }
  }

 private:
  struct Job {
    std::vector<TokenId> tokens;
    std::string salt;
    std::vector<uint64_t> histories;
    std::vector<FakeTable> tables;           // references
    std::vector<std::set<BlockId>> used{2};  // use-tokens, until drained
    int32_t submitted = 0;
    int32_t computed = 0;
    bool ended = false;  // the last chunk has run, or SendFailed
    bool drained = false;
  };
  struct Step {
    StepId id;
    SendId job;
    int32_t begin = 0;
    int32_t end = 0;
  };

  template <typename F>
  void Soon(F what) {
    world_->After(node_, world_->Between(0, 50 * kNsPerUs), std::move(what));
  }
  // Submits steps until two are in flight.
  void Plan() {
    while (steps_.size() < 2 && PlanStep()) {
    }
  }

  bool PlanStep() {
    std::vector<SendId> ready;
    for (const auto& [id, job] : jobs_) {
      const auto tokens = static_cast<int32_t>(job.tokens.size());
      if (!job.ended && job.submitted < tokens) ready.push_back(id);
    }
    while (!ready.empty()) {
      const size_t pick = world_->random().Below(ready.size());
      const SendId id = ready[pick];
      Job& job = jobs_.at(id);
      if (job.tables.empty()) Restore(id, &job);
      const auto tokens = static_cast<int32_t>(job.tokens.size());
      if (job.submitted == tokens) return true;  // all of it was cached
      const int32_t chunk = static_cast<int32_t>(world_->Between(1, options_.chunk_most));
      const int32_t end = std::min(tokens, job.submitted + chunk);
      if (GrowTo(&job, end)) {
        steps_.push_back({StepId(++last_step_), id, job.submitted, end});
        Submit(id, &job, steps_.back().id, end);
        if (steps_.size() == 1) RunLayer(0);
        return true;
      }
      ready.erase(ready.begin() + static_cast<ptrdiff_t>(pick));  // the pool is full
    }
    return false;
  }

  bool GrowTo(Job* job, int32_t end) {
    for (size_t g = 0; g < job->tables.size(); ++g) {
      const auto blocks = static_cast<int32_t>(pools_.pools[g].group.BlocksFor(end));
      if (!Grow(&pools_, &cache_, g, std::max(blocks, job->tables[g].end()), &job->tables[g])) {
        return false;
      }
    }
    return true;
  }

  void Restore(SendId id, Job* job) {
    job->tables.resize(pools_.pools.size());
    const FakeCached* hit = cache_.Find(job->salt, job->tokens, job->tokens.size());
    if (hit == nullptr) return;
    for (size_t g = 0; g < job->tables.size(); ++g) {
      job->tables[g] = hit->tables[g];
      for (const BlockId block : hit->tables[g].blocks) pools_.pools[g].blocks.AddRef(block);
    }
    job->computed = static_cast<int32_t>(hit->tokens.size());
    Submit(id, job, StepId(0), job->computed);
    if (job->computed == static_cast<int32_t>(job->tokens.size())) JobComputed(id);
  }

  void Submit(SendId id, Job* job, StepId step, int32_t end) {
    SendChunk chunk{.id = id, .step = step, .begin = job->submitted, .end = end};
    for (size_t g = 0; g < job->tables.size(); ++g) {
      FakePool& pool = pools_.pools[g];
      const FakeTable& table = job->tables[g];
      const int32_t first = std::max(table.first, chunk.begin / pool.group.tokens_per_block);
      std::vector<BlockId> blocks;
      for (int32_t o = first; o < pool.group.BlocksFor(end); ++o) {
        blocks.push_back(table.At(o));
        if (!job->used[g].insert(blocks.back()).second) continue;
        pool.blocks.BeginUse(blocks.back(), UseAgent::kOutboundWrite);
      }
      chunk.blocks.push_back(std::move(blocks));
    }
    job->submitted = end;
    port_->ChunkSubmitted(std::move(chunk));
    wake_();
  }

  void RunLayer(int32_t layer) {
    world_->After(node_, world_->Between(options_.layer_least, options_.layer_most), [this, layer] {
      const Step step = steps_.front();
      const auto it = jobs_.find(step.job);
      Job* const job = it == jobs_.end() || it->second.ended ? nullptr : &it->second;
      if (job != nullptr && layer == 2 && world_->Chance(options_.step_fails)) {
        EndJob(step.job, InternalError("the step failed"));
        return NextStep();
      }
      if (job != nullptr) Compute(job, step, layer);
      layers_.Advance(step.id, layer + 1);
      if (layer + 1 < kFakeLayers) return RunLayer(layer + 1);
      if (job != nullptr) {
        job->computed = step.end;
        if (step.end == static_cast<int32_t>(job->tokens.size())) JobComputed(step.job);
      }
      NextStep();
    });
  }

  void NextStep() {
    steps_.pop_front();
    if (!steps_.empty()) RunLayer(0);
    Plan();
  }

  void Compute(Job* job, const Step& step, int32_t model_layer) {
    for (size_t g = 0; g < pools_.pools.size(); ++g) {
      FakePool& pool = pools_.pools[g];
      const auto& layers = pool.group.layers;
      const auto found = std::find(layers.begin(), layers.end(), model_layer);
      if (found == layers.end()) continue;
      const auto layer = static_cast<int32_t>(found - layers.begin());
      const int32_t per_block = pool.group.tokens_per_block;
      for (int32_t p = step.begin; p < step.end; ++p) {
        const BlockId block = job->tables[g].At(p / per_block);
        *pool.At(block, layer, p % per_block) =
            StateOf(job->histories[static_cast<size_t>(p)], model_layer);
      }
    }
  }

  void JobComputed(SendId id) {
    Job& job = jobs_.at(id);
    if (world_->Chance(options_.reuses)) cache_.Keep(job.salt, job.tokens, job.tables);
    job.ended = true;
    Release(&pools_, &job.tables);
    ForgetIfOver(id);
  }

  void EndJob(SendId id, const Status& status) {
    Job& job = jobs_.at(id);
    job.ended = true;
    Release(&pools_, &job.tables);
    if (!job.drained) port_->SendFailed(id, status);
    ForgetIfOver(id);
    wake_();
    Soon([this] { Plan(); });
  }

  void ForgetIfOver(SendId id) {
    const Job& job = jobs_.at(id);
    if (job.ended && job.drained) jobs_.erase(id);
  }

  SimWorld* const world_;
  const SimNodeId node_;
  const FakePrefillerOptions options_;
  FakePools pools_;
  FakeCache cache_;
  LayerCounter layers_;
  HandoffPort* port_ = nullptr;
  std::function<void()> wake_;
  std::map<SendId, Job> jobs_;
  std::deque<Step> steps_;  // submitted; the first one runs
  uint64_t last_step_ = 0;
};

}  // namespace tandem::testing
