#include "server/completion_answer.h"

#include <algorithm>
#include <utility>

namespace tandem {

CompletionAnswer::CompletionAnswer(std::shared_ptr<const Tokenizer> tokenizer,
                                   CompletionAnswerOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      frame_(options_.identity, "text_completion", "text_completion", options_.usage_mode),
      choices_(options_.prompts.size() * options_.samples) {}

std::string CompletionAnswer::Append(size_t index, const TextOutput& output, const Usage& so_far) {
  Choice& choice = choices_[index];
  choice.prompt_logprobs.insert(choice.prompt_logprobs.end(), output.prompt_logprobs.begin(),
                                output.prompt_logprobs.end());
  const bool first = !choice.begun && (output.new_tokens > 0 || output.finish);
  if (first) {
    choice.begun = true;
    if (options_.echo) AppendEcho(choice, options_.prompts[index / options_.samples]);
  }
  if (!options_.discard_output) {
    choice.text += output.delta;
    if (options_.logprobs) {
      choice.logprobs.Append(*tokenizer_, output.tokens, choice.echo_chars);
    }
    if (options_.return_token_ids) {
      for (const TextToken& token : output.tokens) choice.token_ids.push_back(token.token.value());
    }
  }
  if (output.finish && options_.discard_output) {
    choice.finish = "length";
  } else if (output.finish) {
    choice.finish = OpenAiFinishReason(*output.finish);
    choice.stop_reason = output.stop_reason;
  }
  if (!options_.stream || (choice.text.empty() && !output.finish)) return {};
  return frame_.Chunk(ChoiceJson(index), so_far, Json::object());
}

std::string CompletionAnswer::Whole(const FinalUsage& usage) {
  Json list = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) list.push_back(ChoiceJson(i));
  return frame_.Whole(std::move(list), usage, Json::object());
}

void CompletionAnswer::AppendEcho(Choice& choice, const CompletionPrompt& prompt) {
  choice.text += prompt.text;
  choice.echo_chars = CountChars(prompt.text);
  if (!options_.logprobs) return;
  const auto per_token = static_cast<size_t>(options_.top_logprobs) + 1;
  std::vector<TextToken> tokens = prompt.text_tokens;
  const auto numbers = std::span(choice.prompt_logprobs);
  for (size_t i = 1; i < tokens.size() && i * per_token <= numbers.size(); ++i) {
    const auto own = numbers.subspan((i - 1) * per_token, per_token);
    tokens[i].logprobs.assign(own.begin(), own.end());
  }
  choice.logprobs.Append(*tokenizer_, tokens, 0);
  choice.prompt_logprobs = {};
}

Json CompletionAnswer::ChoiceJson(size_t index) {
  Choice& choice = choices_[index];
  Json out = {{"index", index}, {"text", std::exchange(choice.text, {})}};
  out["logprobs"] = options_.logprobs ? choice.logprobs.Take() : Json(nullptr);
  out["finish_reason"] = nullptr;
  if (!choice.finish.empty()) {
    out["finish_reason"] = choice.finish;
    out["stop_reason"] = StopReasonJson(choice.stop_reason);
  }
  if (!options_.return_token_ids) return out;
  if (!std::exchange(choice.prompt_ids_sent, true)) {
    Json ids = Json::array();
    for (const TokenId token : options_.prompts[index / options_.samples].tokens) {
      ids.push_back(token.value());
    }
    out["prompt_token_ids"] = std::move(ids);
  }
  out["token_ids"] = std::exchange(choice.token_ids, Json::array());
  return out;
}

}  // namespace tandem
