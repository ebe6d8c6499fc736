#include "server/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tokenize_request.h"

namespace tandem {
namespace {

using testing::HasSubstr;

std::string Body(std::string_view more) { return R"({"model": "m", )" + std::string(more) + "}"; }

CompletionRequest Parsed(std::string_view more) {
  ApiResult<CompletionRequest> result = ParseCompletionRequest(Body(more));
  EXPECT_TRUE(result.ok()) << more << ": " << (result.ok() ? "" : result.error().message);
  return result.ok() ? result.value() : CompletionRequest();
}

struct BadValue {
  const char* members;
  const char* param;
  const char* code;
};

TEST(CompletionRequest, PromptsHaveFourForms) {
  const auto text = [](const CompletionRequest::Prompt& prompt) {
    return std::get<std::string>(prompt);
  };
  CompletionRequest request = Parsed(R"("prompt": "a")");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(text(request.prompts[0]), "a");
  EXPECT_FALSE(request.prompt_is_list || request.echo || request.logprobs || request.max_tokens);
  request = Parsed(R"("prompt": ["a", "b"])");
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(text(request.prompts[1]), "b");
  EXPECT_TRUE(request.prompt_is_list);
  request = Parsed(R"("prompt": [5, 6, 7])");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(request.prompts[0]).size(), 3u);
  request = Parsed(R"("prompt": [[5], [6, 7]])");
  ASSERT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(request.prompts[1])[1], TokenId(7));
}

TEST(CompletionRequest, BadValuesNameTheirField) {
  for (const BadValue& bad : std::initializer_list<BadValue>{
           {R"("n": 1)", "prompt", "missing_required_parameter"},
           {R"("prompt": null)", "prompt", "missing_required_parameter"},
           {R"("prompt": 5)", "prompt", "invalid_type"},
           {R"("prompt": {})", "prompt", "invalid_type"},
           {R"("prompt": [])", "prompt", "invalid_value"},
           {R"("prompt": [[]])", "prompt[0]", "invalid_value"},
           {R"("prompt": [1, "a"])", "prompt[1]", "invalid_type"},
           {R"("prompt": ["a", 1])", "prompt[1]", "invalid_type"},
           {R"("prompt": [[1], "a"])", "prompt[1]", "invalid_type"},
           {R"("prompt": [1, -1])", "prompt[1]", "invalid_value"},
           {R"("prompt": [1, 1.5])", "prompt[1]", "invalid_type"},
           {R"("prompt": [[1], [1, true]])", "prompt[1][1]", "invalid_type"},
           {R"("prompt": [null])", "prompt[0]", "invalid_type"},
           {R"("prompt": "a", "logprobs": true)", "logprobs", "invalid_type"},
           {R"("prompt": "a", "logprobs": 21)", "logprobs", "invalid_value"},
           {R"("prompt": "a", "max_tokens": 0)", "max_tokens", "invalid_value"},
           {R"("prompt": "a", "max_tokens": -1)", "max_tokens", "invalid_value"},
           {R"("prompt": "a", "suffix": "b")", "suffix", "unsupported_parameter"},
           {R"("prompt": "a", "best_of": 2)", "best_of", "unsupported_parameter"},
           {R"("prompt": "a", "n": 2, "best_of": 1)", "best_of", "invalid_value"},
           {R"("prompt": ["a", "b", "c"], "n": 100)", "n", "invalid_value"},
           {R"("prompt": "a", "messages": [])", "messages", "unknown_parameter"},
           {R"("prompt": "a", "top_logprobs": 2)", "top_logprobs", "unknown_parameter"},
       }) {
    ApiResult<CompletionRequest> result = ParseCompletionRequest(Body(bad.members));
    ASSERT_FALSE(result.ok()) << bad.members;
    EXPECT_EQ(result.error().param, bad.param) << bad.members;
    EXPECT_EQ(result.error().code, bad.code) << bad.members;
    EXPECT_THAT(result.error().message, HasSubstr(bad.param));
  }
  std::string many = "\"prompt\": [\"a\"";
  for (int i = 0; i < kChoicesMax; ++i) many += ",\"a\"";
  EXPECT_EQ(ParseCompletionRequest(Body(many + "]")).error().param, "prompt");
}

TEST(CompletionRequest, ValuesThatAskForNothingMorePass) {
  EXPECT_EQ(Parsed(R"("prompt": "a", "max_tokens": 0, "echo": true)").max_tokens, 0);
  EXPECT_EQ(Parsed(R"("prompt": "a", "n": 2, "best_of": 2, "suffix": null)").n, 2);
  EXPECT_EQ(Parsed(R"("prompt": "a", "logprobs": 0)").logprobs, 0);
  for (const FieldInfo& field : CompletionRequestFields()) {
    if (!field.required) Parsed(R"("prompt": "a", ")" + std::string(field.name) + "\": null");
  }
}

TEST(TokenizeRequest, TakesAPromptOrMessages) {
  ApiResult<TokenizeRequest> result = ParseTokenizeRequest(R"({"prompt": ""})");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().prompt, "");
  result = ParseTokenizeRequest(
      R"({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": false})");
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result.value().prompt || result.value().add_generation_prompt);
  EXPECT_EQ(ParseTokenizeRequest("{}").error().param, "prompt");
  EXPECT_EQ(
      ParseTokenizeRequest(R"({"prompt": "a", "messages": [{"role": "user", "content": "x"}]})")
          .error()
          .param,
      "messages");
  const std::string long_text(kTokenizeBytesMax + 1, 'x');
  EXPECT_EQ(ParseTokenizeRequest("{\"prompt\": \"" + long_text + "\"}").error().param, "prompt");
  EXPECT_EQ(ParseTokenizeRequest(R"({"prompt": "a", "return_token_str": true})").error().code,
            "unknown_parameter");
}

TEST(DetokenizeRequest, TakesTokens) {
  ApiResult<DetokenizeRequest> result = ParseDetokenizeRequest(R"({"tokens": [1, 2]})");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value().tokens.size(), 2u);
  EXPECT_TRUE(ParseDetokenizeRequest(R"({"tokens": []})").ok());
  EXPECT_EQ(ParseDetokenizeRequest("{}").error().param, "tokens");
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens": ["a"]})").error().param, "tokens[0]");
}

}  // namespace
}  // namespace tandem
