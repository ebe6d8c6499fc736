#include "exec/rank.h"

#include <limits>

namespace tandem {
namespace {

// Advances the step's counter behind each layer. Nothing is allocated: what the call takes fits
// into std::function itself.
class CountLayers final : public StateProgress {
 public:
  explicit CountLayers(InFlightStep* step) : step_(step) {}
  void AfterState(Stream& stream, int32_t layer) override {
    stream.EnqueueHostCall(
        [s = step_, layers = layer + 1] { s->counter->Advance(s->result.step, layers); });
  }

 private:
  InFlightStep* const step_;
};

constexpr long long kWaitForever = std::numeric_limits<int32_t>::max();  // ns; the loop waits again

WorkspaceLimits WorkspaceOf(const RankShape& shape) {
  return {shape.slab.max_pass_tokens, shape.slab.max_tokens, shape.slab.max_logits,
          shape.max_context, shape.num_threads};
}

// Bytes of each buffer but the state.
struct BufferBytes {
  // Activations.
  size_t workspace, logits, logprobs, sample_scratch;
  // Runtime.
  size_t ints, token_table, history, sample_rows, logprob_rows, biases;

  int64_t activations() const {
    return static_cast<int64_t>(workspace + logits + logprobs + sample_scratch);
  }
  int64_t runtime() const {
    return static_cast<int64_t>(ints + token_table + history + sample_rows + logprob_rows + biases);
  }
};

BufferBytes SizeBuffers(const RankShape& shape, const Model& model,
                        std::span<const StateGroup> groups) {
  const auto slots = static_cast<size_t>(shape.num_slots);
  const auto rows = static_cast<size_t>(shape.slab.max_logits);
  BufferBytes bytes{};
  bytes.workspace = model.WorkspaceBytes(WorkspaceOf(shape));
  bytes.logits = rows * static_cast<size_t>(shape.spec.vocab_size) * sizeof(float);
  bytes.logprobs = rows * (1 + kMaxTopLogprobs) * sizeof(TokenLogprob);
  bytes.sample_scratch = SampleScratchBytes(shape.spec.vocab_size, shape.num_threads);
  bytes.ints =
      MaxPassInts(shape.slab, shape.num_slots, shape.max_context, groups) * sizeof(int32_t);
  bytes.token_table = (slots + static_cast<size_t>(shape.slab.max_pass_tokens)) * sizeof(int32_t);
  bytes.history = slots * static_cast<size_t>(shape.max_context) * sizeof(int32_t);
  bytes.sample_rows = rows * sizeof(SampleRow);
  bytes.logprob_rows = rows * sizeof(LogprobRow);
  bytes.biases = rows * (kMaxLogitBias + kMaxStopTokens) * sizeof(LogitBias);
  return bytes;
}

template <typename T>
void EnqueueUpload(Stream& stream, Buffer& to, const std::vector<T>& list, IndexRange range) {
  if (range.count == 0) return;
  stream.EnqueueCopy(to.data(), list.data() + range.begin,
                     static_cast<size_t>(range.count) * sizeof(T));
}

}  // namespace

RankBytes BytesOfRank(const RankShape& shape, const Model& model,
                      std::span<const StateGroup> groups) {
  RankBytes bytes;
  for (size_t g = 0; g < groups.size(); ++g)
    bytes.kv += groups[g].BlockBytes() * shape.num_blocks[g];
  const BufferBytes buffers = SizeBuffers(shape, model, groups);
  bytes.activations = buffers.activations();
  bytes.runtime = buffers.runtime();
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
      limits_(WorkspaceOf(shape)),
      queue_(static_cast<size_t>(shape.max_in_flight) + 1) {}

Status Rank::Allocate() {
  const Shard shard = config_.communicator->shard();
  TANDEM_ASSIGN_OR_RETURN(
      groups_, MakeStateGroups(shape_.spec, shape_.numerics, shape_.tokens_per_block, shard));
  TANDEM_ASSIGN_OR_RETURN(model_, MakeModel(shape_.spec, *config_.weights, shape_.numerics, shard));
  TANDEM_ASSIGN_OR_RETURN(stream_, config_.device->NewStream());
  const auto allocate = [&](size_t bytes, MemoryTerm term, Buffer* out) -> Status {
    TANDEM_ASSIGN_OR_RETURN(*out, config_.device->Allocate(bytes, term));
    return OkStatus();
  };
  for (size_t g = 0; g < groups_.size(); ++g) {
    Buffer state;
    const int64_t bytes = groups_[g].BlockBytes() * shape_.num_blocks[g];
    TANDEM_RETURN_IF_ERROR(allocate(static_cast<size_t>(bytes), MemoryTerm::kKv, &state));
    state_.push_back(std::move(state));
  }
  const BufferBytes bytes = SizeBuffers(shape_, *model_, groups_);
  const auto act = MemoryTerm::kActivations;
  const auto run = MemoryTerm::kRuntime;
  TANDEM_RETURN_IF_ERROR(allocate(bytes.workspace, act, &workspace_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.logits, act, &logits_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.logprobs, act, &logprobs_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.sample_scratch, act, &sample_scratch_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.ints, run, &ints_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.token_table, run, &token_table_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.history, run, &history_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.sample_rows, run, &sample_rows_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.logprob_rows, run, &logprob_rows_));
  TANDEM_RETURN_IF_ERROR(allocate(bytes.biases, run, &biases_));
  const auto slabs = static_cast<size_t>(MaxSlabs(shape_.slab));
  group_batches_.resize(slabs * groups_.size());
  slab_args_.reserve(slabs);
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
  EnqueueDeltas(step.inputs);
  Reported to{step.result.logits.data(), step.result.logprobs.data()};
  // The projections' sums across ranks make the lead wait for the others' states. Of several passes
  // the last completes a layer.
  CountLayers count(&step);
  const bool counts = lead_ && step.counter != nullptr;
  const std::span<const Pass> passes = step.inputs.passes();
  for (const Pass& pass : passes) {
    EnqueueLayers(pass, counts && &pass == &passes.back() ? &count : nullptr);
    for (const Pass::Chunk& chunk : pass.chunks) {
      EnqueueChunk(pass, chunk);
      if (lead_) EnqueueReports(pass, chunk, &to);
    }
  }
  if (lead_) {
    stream_->EnqueueCopy(step.sampled.data(), token_table_.data(),
                         static_cast<size_t>(shape_.num_slots) * sizeof(int32_t));
  }
  if (counts && passes.empty()) count.AfterState(*stream_, shape_.spec.num_layers - 1);
  stream_->EnqueueHostCall([this, s = &step] { on_rank_finished_(s); });
}

void Rank::EnqueueDeltas(const StepInputs& inputs) {
  const auto copies = inputs.copies();
  for (size_t g = 0; g < copies.size(); ++g) {
    if (copies[g].from.empty()) continue;
    const PagedStateView state{state_[g].data(), &groups_[g], shape_.num_blocks[g]};
    CopyBlocks(*stream_, {state, copies[g].from.data(), copies[g].to.data(),
                          static_cast<int32_t>(copies[g].from.size())});
  }
  for (const HistoryWrite& write : inputs.restored()) {
    EnqueueHistory(write, inputs.restored_tokens().data());
  }
}

void Rank::EnqueueHistory(const HistoryWrite& write, const int32_t* tokens) {
  int32_t* history = history_.As<int32_t>() + int64_t{write.slot} * shape_.max_context;
  stream_->EnqueueCopy(history + write.position, tokens + write.token_index,
                       static_cast<size_t>(write.num_tokens) * sizeof(int32_t));
}

void Rank::EnqueueLayers(const Pass& pass, StateProgress* progress) {
  auto* ints = ints_.As<int32_t>();
  auto* tokens = token_table_.As<int32_t>();
  stream_->EnqueueCopy(ints, pass.ints.data(), pass.ints.size() * sizeof(int32_t));
  stream_->EnqueueCopy(tokens + shape_.num_slots, pass.known_tokens.data(),
                       pass.known_tokens.size() * sizeof(int32_t));
  for (const HistoryWrite& write : pass.history) EnqueueHistory(write, tokens);
  slab_args_.clear();
  for (size_t i = 0; i < pass.slabs.size(); ++i) AddSlab(pass, i);
  ForwardArgs args;
  args.token_table = tokens;
  args.token_index = ints + pass.token_index;
  args.num_tokens = pass.num_tokens;
  args.slabs = slab_args_;
  args.workspace = workspace_.data();
  args.tap = tap_;
  args.progress = progress;
  model_->Forward(*stream_, *config_.communicator, limits_, args);
}

void Rank::AddSlab(const Pass& pass, size_t index) {
  const int32_t* ints = ints_.As<int32_t>();
  const Pass::Slab& slab = pass.slabs[index];
  GroupBatch* batches = group_batches_.data() + index * groups_.size();
  for (size_t g = 0; g < groups_.size(); ++g) {
    batches[g].state = {state_[g].data(), &groups_[g], shape_.num_blocks[g]};
    BatchView& batch = batches[g].batch;
    batch.num_tokens = slab.tokens.count;
    batch.num_rows = slab.rows.count;
    batch.positions = ints + pass.positions + slab.tokens.begin;
    batch.row_of_token = ints + pass.row_of_token + slab.tokens.begin;
    batch.rows = reinterpret_cast<const BatchRow*>(ints + pass.rows[g]) + slab.rows.begin;
    batch.block_tables = ints + pass.block_tables[g];
  }
  slab_args_.push_back({slab.tokens.begin, slab.tokens.count, {batches, groups_.size()}});
}

void Rank::EnqueueChunk(const Pass& pass, const Pass::Chunk& chunk) {
  LogitsArgs args;
  args.tokens = ints_.As<int32_t>() + pass.logit_tokens_offset + chunk.logits.begin;
  args.num_logits = chunk.logits.count;
  args.logits = logits_.As<float>();
  args.workspace = workspace_.data();
  model_->Logits(*stream_, limits_, args);
  if (chunk.samples.count == 0) return;
  EnqueueUpload(*stream_, sample_rows_, pass.samples, chunk.samples);
  EnqueueUpload(*stream_, biases_, pass.biases, chunk.biases);
  SampleArgs sample;
  sample.logits = args.logits;
  sample.vocab_size = shape_.spec.vocab_size;
  sample.num_choices = shape_.spec.tokenizer_size;
  sample.rows = sample_rows_.As<SampleRow>();
  sample.num_rows = chunk.samples.count;
  sample.biases = biases_.As<LogitBias>();
  sample.history = history_.As<int32_t>();
  sample.history_stride = shape_.max_context;
  sample.out = token_table_.As<int32_t>();
  sample.scratch = sample_scratch_.data();
  SampleRows(*stream_, sample);
}

void Rank::EnqueueReports(const Pass& pass, const Pass::Chunk& chunk, Reported* to) {
  const auto vocab = static_cast<size_t>(shape_.spec.vocab_size);
  const auto* logits = logits_.As<float>();
  for (int32_t i = 0; i < chunk.returned.count; ++i) {
    const auto row =
        static_cast<size_t>(pass.return_rows[static_cast<size_t>(chunk.returned.begin + i)]);
    stream_->EnqueueCopy(to->logits, logits + row * vocab, vocab * sizeof(float));
    to->logits += vocab;
  }
  if (chunk.logprobs.count == 0) return;
  EnqueueUpload(*stream_, logprob_rows_, pass.logprobs, chunk.logprobs);
  auto* entries = logprobs_.As<TokenLogprob>();
  ReportLogprobs(*stream_, {logits, shape_.spec.vocab_size, shape_.spec.tokenizer_size,
                            logprob_rows_.As<LogprobRow>(), chunk.logprobs.count,
                            token_table_.As<int32_t>(), entries});
  const auto count = static_cast<size_t>(chunk.logprob_entries);
  stream_->EnqueueCopy(to->logprobs, entries, count * sizeof(TokenLogprob));
  to->logprobs += count;
}

}  // namespace tandem
