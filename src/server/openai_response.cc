#include "server/openai_response.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string Dump(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string Quote(std::string_view text) { return Dump(OrderedJson(std::string(text))); }

OrderedJson UsageJson(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", int64_t{usage.prompt_tokens} + usage.completion_tokens}};
}

OrderedJson Head(const AnswerIdentity& identity, std::string_view object) {
  return {{"id", identity.id},
          {"object", std::string(object)},
          {"created", identity.created_s},
          {"model", identity.model},
          {"system_fingerprint", identity.system_fingerprint}};
}

}  // namespace

std::string_view OpenAiFinishReason(FinishReason reason) {
  TANDEM_CHECK(reason == FinishReason::kStop || reason == FinishReason::kLength);
  return reason == FinishReason::kStop ? "stop" : "length";
}

std::string ChatCompletionJson(const AnswerIdentity& identity, std::string_view text,
                               FinishReason reason, const Usage& usage) {
  OrderedJson answer = Head(identity, "chat.completion");
  OrderedJson message = {
      {"role", "assistant"}, {"content", std::string(text)}, {"refusal", nullptr}};
  answer["choices"] =
      OrderedJson::array({OrderedJson{{"index", 0},
                                      {"message", std::move(message)},
                                      {"logprobs", nullptr},
                                      {"finish_reason", std::string(OpenAiFinishReason(reason))}}});
  answer["usage"] = UsageJson(usage);
  return Dump(answer);
}

std::string ServerSentEvent(std::string_view json) { return fmt::format("data: {}\n\n", json); }

ChatChunks::ChatChunks(const AnswerIdentity& identity, bool include_usage)
    : head_(Dump(Head(identity, "chat.completion.chunk"))),
      tail_(include_usage ? R"(,"usage":null})" : "}") {
  head_.back() = ',';  // the object goes on
  head_ += R"("choices":)";
}

std::string ChatChunks::Chunk(std::string_view delta_json, std::string_view finish_json) const {
  return fmt::format(
      "data: {}[{{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":{}}}]{}\n\n", head_,
      delta_json, finish_json, tail_);
}

std::string ChatChunks::Role() const {
  return Chunk(R"({"role":"assistant","content":""})", "null");
}

std::string ChatChunks::Content(std::string_view delta) const {
  return Chunk(fmt::format("{{\"content\":{}}}", Quote(delta)), "null");
}

std::string ChatChunks::Finish(FinishReason reason) const {
  return Chunk("{}", Quote(OpenAiFinishReason(reason)));
}

std::string ChatChunks::UsageChunk(const Usage& usage) const {
  return fmt::format("data: {}[],\"usage\":{}}}\n\n", head_, Dump(UsageJson(usage)));
}

}  // namespace tandem
