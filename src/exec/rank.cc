#include "exec/rank.h"

#include <limits>

namespace tandem {
namespace {

constexpr long long kWaitForever = std::numeric_limits<int32_t>::max();  // ns; the loop waits again

int64_t TokenTableInts(const RankShape& shape) { return shape.num_slots + shape.slab.max_tokens; }

}  // namespace

RankBytes BytesOfRank(const RankShape& shape, const Model& model,
                      std::span<const StateGroup> groups) {
  RankBytes bytes;
  for (size_t g = 0; g < groups.size(); ++g)
    bytes.kv += groups[g].BlockBytes() * shape.num_blocks[g];
  const WorkspaceLimits limits{shape.slab.max_tokens, shape.slab.max_logits, shape.max_context,
                               shape.num_threads};
  const int64_t logits = int64_t{shape.slab.max_logits} * shape.spec.vocab_size;
  bytes.activations =
      static_cast<int64_t>(model.WorkspaceBytes(limits)) +
      logits * static_cast<int64_t>(sizeof(float)) +
      static_cast<int64_t>(SampleScratchBytes(shape.spec.vocab_size, shape.slab.max_logits));
  const int64_t ints =
      static_cast<int64_t>(MaxSlabInts(shape.slab, shape.num_slots, shape.max_context, groups));
  bytes.runtime = (ints + TokenTableInts(shape)) * static_cast<int64_t>(sizeof(int32_t)) +
                  shape.slab.max_logits * static_cast<int64_t>(sizeof(SampleRow));
  return bytes;
}

Result<std::unique_ptr<Rank>> Rank::Create(const RankConfig& config, const RankShape& shape) {
  std::unique_ptr<Rank> rank(new Rank(config, shape));
  TANDEM_RETURN_IF_ERROR(rank->Allocate());
  rank->thread_ = std::thread([r = rank.get()] { r->Loop(); });
  return rank;
}

Rank::Rank(const RankConfig& config, const RankShape& shape)
    : config_(config),
      shape_(shape),
      lead_(config.communicator->shard().rank == 0),
      limits_{shape.slab.max_tokens, shape.slab.max_logits, shape.max_context, shape.num_threads},
      queue_(static_cast<size_t>(shape.max_in_flight) + 1) {}

Status Rank::Allocate() {
  const Shard shard = config_.communicator->shard();
  TANDEM_ASSIGN_OR_RETURN(
      groups_, MakeStateGroups(shape_.spec, shape_.numerics, shape_.tokens_per_block, shard));
  TANDEM_ASSIGN_OR_RETURN(model_, MakeModel(shape_.spec, *config_.weights, shape_.numerics, shard));
  TANDEM_ASSIGN_OR_RETURN(stream_, config_.device->NewStream());
  const auto allocate = [&](int64_t bytes, MemoryTerm term, Buffer* out) -> Status {
    TANDEM_ASSIGN_OR_RETURN(*out, config_.device->Allocate(static_cast<size_t>(bytes), term));
    return OkStatus();
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    Buffer state;
    TANDEM_RETURN_IF_ERROR(
        allocate(groups_[g].BlockBytes() * shape_.num_blocks[g], MemoryTerm::kKv, &state));
    state_.push_back(std::move(state));
  }
  const int64_t int_size = sizeof(int32_t);
  const int64_t logits = int64_t{shape_.slab.max_logits} * shape_.spec.vocab_size;
  const auto act = MemoryTerm::kActivations;
  const auto run = MemoryTerm::kRuntime;
  TANDEM_RETURN_IF_ERROR(
      allocate(static_cast<int64_t>(model_->WorkspaceBytes(limits_)), act, &workspace_));
  TANDEM_RETURN_IF_ERROR(allocate(logits * static_cast<int64_t>(sizeof(float)), act, &logits_));
  TANDEM_RETURN_IF_ERROR(allocate(
      static_cast<int64_t>(SampleScratchBytes(shape_.spec.vocab_size, shape_.slab.max_logits)), act,
      &sample_scratch_));
  TANDEM_RETURN_IF_ERROR(allocate(static_cast<int64_t>(MaxSlabInts(shape_.slab, shape_.num_slots,
                                                                   shape_.max_context, groups_)) *
                                      int_size,
                                  run, &ints_));
  TANDEM_RETURN_IF_ERROR(allocate(TokenTableInts(shape_) * int_size, run, &token_table_));
  TANDEM_RETURN_IF_ERROR(allocate(shape_.slab.max_logits * static_cast<int64_t>(sizeof(SampleRow)),
                                  run, &sample_rows_));
  group_batches_.resize(groups_.size());
  return OkStatus();
}

Rank::~Rank() {
  queue_.Close();
  if (thread_.joinable()) thread_.join();
  if (stream_ != nullptr) stream_->Synchronize();
}

void Rank::SetOnFinished(std::function<void(InFlightStep*)> on_rank_finished) {
  on_rank_finished_ = std::move(on_rank_finished);
}

void Rank::Start(InFlightStep* step) {
  TANDEM_CHECK(queue_.TryPush(std::move(step)));  // the executor keeps to max_in_flight
}

void Rank::Loop() {
  while (true) {
    const std::optional<InFlightStep*> step = queue_.PopFor(kWaitForever);
    if (step.has_value()) {
      Enqueue(**step);
    } else if (queue_.closed()) {
      return;
    }
  }
}

void Rank::Enqueue(InFlightStep& step) {
  if (lead_) {
    stream_->EnqueueHostCall([this, s = &step] { s->started.store(clock_.Now()); });
  }
  const auto copies = step.inputs.copies();
  for (size_t g = 0; g < copies.size(); ++g) {
    if (copies[g].from.empty()) continue;
    const PagedStateView state{state_[g].data(), &groups_[g], shape_.num_blocks[g]};
    CopyBlocks(*stream_, {state, copies[g].from.data(), copies[g].to.data(),
                          static_cast<int32_t>(copies[g].from.size())});
  }
  float* returned = step.result.logits.data();
  for (const Slab& slab : step.inputs.slabs()) {
    EnqueueSlab(slab);
    if (lead_ && !slab.return_rows.empty()) {
      EnqueueReturnedLogits(slab, returned);
      returned += slab.return_rows.size() * static_cast<size_t>(shape_.spec.vocab_size);
    }
  }
  if (lead_) {
    stream_->EnqueueCopy(step.sampled.data(), token_table_.data(),
                         static_cast<size_t>(shape_.num_slots) * sizeof(int32_t));
  }
  stream_->EnqueueHostCall([this, s = &step] { on_rank_finished_(s); });
}

void Rank::EnqueueSlab(const Slab& slab) {
  auto* ints = ints_.As<int32_t>();
  auto* tokens = token_table_.As<int32_t>();
  stream_->EnqueueCopy(ints, slab.ints.data(), slab.ints.size() * sizeof(int32_t));
  stream_->EnqueueCopy(tokens + shape_.num_slots, slab.known_tokens.data(),
                       slab.known_tokens.size() * sizeof(int32_t));
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupBatch& group = group_batches_[g];
    group.state = {state_[g].data(), &groups_[g], shape_.num_blocks[g]};
    group.batch.num_tokens = slab.num_tokens;
    group.batch.num_rows = slab.num_rows;
    group.batch.positions = ints + slab.positions;
    group.batch.row_of_token = ints + slab.row_of_token;
    group.batch.rows = reinterpret_cast<const BatchRow*>(ints + slab.rows[g]);
    group.batch.block_tables = ints + slab.block_tables[g];
  }
  ForwardArgs args;
  args.token_table = tokens;
  args.token_index = ints + slab.token_index;
  args.num_tokens = slab.num_tokens;
  args.groups = group_batches_;
  args.logit_tokens = ints + slab.logit_tokens;
  args.num_logits = static_cast<int32_t>(slab.logit_rows.size());
  args.logits = logits_.As<float>();
  args.workspace = workspace_.data();
  args.tap = tap_;
  model_->Forward(*stream_, *config_.communicator, limits_, args);
  if (slab.samples.empty()) return;
  stream_->EnqueueCopy(sample_rows_.data(), slab.samples.data(),
                       slab.samples.size() * sizeof(SampleRow));
  SampleRows(*stream_, {args.logits, shape_.spec.vocab_size, shape_.spec.tokenizer_size,
                        sample_rows_.As<SampleRow>(), static_cast<int32_t>(slab.samples.size()),
                        tokens, sample_scratch_.data()});
}

void Rank::EnqueueReturnedLogits(const Slab& slab, float* out) {
  const auto vocab = static_cast<size_t>(shape_.spec.vocab_size);
  for (size_t i = 0; i < slab.return_rows.size(); ++i) {
    stream_->EnqueueCopy(out + i * vocab,
                         logits_.As<float>() + static_cast<size_t>(slab.return_rows[i]) * vocab,
                         vocab * sizeof(float));
  }
}

}  // namespace tandem
