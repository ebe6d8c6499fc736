#include "server/chat_endpoint.h"

#include <fmt/format.h>

#include <utility>

#include "server/chat_answer.h"
#include "server/chat_prompt.h"
#include "server/chat_request.h"

namespace tandem {
namespace {

using Kind = ToolChoice::Kind;

bool AllowsTools(const ChatRequest& chat) {
  return !chat.tools.empty() && chat.tool_choice.kind != Kind::kNone;
}

std::optional<ApiError> CheckFormat(const ServerState& state, const ChatRequest& chat) {
  if (!AllowsTools(chat) || state.model.answer_format.tools != ToolFormat::kNone) {
    return std::nullopt;
  }
  return FieldError("unsupported_value", "tools",
                    fmt::format("The chat template of {} has no tool calls that this server "
                                "understands: leave out 'tools', or set 'tool_choice' to 'none'.",
                                state.model.name));
}

// reasoning_effort is a variable of some templates; others only know whether to think.
std::optional<ApiError> SetVariables(ChatRequest& chat) {
  Json& kwargs = chat.chat_template_kwargs;
  if (const auto reserved = ChatPrompt::ReservedVariable(kwargs)) {
    return ValueError(fmt::format("chat_template_kwargs.{}", *reserved),
                      "a request sets this in other ways");
  }
  if (chat.reasoning_effort.empty()) return std::nullopt;
  if (!kwargs.contains("reasoning_effort")) kwargs["reasoning_effort"] = chat.reasoning_effort;
  if (chat.reasoning_effort == "none" && !kwargs.contains("enable_thinking")) {
    kwargs["enable_thinking"] = false;
  }
  return std::nullopt;
}

std::string ForcedBegin(const ServerState& state, const ChatRequest& chat) {
  const ToolFormat format = state.model.answer_format.tools;
  switch (chat.tool_choice.kind) {
    case Kind::kRequired: return ForcedCallBegin(format, std::nullopt);
    case Kind::kNamed: return ForcedCallBegin(format, chat.tool_choice.name);
    case Kind::kDefault:
    case Kind::kNone:
    case Kind::kAuto: break;
  }
  return {};
}

ApiResult<EncodedPrompt> EncodeChat(const ServerState& state, const ChatRequest& chat,
                                    std::string_view forced) {
  size_t bytes = 0;
  for (const Json& message : chat.messages) {
    bytes += message.at("content").get_ref<const std::string&>().size();
  }
  if (auto error = CheckTextLength(state, bytes, "messages")) return *error;
  Result<EncodedPrompt> prompt = state.prompt.Encode(chat, forced, /*add_special=*/false);
  if (!prompt.ok()) {
    ApiError error = ToApiError(prompt.status());
    if (error.http_status == 400) error.param = "messages";
    if (prompt.status().code() == StatusCode::kOutOfRange) error.code = "invalid_value";
    return error;
  }
  if (auto error = CheckContext(state, static_cast<int64_t>(prompt->tokens.size()), chat.max_tokens,
                                "messages")) {
    return *error;
  }
  return std::move(prompt).value();
}

// The words that the parser must see even where the vocabulary hides them as control tokens.
std::vector<TokenId> Markers(const ServerState& state, const AnswerParser::Options& parser) {
  std::vector<std::string> texts;
  if (parser.reasoning) texts = {parser.format.think_begin, parser.format.think_end};
  if (parser.tools) {
    const auto words = CallWords(parser.format.tools);
    texts.insert(texts.end(), words.begin(), words.end());
  }
  std::vector<TokenId> tokens;
  for (const std::string& text : texts) {
    if (const auto token = state.model.tokenizer->FindSpecial(text)) tokens.push_back(*token);
  }
  return tokens;
}

// Mistral's templates take ids of nine letters and digits only; four of them number the call.
std::string CallIdPrefix(ServerState& state) {
  const ToolFormat format = state.model.answer_format.tools;
  const bool mistral = format == ToolFormat::kMistralList || format == ToolFormat::kMistralArgs;
  return mistral ? state.NewId("").substr(0, 5) : state.NewId("call_");
}

// None where the model does not think, or a tag is no single token.
std::optional<ReasoningTokens> ThinkingOf(const ServerState& state,
                                          const AnswerParser::Options& parser) {
  if (!parser.reasoning || !parser.forced_begin.empty()) return std::nullopt;
  const Tokenizer& tokenizer = *state.model.tokenizer;
  const auto end = tokenizer.FindSpecial(parser.format.think_end);
  if (!end) return std::nullopt;
  return ReasoningTokens{tokenizer.FindSpecial(parser.format.think_begin), *end,
                         EndsInThought(parser.prompt_end, parser.format)};
}

}  // namespace

ApiResult<AnswerPlan> PlanChat(ServerState& state, std::string_view body,
                               const RequestContext& context) {
  ApiResult<ChatRequest> parsed = ParseChatRequest(body);
  if (!parsed.ok()) return parsed.error();
  ChatRequest& chat = parsed.value();
  if (auto error = CheckModel(state, chat.model)) return *error;
  if (auto error = CheckTokenFields(state, chat)) return *error;
  if (auto error = CheckFormat(state, chat)) return *error;
  if (auto error = SetVariables(chat)) return *error;
  const bool tools = AllowsTools(chat);
  if (!tools) chat.tools = Json::array();
  const std::string forced = tools ? ForcedBegin(state, chat) : std::string();
  ApiResult<EncodedPrompt> prompt = EncodeChat(state, chat, forced);
  if (!prompt.ok()) return prompt.error();

  ChatAnswerOptions answer;
  answer.identity = NewIdentity(state, "chatcmpl-", chat.model);
  answer.usage_mode = chat.usage_mode();
  answer.stream = chat.stream;
  answer.choices = static_cast<size_t>(chat.n);
  answer.parser = {.format = state.model.answer_format,
                   .tools = tools,
                   .reasoning = state.model.answer_format.reasoning,
                   .prompt_end = std::move(prompt.value().text_end),
                   .forced_begin = forced,
                   .parameters = std::make_shared<const ToolParameters>(chat.tools)};
  answer.include_reasoning = chat.include_reasoning;
  answer.parallel_tool_calls = chat.parallel_tool_calls;
  answer.logprobs = chat.logprobs;
  answer.top_logprobs = chat.top_logprobs;
  answer.return_token_ids = chat.return_token_ids;
  if (chat.return_token_ids) answer.prompt = prompt.value().tokens;
  answer.call_id_prefix = CallIdPrefix(state);

  AnswerPlan plan;
  plan.stream = chat.stream;
  plan.usage_at_end = chat.include_usage;
  Request request = BuildRequest(state, chat, context);
  request.prompt = std::move(prompt.value().tokens);
  request.max_output_tokens = chat.max_tokens;
  if (chat.logprobs) request.sampling.top_logprobs = chat.top_logprobs;
  TextOptions text = BuildTextOptions(state, chat);
  text.shown_special = Markers(state, answer.parser);
  text.reasoning = ThinkingOf(state, answer.parser);
  if (tools && !chat.parallel_tool_calls) text.one_call = answer.parser;
  AddSamples(request, text, chat.n, plan);
  plan.body = std::make_unique<ChatAnswer>(state.model.tokenizer, std::move(answer));
  return plan;
}

}  // namespace tandem
