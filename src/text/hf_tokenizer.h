// What: VocabularyFromHf: the tokenizer files of a Hugging Face folder as a Vocabulary.
// Not here: finding and reading the files; checks of the vocabulary's sense (vocab.h,
//   Tokenizer::Create).
// Threads: pure function.
// Invariants: what a file asks for and Tandem does not do exactly is refused by its name, never
//   approximated. Supported are BPE models in two forms:
//   byte-level    pre-tokenisers of GPT-2, SmolLM2, Llama-3 and Qwen2/3, recognised by their known
//                 expressions (pretokenizer.h); no normaliser or NFC
//   characters    as SentencePiece cuts: a blank written as U+2581 by the normaliser (Llama-2, with
//                 one put first; Gemma, without) or by Metaspace; NFC; byte_fallback; unk_token
//   Added tokens may be single_word, lstrip, rstrip and normalized.
// Cost: one pass over each text; memory of about six times tokenizer.json.
// Based on: the format of Hugging Face's `tokenizers`.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/vocab.h"

namespace tandem {

inline constexpr size_t kMaxTokenizerJsonBytes = size_t{128} << 20;
// Of each of the other files.
inline constexpr size_t kMaxTokenizerConfigBytes = size_t{8} << 20;

// Whole texts of the files; empty where there is none.
struct HfTokenizerFiles {
  std::string_view tokenizer;          // tokenizer.json: required
  std::string_view config;             // tokenizer_config.json: bos, eos, padding, chat template
  std::string_view generation_config;  // generation_config.json: more tokens that end an answer
  std::string_view chat_template;      // chat_template.jinja: goes before the one in `config`
};

// Errors begin with the file's name. UNIMPLEMENTED names what is not supported; DATA_LOSS,
// INVALID_ARGUMENT and OUT_OF_RANGE what is wrong.
Result<Vocabulary> VocabularyFromHf(const HfTokenizerFiles& files);

}  // namespace tandem
