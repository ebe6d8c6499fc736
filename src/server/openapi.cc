#include "server/openapi.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "server/api.h"
#include "server/chat_message.h"
#include "server/chat_request.h"
#include "server/chat_tools.h"
#include "server/completion_request.h"
#include "server/generation_table.h"
#include "server/json_body.h"
#include "server/request_context.h"
#include "server/tokenize_request.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

Json Ref(std::string_view name) { return {{"$ref", fmt::format("#/components/schemas/{}", name)}}; }

// ---- Requests, from their tables

Json PropertyOf(const FieldInfo& field) {
  if (field.use == FieldUse::kIgnored) return Json::object();
  if (field.use == FieldUse::kRefused && field.neutral.empty()) return {{"type", "null"}};
  Json schema = Json::parse(field.schema);
  if (field.required) return schema;
  return {{"anyOf", Json::array({std::move(schema), Json{{"type", "null"}}})}};
}

Json ObjectOf(std::initializer_list<std::vector<FieldInfo>> tables) {
  Json properties = Json::object();
  Json required = Json::array();
  for (const auto& table : tables) {
    for (const FieldInfo& field : table) {
      properties[std::string(field.name)] = PropertyOf(field);
      if (field.required) required.push_back(std::string(field.name));
    }
  }
  Json object = {
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
  if (!required.empty()) object["required"] = std::move(required);
  return object;
}

Json TokenizeSchema() {
  std::vector<FieldInfo> rendering = RenderingFieldInfos();
  for (FieldInfo& field : rendering) field.required = false;
  Json schema = ObjectOf({TokenizeRequestFields(), rendering});
  schema["oneOf"] = Json::parse(R"([
      {"required": ["prompt"],
       "properties": {"prompt": {"type": "string"}, "messages": {"type": "null"}}},
      {"required": ["messages"],
       "properties": {"prompt": {"type": "null"}, "messages": {"type": "array"}}}])");
  return schema;
}

// ---- What no single field can say, as far as JSON Schema can. What it cannot (that prompt and
// answer fit the context, that a named tool exists, ...) is a 400 all the same.

constexpr std::string_view kMessageRules = R"([
  {"properties": {"role": {"const": "tool"}, "content": {"type": ["string", "array"]},
                  "tool_call_id": {"type": "string", "minLength": 1},
                  "tool_calls": {"enum": [null, []]}, "reasoning_content": {"enum": [null, ""]},
                  "reasoning": {"enum": [null, ""]}},
   "required": ["content", "tool_call_id"]},
  {"properties": {"role": {"enum": ["system", "developer", "user"]},
                  "content": {"type": ["string", "array"]}, "tool_call_id": {"enum": [null, ""]},
                  "tool_calls": {"enum": [null, []]}, "reasoning_content": {"enum": [null, ""]},
                  "reasoning": {"enum": [null, ""]}},
   "required": ["content"]},
  {"properties": {"role": {"const": "assistant"}, "content": {"type": ["string", "array"]},
                  "tool_call_id": {"enum": [null, ""]}},
   "required": ["content"]},
  {"properties": {"role": {"const": "assistant"}, "tool_call_id": {"enum": [null, ""]},
                  "tool_calls": {"type": "array", "minItems": 1}},
   "required": ["tool_calls"]}])";

// Pairs of which one must hold. Few: property testers multiply the branches, and give up above four
// rules. So nothing says that two names of one field (cache_salt, prompt_cache_key) must agree.
constexpr std::string_view kStreamRule = R"({"anyOf": [
  {"properties": {"stream_options": {"type": "null"}}},
  {"required": ["stream"], "properties": {"stream": {"const": true}}}]})";
