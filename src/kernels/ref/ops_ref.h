// What: every op in scalar code, one value after the other: the definition of the numbers of
//   kernels/ops.h.
// Not here: speed, streams: each function returns when it is done. Arguments as in ops.h.
// Threads: pure functions of their arguments' memory.
#pragma once

#include "kernels/ops.h"

namespace tandem::ref {

void Embed(const EmbedArgs& args);
void GatherRows(const GatherRowsArgs& args);
void RmsNorm(const RmsNormArgs& args);
void MatMul(const MatMulArgs& args);
void RopeStore(const RopeStoreArgs& args);
// What RopeStore does with the finished `x` [dims] of one token and head: into the tile of `plane`,
// at `slot` of its block.
void StoreState(const StateGroup& group, size_t plane, int32_t slot, const float* x,
                std::byte* tile);
void Attention(const AttentionArgs& args);  // needs no scratch
void SiluMul(const SiluMulArgs& args);
void Add(const AddArgs& args);
void CopyBlocks(const CopyBlocksArgs& args);

}  // namespace tandem::ref
