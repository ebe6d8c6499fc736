// What: the model as the API shows it: its names, its text side, its defaults.
// Not here: weights and the engine (EngineClient).
// Threads: immutable once the server has it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "core/sampling_params.h"
#include "text/answer_parser.h"

namespace tandem {

class ChatTemplate;
class Tokenizer;

struct ServedModel {
  std::string name;                  // what /v1/models lists
  std::vector<std::string> aliases;  // other names requests may use
  int64_t created_s = 0;             // Unix time
  std::string fingerprint;           // answers' system_fingerprint: weights, numerics and build
  std::shared_ptr<const Tokenizer> tokenizer;
  // Null: a model without one; its /v1/chat/completions is a 400, /v1/completions works.
  std::shared_ptr<const ChatTemplate> chat_template;
  std::string chat_template_source;  // its Jinja text, which clients may ask for
  // How its answers are written: AnswerFormatOf(the source of chat_template). The default parses
  // nothing, and refuses tools.
  AnswerFormat answer_format;
  std::vector<TokenId> stop_tokens;  // end of turn
  SamplingParams default_sampling;   // for what a request leaves out; its seed, min_tokens and
                                     // top_logprobs are not used

  bool Answers(std::string_view requested) const {
    return requested == name ||
           std::find(aliases.begin(), aliases.end(), requested) != aliases.end();
  }
};

}  // namespace tandem