constexpr std::string_view kChatRules[] = {
    kStreamRule,
    R"({"anyOf": [{"properties": {"max_tokens": {"type": "null"}}},
                  {"properties": {"max_completion_tokens": {"type": "null"}}}]})",
    R"({"anyOf": [{"properties": {"top_logprobs": {"enum": [0, null]}}},
                  {"required": ["logprobs"], "properties": {"logprobs": {"const": true}}}]})",
};
constexpr std::string_view kToolsRule =
    R"({"anyOf": [{"properties": {"tool_choice": {"enum": ["none", "auto", null]}}},
                  {"required": ["tools"],
                   "properties": {"tools": {"type": "array", "minItems": 1}}}]})";
// Of a model without tool calls.
constexpr std::string_view kNoToolsRule = R"({"anyOf": [
  {"properties": {"tools": {"enum": [null, []]}, "tool_choice": {"enum": ["none", "auto", null]}}},
  {"required": ["tool_choice"], "properties": {"tool_choice": {"const": "none"}}}]})";
constexpr std::string_view kCompletionRules[] = {
    kStreamRule,
    R"({"anyOf": [{"properties": {"max_tokens": {"not": {"const": 0}}}},
                  {"required": ["echo"], "properties": {"echo": {"const": true}}}]})",
};

void AddRules(const ServedModel& model, int32_t max_context_tokens, Json& schemas) {
  schemas["Message"]["anyOf"] = Json::parse(kMessageRules);
  Json& chat = schemas["ChatCompletionRequest"];
  for (const std::string_view rule : kChatRules) chat["allOf"].push_back(Json::parse(rule));
  const bool tools = model.answer_format.tools != ToolFormat::kNone;
  chat["allOf"].push_back(Json::parse(tools ? kToolsRule : kNoToolsRule));
  Json& completion = schemas["CompletionRequest"];
  for (const std::string_view rule : kCompletionRules) {
    completion["allOf"].push_back(Json::parse(rule));
  }
  // Where encoding adds no token, an empty text is no prompt.
  if (model.tokenizer->Encode("", {.add_special = true}).empty()) {
    Json& forms = completion["properties"]["prompt"]["anyOf"];
    forms[0]["minLength"] = 1;
    forms[1]["items"]["minLength"] = 1;
  }
  const auto last_token = static_cast<int64_t>(model.tokenizer->vocab_size()) - 1;
  schemas["Tokens"]["items"]["maximum"] = last_token;
  for (Json* request : {&chat, &completion}) {
    Json& fields = (*request)["properties"];
    fields["stop_token_ids"]["anyOf"][0]["items"]["maximum"] = last_token;
    fields["max_tokens"]["anyOf"][0]["maximum"] = max_context_tokens - 1;
  }
  chat["properties"]["max_completion_tokens"]["anyOf"][0]["maximum"] = max_context_tokens - 1;
  schemas["DetokenizeRequest"]["properties"]["tokens"]["items"]["maximum"] = last_token;
}

void AddRequestSchemas(const ServedModel& model, int32_t max_context_tokens, Json& schemas) {
  schemas["ChatCompletionRequest"] =
      ObjectOf({ChatRequestFields(), RenderingFieldInfos(), GenerationFieldInfos()});
  schemas["CompletionRequest"] = ObjectOf({CompletionRequestFields(), GenerationFieldInfos()});
  schemas["TokenizeRequest"] = TokenizeSchema();
  schemas["DetokenizeRequest"] = ObjectOf({DetokenizeRequestFields()});
  schemas["StreamOptions"] = ObjectOf({StreamOptionsFields()});
  schemas["Message"] = ObjectOf({ChatMessageFields()});
  schemas["ContentPart"] = ObjectOf({ContentPartFields()});
  schemas["ToolCall"] = ObjectOf({ToolCallFields()});
  schemas["CalledFunction"] = ObjectOf({ToolCallFunctionFields()});
  schemas["Tool"] = ObjectOf({ToolFields()});
  schemas["ToolFunction"] = ObjectOf({ToolFunctionFields()});
  schemas["ToolChoice"] = Json::parse(kToolChoiceSchema);
  schemas["Tokens"] = Json::parse(
      R"({"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}})");
  Json names = Json::array({model.name});
  for (const std::string& alias : model.aliases) names.push_back(alias);
  for (const char* request : {"ChatCompletionRequest", "CompletionRequest"}) {
    schemas[request]["properties"]["model"] = {{"type", "string"}, {"enum", names}};
  }
  names.push_back("");
  for (const char* request : {"TokenizeRequest", "DetokenizeRequest"}) {
    schemas[request]["properties"]["model"] = {{"enum", names}};
    schemas[request]["properties"]["model"]["enum"].push_back(nullptr);
  }
  AddRules(model, max_context_tokens, schemas);
}

