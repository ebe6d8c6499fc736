// What: which type each tensor of a written GGUF file gets: the mix that a type's name stands for.
// Not here: codecs (tensor/block_quant.h), files (quantize.h, synth.h).
// Threads: pure functions.
// Based on: the mixes of llama.cpp's plain types, so that files compare: norms and biases stay F32,
//   and the matrix that makes the logits (the embedding, when it is tied) is stored finer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/model_spec.h"
#include "model/ggml_types.h"
#include "model/tensor_layout.h"
#include "tensor/dtype.h"

namespace tandem {

// The types that a tensor can be written in, by GGML number. Those that Tandem reads but has no
// quantiser for are not among them.
std::vector<const GgmlTypeInfo*> WritableTypes();
// By name, upper or lower case. INVALID_ARGUMENT lists all and names the nearest.
Result<DType> WritableTypeFromName(std::string_view name);
// Its number in GGUF files.
const GgmlTypeInfo& GgmlInfoOf(DType dtype);

struct TypeMix {
  DType type = DType::kQ4_0;       // of the matrices
  std::optional<DType> embedding;  // of the embedding and of what makes the logits; none: as usual
};

struct ChosenType {
  DType type = DType::kF32;
  DType wanted = DType::kF32;  // by the mix; another when its blocks do not divide the rows
  bool operator==(const ChosenType&) const = default;
};

// `tensor` is one of TensorsOf(spec). Vectors are F32. Rows that 256 does not divide fall back from
// the K types to a type with blocks of 32 and about as many bits; rows that 32 does not divide, to
// F16.
ChosenType ChooseType(const TypeMix& mix, const ModelSpec& spec, const TensorSpec& tensor);

// What "general.file_type" is for a file of this type.
uint32_t FileTypeOf(DType dtype);

// Counts tensors by type, for the lines that say what was written.
class TypeCounts {
 public:
  void Add(const TensorSpec& tensor, ChosenType chosen);
  // "61 x F32, 211 x Q4_0; token_embd.weight is Q8_0"
  std::string ToText() const;
  // Which types stand in for others: "30 x Q5_0 instead of Q4_K"; empty without any.
  std::string FallbackText() const;

 private:
  struct Count {
    ChosenType chosen;
    int64_t tensors = 0;
  };
  std::vector<Count> counts_;
  std::string outside_layers_;  // the embedding and the output, one by one
};

}  // namespace tandem
