// What: the answer of GET /tokenizer_info: what a client needs to know of the tokenizer, in the
//   words of a Hugging Face tokenizer_config.json, as vLLM answers it.
// Not here: encoding and decoding (tokenize_endpoint.h).
// Threads: pure function.
#pragma once

#include <cstdint>
#include <string>

#include "server/served_model.h"

namespace tandem {

// JSON. Tokens that the vocabulary does not name are null; the template is the one in use.
std::string TokenizerInfoJson(const ServedModel& model, int32_t max_context_tokens);

}  // namespace tandem