// ---- Answers

constexpr std::string_view kAnswerSchemas = R"({
  "Error": {"type": "object", "required": ["error"], "additionalProperties": false, "properties": {
    "error": {"type": "object", "required": ["message", "type", "param", "code"],
              "additionalProperties": false, "properties": {
      "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]},
      "predicted_ms": {"type": "number", "minimum": 0},
      "allowed_ms": {"type": "number", "minimum": 0}}}}},
  "Usage": {"type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details",
                 "completion_tokens_details", "timing"],
    "properties": {"prompt_tokens": {"type": "integer", "minimum": 0},
                   "completion_tokens": {"type": "integer", "minimum": 0},
                   "total_tokens": {"type": "integer", "minimum": 0},
                   "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"],
                     "properties": {"cached_tokens": {"type": "integer", "minimum": 0}}},
                   "completion_tokens_details": {"type": "object",
                     "required": ["reasoning_tokens"],
                     "properties": {"reasoning_tokens": {"type": "integer", "minimum": 0}}},
                   "timing": {"$ref": "#/components/schemas/Timing"}}},
  "Timing": {"type": "object",
    "required": ["queue_ms", "prefill_ms", "decode_ms", "cached_tokens", "recomputed_tokens"],
    "properties": {"queue_ms": {"type": "number", "minimum": 0},
                   "prefill_ms": {"type": "number", "minimum": 0},
                   "decode_ms": {"type": "number", "minimum": 0},
                   "cached_tokens": {"type": "integer", "minimum": 0},
                   "recomputed_tokens": {"type": "integer", "minimum": 0}}},
  "ChatCompletion": {"type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
      "id": {"type": "string"}, "object": {"const": "chat.completion"},
      "created": {"type": "integer"}, "model": {"type": "string"},
      "system_fingerprint": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "message", "logprobs", "finish_reason", "stop_reason"], "properties": {
          "index": {"type": "integer", "minimum": 0},
          "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
          "stop_reason": {"type": ["string", "integer", "null"]},
          "logprobs": {"type": ["object", "null"]},
          "message": {"type": "object", "required": ["role", "content"], "properties": {
            "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
            "reasoning_content": {"type": "string"}, "refusal": {"type": "null"},
            "tool_calls": {"type": "array",
                           "items": {"$ref": "#/components/schemas/ToolCall"}}}}}}}}},
  "Completion": {"type": "object",
    "required": ["id", "object", "created", "model", "choices", "usage"], "properties": {
      "id": {"type": "string"}, "object": {"const": "text_completion"},
      "created": {"type": "integer"}, "model": {"type": "string"},
      "system_fingerprint": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {"type": "array", "minItems": 1, "items": {"type": "object",
        "required": ["index", "text", "logprobs", "finish_reason", "stop_reason"], "properties": {
          "index": {"type": "integer", "minimum": 0}, "text": {"type": "string"},
          "finish_reason": {"enum": ["stop", "length"]},
          "stop_reason": {"type": ["string", "integer", "null"]},
          "logprobs": {"type": ["object", "null"]}}}}}},
  "Model": {"type": "object", "required": ["id", "object", "created", "owned_by"], "properties": {
    "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
    "owned_by": {"type": "string"}, "root": {"type": "string"},
    "max_model_len": {"type": "integer"}}},
  "ModelList": {"type": "object", "required": ["object", "data"], "properties": {
    "object": {"const": "list"},
    "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
  "Tokenized": {"type": "object", "required": ["count", "max_model_len", "tokens", "token_strs"],
    "properties": {"count": {"type": "integer"}, "max_model_len": {"type": "integer"},
      "tokens": {"type": "array", "items": {"type": "integer"}},
      "token_strs": {"type": ["array", "null"], "items": {"type": "string"}}}},
  "Detokenized": {"type": "object", "required": ["prompt"],
    "properties": {"prompt": {"type": "string"}}},
  "TokenizerInfo": {"type": "object", "required": ["tokenizer_class"], "properties": {
    "tokenizer_class": {"type": "string"}, "model_max_length": {"type": "integer"},
    "bos_token": {"type": ["string", "null"]}, "eos_token": {"type": ["string", "null"]},
    "unk_token": {"type": ["string", "null"]}, "pad_token": {"type": ["string", "null"]},
    "add_bos_token": {"type": "boolean"}, "add_eos_token": {"type": "boolean"},
    "clean_up_tokenization_spaces": {"type": "boolean"},
    "added_tokens_decoder": {"type": "object"},
    "chat_template": {"type": ["string", "null"]}}},
  "Health": {"type": "object", "required": ["status"],
    "properties": {"status": {"enum": ["ok", "draining", "stalled"]}}},
  "Version": {"type": "object", "required": ["version"],
    "properties": {"version": {"type": "string"}}}
})";

