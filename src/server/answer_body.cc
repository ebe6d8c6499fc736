#include "server/answer_body.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

Json UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json FinalUsageJson(const FinalUsage& final_usage) {
  Json usage = UsageJson(final_usage.usage);
  const RequestTiming& timing = final_usage.timing;
  usage["timing"] = {{"queue_ms", Milliseconds(timing.queue)},
                     {"prefill_ms", Milliseconds(timing.prefill)},
                     {"decode_ms", Milliseconds(timing.decode)},
                     {"cached_tokens", final_usage.usage.cached_tokens},
                     {"recomputed_tokens", timing.recomputed_tokens}};
  return usage;
}

Json IdentityJson(const AnswerIdentity& identity) {
  return {{"id", identity.id},
          {"object", nullptr},
          {"created", identity.created_s},
          {"model", identity.model},
          {"system_fingerprint", identity.system_fingerprint}};
}

}  // namespace

std::string ServerSentEvent(std::string_view json) { return fmt::format("data: {}\n\n", json); }

std::string_view OpenAiFinishReason(FinishReason reason) {
  TANDEM_CHECK(reason == FinishReason::kStop || reason == FinishReason::kLength);
  return reason == FinishReason::kStop ? "stop" : "length";
}

Json StopReasonJson(const StopReason& reason) {
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  if (const auto* token = std::get_if<TokenId>(&reason)) return token->value();
  return nullptr;
}

AnswerFrame::AnswerFrame(const AnswerIdentity& identity, std::string_view object,
                         std::string_view chunk_object, UsageMode usage_mode)
    : identity_(IdentityJson(identity)), object_(object), usage_mode_(usage_mode) {
  Json head = identity_;
  head["object"] = std::string(chunk_object);
  chunk_head_ = DumpJson(head);
  chunk_head_.back() = ',';  // the object goes on
  chunk_head_ += R"("choices":)";
}

std::string AnswerFrame::Whole(Json choices, const FinalUsage& usage, const Json& more) const {
  Json answer = identity_;
  answer["object"] = object_;
  answer["choices"] = std::move(choices);
  answer["usage"] = FinalUsageJson(usage);
  answer.update(more);
  return DumpJson(answer);
}

std::string AnswerFrame::Chunk(const Json& choice, const Usage& so_far, const Json& more) const {
  std::string event = fmt::format("data: {}[{}]", chunk_head_, DumpJson(choice));
  if (usage_mode_ == UsageMode::kAtEnd) event += R"(,"usage":null)";
  if (usage_mode_ == UsageMode::kContinuous) {
    event += R"(,"usage":)" + DumpJson(UsageJson(so_far));
  }
  for (const auto& [name, value] : more.items()) {
    event += fmt::format(R"(,"{}":{})", name, DumpJson(value));
  }
  return event + "}\n\n";
}

std::string AnswerFrame::UsageChunk(const FinalUsage& usage) const {
  return fmt::format("data: {}[],\"usage\":{}}}\n\n", chunk_head_, DumpJson(FinalUsageJson(usage)));
}

}  // namespace tandem
