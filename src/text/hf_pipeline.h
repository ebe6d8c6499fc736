// What: the steps around the model in a tokenizer.json (normalizer, pre_tokenizer, post_processor,
//   decoder),
//   recognised and written into a Vocabulary.
// Not here: vocabulary and merges (hf_tokenizer.cc, the only user). Included by .cc files only.
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/vocab.h"

namespace tandem {

// Sets model, pre and all that concerns normalisation and blanks from the root of a tokenizer.json.
// UNIMPLEMENTED names a step that is not supported.
Status ReadPipeline(const nlohmann::json& root, bool byte_fallback, Vocabulary& v);

// Sets add_bos, bos, add_eos and eos. Requires v.tokens.
Status ReadPostProcessor(const nlohmann::json& root, Vocabulary& v);

// A file's text in an error: quoted, bounded, free of control characters.
std::string QuoteText(std::string_view text);

}  // namespace tandem