Json JsonContent(std::string_view schema) {
  return {{"application/json", {{"schema", Ref(schema)}}}};
}

Json ErrorAnswer(std::string_view when) {
  return {{"description", std::string(when)}, {"content", JsonContent("Error")}};
}

// ---- Routes

struct Operation {
  std::string_view path;
  std::string_view id;
  std::string_view summary;
  std::string_view request;  // schema; empty: no body
  std::string_view answer;   // schema; empty: text
  bool streams = false;      // may answer with events
};

constexpr Operation kOperations[] = {
    {"/v1/chat/completions", "createChatCompletion", "A chat completion, whole or streamed.",
     "ChatCompletionRequest", "ChatCompletion", true},
    {"/v1/completions", "createCompletion", "Text completions, whole or streamed.",
     "CompletionRequest", "Completion", true},
    {"/v1/models", "listModels", "The served model and its aliases.", "", "ModelList"},
    {"/v1/models/{id}", "retrieveModel", "One of them.", "", "Model"},
    {"/tokenize", "tokenize", "The tokens of a text or of a conversation.", "TokenizeRequest",
     "Tokenized"},
    {"/detokenize", "detokenize", "The text of tokens.", "DetokenizeRequest", "Detokenized"},
    {"/tokenizer_info", "tokenizerInfo", "The tokenizer's own tokens and the chat template.", "",
     "TokenizerInfo"},
    {"/health", "health", "As /health/ready.", "", "Health"},
    {"/health/live", "live", "200 while the process answers.", "", "Health"},
    {"/health/ready", "ready", "200 when it takes requests and moves on.", "", "Health"},
    {"/metrics", "metrics", "Prometheus text.", "", ""},
    {"/version", "version", "The server's version.", "", "Version"},
    {"/openapi.json", "openapi", "This description.", "", ""},
};

