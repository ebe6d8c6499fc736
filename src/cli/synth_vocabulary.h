// What: a byte-level BPE vocabulary of any size for models with random weights: every byte is a
//   token, so that any text can be encoded, and merges of bytes and pairs fill it up.
// Not here: weights (model/synth.h).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "model/gguf_writer.h"
#include "text/vocab.h"

namespace tandem {

// `size` tokens, none of them unused; the last three are ChatML's control tokens, for which there
// is a chat template. The pre-tokeniser is one that models of this architecture have.
// INVALID_ARGUMENT when `size` is too small for the bytes, or beyond what Tandem reads.
Result<Vocabulary> MakeSynthVocabulary(std::string_view architecture, int32_t size);

// Adds its keys as GGUF files have them. Requires a vocabulary made above.
void AddVocabularyTo(GgufHeader& header, const Vocabulary& vocabulary);

}  // namespace tandem
