// What: a GGUF file's tokenizer keys as a Vocabulary. Here because model knows no text and text no
//   files.
// Not here: checks of the vocabulary's sense (text/vocab.h, Tokenizer::Create).
// Threads: pure function.
#pragma once

#include "base/status.h"
#include "model/gguf.h"
#include "text/vocab.h"

namespace tandem {

// NOT_FOUND or INVALID_ARGUMENT name the key.
Result<Vocabulary> VocabularyFromGguf(const GgufFile& file);

}  // namespace tandem