Json AnswersOf(const Operation& operation, bool open, bool needs_key) {
  Json content;
  if (operation.path == "/metrics") {
    content = {{"text/plain", {{"schema", {{"type", "string"}}}}}};
  } else if (operation.answer.empty()) {
    content = {{"application/json", {{"schema", {{"type", "object"}}}}}};
  } else {
    content = JsonContent(operation.answer);
  }
  if (operation.streams) {
    content["text/event-stream"] = {{"schema",
                                     {{"type", "object"},
                                      {"required", {"data"}},
                                      {"properties", {{"data", {{"type", "string"}}}}}}}};
  }
  Json answers = {{"200", {{"description", "The answer."}, {"content", std::move(content)}}}};
  if (needs_key && !open) answers["401"] = ErrorAnswer("No key, or a wrong one.");
  if (operation.answer == "Health") {
    answers["503"] = {{"description", "Draining or stalled."}, {"content", JsonContent("Health")}};
  }
  if (operation.path.ends_with("{id}")) answers["404"] = ErrorAnswer("No such model.");
  if (operation.request.empty()) return answers;
  answers["400"] = ErrorAnswer("Something in the request is wrong: see code and param.");
  answers["404"] = ErrorAnswer("No such model.");
  answers["413"] = ErrorAnswer("The body is too large.");
  answers["415"] = ErrorAnswer("The body is form data.");
  if (operation.streams) answers["421"] = ErrorAnswer("A prefill node answers no completions.");
  answers["429"] =
      ErrorAnswer("The queue is full: see retry-after-ms. Or the deadline cannot be met.");
  answers["500"] = ErrorAnswer("Our fault.");
  answers["503"] = ErrorAnswer("Shutting down.");
  return answers;
}

Json DeadlineHeader(std::string_view name, std::string_view field) {
  return {{"name", std::string(name)},
          {"in", "header"},
          {"required", false},
          {"description", fmt::format("As the field {}, which wins.", field)},
          {"schema", Json::parse(SchemaOf(FieldUse::kHonoured, {}, kDeadlineType))}};
}

Json OperationOf(const Operation& operation, const ApiRoute& route, const ServedModel& model,
                 bool needs_key) {
  Json out = {{"operationId", std::string(operation.id)},
              {"summary", std::string(operation.summary)}};
  if (operation.path.ends_with("{id}")) {
    out["parameters"] = Json::array(
        {Json{{"name", "id"},
              {"in", "path"},
              {"required", true},
              {"description", "A served name; its slashes may be percent-encoded."},
              {"schema", {{"type", "string"}, {"minLength", 1}, {"examples", {model.name}}}}}});
  }
  if (operation.streams) {
    out["parameters"] = Json::array({DeadlineHeader(kDeadlineHeader, "deadline_ms"),
                                     DeadlineHeader(kTtftTargetHeader, "ttft_target_ms")});
  }
  if (!operation.request.empty()) {
    out["requestBody"] = {{"required", true}, {"content", JsonContent(operation.request)}};
  }
  out["responses"] = AnswersOf(operation, route.open, needs_key);
  if (needs_key) {
    out["security"] = route.open ? Json::array() : Json::array({Json{{"key", Json::array()}}});
  }
  return out;
}

const Operation* FindOperation(std::string_view path) {
  for (const Operation& operation : kOperations) {
    if (operation.path == path) return &operation;
  }
  return nullptr;
}

}  // namespace

std::string OpenApiJson(const ServedModel& model, int32_t max_context_tokens, bool needs_key) {
  Json paths = Json::object();
  for (const ApiRoute& route : ApiRoutes()) {
    const Operation* operation = FindOperation(route.path);
    TANDEM_CHECK(operation != nullptr);
    const std::string method = route.method == "GET" ? "get" : "post";
    paths[std::string(route.path)][method] = OperationOf(*operation, route, model, needs_key);
  }
  Json schemas = Json::object();
  AddRequestSchemas(model, max_context_tokens, schemas);
  schemas.update(Json::parse(kAnswerSchemas));
  Json components = {{"schemas", std::move(schemas)}};
  if (needs_key) {
    components["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
  }
  return DumpJson(
      {{"openapi", "3.1.0"},
       {"info",
        {{"title", "Tandem"},
         {"version", TANDEM_VERSION},
         {"description",
          fmt::format("The OpenAI-compatible API of a server of {} with a context of {} tokens.",
                      model.name, max_context_tokens)}}},
       {"paths", std::move(paths)},
       {"components", std::move(components)}});
}

}  // namespace tandem
