#include "server/chat_answer.h"

#include <fmt/format.h>

#include <utility>

#include "server/token_json.h"

namespace tandem {

ChatAnswer::ChatAnswer(std::shared_ptr<const Tokenizer> tokenizer, ChatAnswerOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      frame_(options_.identity, "chat.completion", "chat.completion.chunk", options_.usage_mode) {
  for (size_t i = 0; i < options_.choices; ++i) choices_.emplace_back(options_.parser);
}

std::string ChatAnswer::Append(size_t index, const TextOutput& output, const Usage& so_far) {
  Choice& choice = choices_[index];
  std::string events;
  if (options_.stream && !choice.begun) {
    choice.begun = true;
    events += Chunk(index, {{"role", "assistant"}, {"content", ""}}, /*last=*/false, so_far);
  }
  std::vector<AnswerPiece> pieces = choice.parser.Append(output.delta);
  if (output.finish) {
    for (AnswerPiece& piece : choice.parser.Flush()) pieces.push_back(std::move(piece));
    const bool calls = *output.finish == FinishReason::kStop && choice.parser.num_calls() > 0;
    choice.finish = calls ? "tool_calls" : OpenAiFinishReason(*output.finish);
    choice.stop_reason = output.stop_reason;
  }
  if (options_.logprobs) {
    AppendChatLogprobs(*tokenizer_, output.tokens, options_.top_logprobs, choice.logprobs);
  }
  if (options_.return_token_ids) {
    for (const TextToken& token : output.tokens) choice.token_ids.push_back(token.token.value());
  }
  for (const AnswerPiece& piece : pieces) {
    if (!Wanted(piece)) continue;
    if (options_.stream) {
      events += Chunk(index, DeltaOf(index, piece), /*last=*/false, so_far);
    } else {
      Fold(index, piece);
    }
  }
  if (options_.stream && output.finish) {
    events += Chunk(index, Json::object(), /*last=*/true, so_far);
  }
  return events;
}

std::string ChatAnswer::Whole(const FinalUsage& usage) {
  Json list = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    Json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
    if (choice.content.empty() && !choice.tool_calls.empty()) message["content"] = nullptr;
    if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
    if (!choice.tool_calls.empty()) message["tool_calls"] = std::move(choice.tool_calls);
    Json entry = {{"index", i}, {"message", std::move(message)}};
    AddTokens(choice, entry);
    entry["finish_reason"] = choice.finish;
    entry["stop_reason"] = StopReasonJson(choice.stop_reason);
    list.push_back(std::move(entry));
  }
  return frame_.Whole(std::move(list), usage, PromptIds());
}

bool ChatAnswer::Wanted(const AnswerPiece& piece) const {
  if (piece.kind == AnswerPiece::Kind::kReasoning) return options_.include_reasoning;
  return piece.call <= 0 || options_.parallel_tool_calls;
}

std::string ChatAnswer::CallId(size_t choice, int32_t call) const {
  return fmt::format("{}{:02x}{:02x}", options_.call_id_prefix, choice, call);
}

Json ChatAnswer::DeltaOf(size_t choice, const AnswerPiece& piece) const {
  switch (piece.kind) {
    case AnswerPiece::Kind::kContent: return {{"content", piece.text}};
    case AnswerPiece::Kind::kReasoning: return {{"reasoning_content", piece.text}};
    case AnswerPiece::Kind::kToolName:
      return {{"tool_calls",
               Json::array({Json{{"index", piece.call},
                                 {"id", CallId(choice, piece.call)},
                                 {"type", "function"},
                                 {"function", {{"name", piece.text}, {"arguments", ""}}}}})}};
    case AnswerPiece::Kind::kToolArguments: break;
  }
  return {{"tool_calls",
           Json::array({Json{{"index", piece.call}, {"function", {{"arguments", piece.text}}}}})}};
}

void ChatAnswer::Fold(size_t index, const AnswerPiece& piece) {
  Choice& choice = choices_[index];
  switch (piece.kind) {
    case AnswerPiece::Kind::kContent: choice.content += piece.text; return;
    case AnswerPiece::Kind::kReasoning: choice.reasoning += piece.text; return;
    case AnswerPiece::Kind::kToolName:
      choice.tool_calls.push_back({{"id", CallId(index, piece.call)},
                                   {"type", "function"},
                                   {"function", {{"name", piece.text}, {"arguments", ""}}}});
      return;
    case AnswerPiece::Kind::kToolArguments: break;
  }
  Json& arguments = choice.tool_calls.back()["function"]["arguments"];
  arguments.get_ref<std::string&>() += piece.text;
}

std::string ChatAnswer::Chunk(size_t index, Json delta, bool last, const Usage& so_far) {
  Json choice = {{"index", index}, {"delta", std::move(delta)}};
  AddTokens(choices_[index], choice);
  choice["finish_reason"] = nullptr;
  if (last) {
    choice["finish_reason"] = choices_[index].finish;
    choice["stop_reason"] = StopReasonJson(choices_[index].stop_reason);
  }
  const Json more = std::exchange(prompt_sent_, true) ? Json::object() : PromptIds();
  return frame_.Chunk(choice, so_far, more);
}

Json ChatAnswer::PromptIds() const {
  if (!options_.return_token_ids) return Json::object();
  Json ids = Json::array();
  for (const TokenId token : options_.prompt) ids.push_back(token.value());
  return {{"prompt_token_ids", std::move(ids)}};
}

void ChatAnswer::AddTokens(Choice& choice, Json& out) const {
  const bool silent = options_.stream && choice.logprobs.empty();
  if (options_.logprobs && !silent) {
    out["logprobs"] = {{"content", std::exchange(choice.logprobs, Json::array())},
                       {"refusal", nullptr}};
  } else {
    out["logprobs"] = nullptr;
  }
  if (!options_.return_token_ids) return;
  out["token_ids"] = std::exchange(choice.token_ids, Json::array());
}

}  // namespace tandem
