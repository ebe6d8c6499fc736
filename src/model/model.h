// What: Model: a forward pass over a batch of tokens. One implementation per family in arch/.
// Not here: blocks' owners, batching, sampling; weights (weights.h).
// Threads: as the stream; one Forward at a time per model object and workspace.
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

// Sees the residual stream after each layer, in stream order (drafts that read hidden states,
// tests).
class LayerTap {
 public:
  virtual ~LayerTap() = default;
  // hidden: [num_tokens, hidden_dim] on the device, valid until later work of the stream.
  virtual void AfterLayer(Stream& stream, int32_t layer, const float* hidden,
                          int32_t num_tokens) = 0;
};

struct ForwardArgs {
  const int32_t* token_table = nullptr;  // see EmbedArgs
  const int32_t* token_index = nullptr;  // [num_tokens]
  int32_t num_tokens = 0;
  std::span<const GroupBatch> groups;
  const int32_t* logit_tokens =
      nullptr;  // tokens of the batch whose logits are wanted, [num_logits]
  int32_t num_logits = 0;
  float* logits = nullptr;  // [num_logits, vocab_size]
  std::byte* workspace = nullptr;
  LayerTap* tap = nullptr;
};

// The largest batch that a workspace must hold.
struct WorkspaceLimits {
  int32_t max_tokens = 0;
  int32_t max_logits = 0;
  int32_t max_context = 0;
  int32_t num_threads = 1;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual size_t WorkspaceBytes(const WorkspaceLimits& limits) const = 0;
  // Enqueues the pass. `limits` are those that the workspace was sized for.
  virtual void Forward(Stream& stream, Communicator& comm, const WorkspaceLimits& limits,
                       const ForwardArgs& args) = 0;
};

// The family that `spec.architecture` names, over `weights` (which must outlive the model). The
// spec's architecture and the tensors' shapes were checked when the file was read.
Result<std::unique_ptr<Model>> MakeModel(const ModelSpec& spec, const ModelWeights& weights,
                                         Numerics numerics, Shard shard);

}  // namespace tandem
