// What: log probabilities as the API writes them: of chats (bytes that rebuild the text) and of
//   completions (four lists side by side).
// Not here: which tokens are part of a text (generation.h). Included by the server's .cc files
//   only.
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/generation.h"
#include "server/json_body.h"
#include "text/tokenizer.h"

namespace tandem {

// The bytes that a token adds to a text.
std::string TokenText(const Tokenizer& tokenizer, TokenId token, bool at_start);

// A token's bytes where they are whole characters, else "\xE2\x82": an escape for every byte.
std::string ChatTokenName(std::string_view bytes);
// The same, but "bytes:\xe2\x82", as OpenAI's completions have it.
std::string CompletionTokenName(std::string_view bytes);

// Appends the entries of "logprobs.content" for those of `tokens` that are in the text, each with
// at most `top` alternatives.
void AppendChatLogprobs(const Tokenizer& tokenizer, std::span<const TextToken> tokens, int32_t top,
                        Json& content);

// "logprobs" of a completion.
class CompletionLogprobs {
 public:
  // For those of `tokens` that are in the text. A token without numbers, the first of a prompt, has
  // null.
  void Append(const Tokenizer& tokenizer, std::span<const TextToken> tokens, int64_t text_offset);
  // What has been appended since the last call.
  Json Take();

 private:
  Json tokens_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json top_logprobs_ = Json::array();
  Json text_offset_ = Json::array();
};

}  // namespace tandem
