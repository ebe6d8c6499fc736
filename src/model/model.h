// What: Model: a forward pass over a batch of tokens. One implementation per family in arch/.
// Not here: blocks' owners, batching, sampling; weights (weights.h).
// Threads: as the stream; one pass at a time per model object and workspace.
// Invariants: a pass is cut into slabs, and a layer runs over all slabs before the next layer
//   begins: so a layer's weights are read once per slab while they are near, and its whole state is
//   complete (and can be handed off) while the next one runs. Only the residual stream is kept for
//   all tokens of a pass; everything else in the workspace is as large as a slab.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/model_spec.h"
#include "kernels/ops.h"
#include "model/communicator.h"
#include "model/weights.h"

namespace tandem {

// The batch as one state group sees it: the same tokens, the group's own block tables.
struct GroupBatch {
  PagedStateView state;
  BatchView batch;
};

// Sees the residual stream of a pass after each layer, in stream order (drafts that read hidden
// states, tests).
class LayerTap {
 public:
  virtual ~LayerTap() = default;
  // hidden: [num_tokens, hidden_dim] on the device, valid until later work of the stream.
  virtual void AfterLayer(Stream& stream, int32_t layer, const float* hidden,
                          int32_t num_tokens) = 0;
};

// Told, in stream order, of each layer of a pass whose state is complete (hand-off). That is behind
// the output projection of its attention: where ranks share a layer the sum has waited for all.
class StateProgress {
 public:
  virtual ~StateProgress() = default;
  virtual void AfterState(Stream& stream, int32_t layer) = 0;
};

// Neighbouring tokens of a pass that go through a layer together.
struct SlabArgs {
  int32_t first_token = 0;  // in the pass
  int32_t num_tokens = 0;
  std::span<const GroupBatch> groups;  // their tokens count from first_token
};

struct ForwardArgs {
  const int32_t* token_table = nullptr;  // see EmbedArgs
  const int32_t* token_index = nullptr;  // [num_tokens]
  int32_t num_tokens = 0;
  std::span<const SlabArgs> slabs;  // all tokens, in order; read before Forward returns
  std::byte* workspace = nullptr;
  LayerTap* tap = nullptr;
  StateProgress* progress = nullptr;
};

struct LogitsArgs {
  const int32_t* tokens = nullptr;  // of the last pass, whose logits are wanted, [num_logits]
  int32_t num_logits = 0;
  float* logits = nullptr;  // [num_logits, vocab_size]
  std::byte* workspace = nullptr;
};

// The largest batch that a workspace must hold.
struct WorkspaceLimits {
  int32_t max_pass_tokens = 0;
  int32_t max_slab_tokens = 0;
  int32_t max_logits = 0;
  int32_t max_context = 0;
  int32_t num_threads = 1;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual size_t WorkspaceBytes(const WorkspaceLimits& limits) const = 0;
  // Enqueues the layers of a pass. `limits` are those that the workspace was sized for.
  virtual void Forward(Stream& stream, Communicator& comm, const WorkspaceLimits& limits,
                       const ForwardArgs& args) = 0;
  // Enqueues the output projection for some tokens of the pass before, whose residual stream the
  // workspace still holds.
  virtual void Logits(Stream& stream, const WorkspaceLimits& limits, const LogitsArgs& args) = 0;
};

// The family that `spec.architecture` names, over `weights` (which must outlive the model). The
// spec's architecture and the tensors' shapes were checked when the file was read.
Result<std::unique_ptr<Model>> MakeModel(const ModelSpec& spec, const ModelWeights& weights,
                                         Numerics numerics, Shard shard);

}  // namespace tandem
