#include "server/openapi.h"

#include <gtest/gtest.h>

#include <set>

#include "server/api.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/test_server.h"
#include "server/tokenize_request.h"

namespace tandem {
namespace {

using Json = TestJson;

Json Describe(bool needs_key = false) {
  return Json::parse(OpenApiJson(MakeModel(), 4096, needs_key));
}

// Every "$ref" in `value` leads somewhere.
void ExpectRefsResolve(const Json& document, const Json& value) {
  if (value.is_object() && value.contains("$ref")) {
    const std::string ref = value["$ref"];
    ASSERT_TRUE(ref.starts_with("#"));
    EXPECT_TRUE(document.contains(Json::json_pointer(ref.substr(1)))) << ref;
  }
  if (!value.is_structured()) return;
  for (const Json& member : value) ExpectRefsResolve(document, member);
}

TEST(OpenApi, DescribesEveryRoute) {
  const Json document = Describe();
  EXPECT_EQ(document["openapi"], "3.1.0");
  size_t operations = 0;
  for (const auto& [path, methods] : document["paths"].items()) operations += methods.size();
  EXPECT_EQ(operations, ApiRoutes().size());
  for (const ApiRoute& route : ApiRoutes()) {
    const std::string method = route.method == "GET" ? "get" : "post";
    const Json& operation = document["paths"][std::string(route.path)][method];
    ASSERT_TRUE(operation.contains("responses")) << route.path;
    EXPECT_EQ(operation.contains("requestBody"), method == "post");
  }
  ExpectRefsResolve(document, document);
}

TEST(OpenApi, RequestsHaveTheFieldsOfTheTables) {
  const Json schemas = Describe()["components"]["schemas"];
  const auto expect = [&](const char* name, std::vector<std::vector<FieldInfo>> tables) {
    std::set<std::string> known;
    for (const auto& table : tables) {
      for (const FieldInfo& field : table) known.insert(std::string(field.name));
    }
    std::set<std::string> described;
    for (const auto& [field, schema] : schemas[name]["properties"].items()) described.insert(field);
    EXPECT_EQ(described, known) << name;
    EXPECT_EQ(schemas[name]["additionalProperties"], false);
  };
  expect("ChatCompletionRequest",
         {ChatRequestFields(), RenderingFieldInfos(), GenerationFieldInfos()});
  expect("CompletionRequest", {CompletionRequestFields(), GenerationFieldInfos()});
  expect("TokenizeRequest", {TokenizeRequestFields(), RenderingFieldInfos()});
  expect("DetokenizeRequest", {DetokenizeRequestFields()});
  const Json& temperature =
      schemas["ChatCompletionRequest"]["properties"]["temperature"]["anyOf"][0];
  EXPECT_EQ(temperature, (Json{{"type", "number"}, {"minimum", 0}, {"maximum", 2}}));
  EXPECT_EQ(schemas["CompletionRequest"]["properties"]["model"]["enum"],
            (Json{"org/test-model", "other-name"}));
}

// Values at the ends of each range pass, those beyond are refused: the schema says what the parser
// does.
TEST(OpenApi, RangesAreThoseOfTheParsers) {
  const Json schemas = Describe()["components"]["schemas"];
  int checked = 0;
  for (const auto& [field, property] : schemas["CompletionRequest"]["properties"].items()) {
    if (!property.contains("anyOf")) continue;
    const Json& schema = property["anyOf"][0];
    if (!schema.contains("maximum")) continue;
    const auto passes = [&](const Json& value) {
      Json body = {{"model", "m"}, {"prompt", "a"}, {"echo", true}, {field, value}};
      if (field == "best_of") body["n"] = value;
      return ParseCompletionRequest(body.dump()).ok();
    };
    ++checked;
    EXPECT_TRUE(passes(schema["maximum"])) << field;
    // Beyond the seed is no number that JSON libraries agree on; what a limit may be is up to the
    // context.
    if (field == "seed" || field == "max_tokens") continue;
    EXPECT_FALSE(passes(schema["maximum"].get<double>() + 1)) << field;
    const bool open = schema.contains("exclusiveMinimum");
    const double low = schema[open ? "exclusiveMinimum" : "minimum"].get<double>();
    EXPECT_EQ(passes(low), !open) << field;
    EXPECT_FALSE(passes(low - 1)) << field;
  }
  EXPECT_GE(checked, 12);
}

// More branches are more than property testers can multiply: they leave the operation out.
TEST(OpenApi, RulesAreFewEnoughForTesters) {
  ServedModel model = MakeModel();
  for (const ToolFormat format : {ToolFormat::kNone, ToolFormat::kHermes}) {
    model.answer_format.tools = format;
    const Json schemas = Json::parse(OpenApiJson(model, 4096, false))["components"]["schemas"];
    for (const char* request : {"ChatCompletionRequest", "CompletionRequest"}) {
      size_t branches = 1;
      for (const Json& rule : schemas[request]["allOf"]) branches *= rule.at("anyOf").size();
      EXPECT_LE(branches, 16u) << request;
    }
  }
}

TEST(OpenApi, DeadlinesAreHeadersToo) {
  const Json document = Describe();
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    const Json& parameters = document["paths"][path]["post"]["parameters"];
    ASSERT_EQ(parameters.size(), 2u) << path;
    EXPECT_EQ(parameters[0]["name"], "x-deadline-ms");
    EXPECT_EQ(parameters[1]["name"], "x-ttft-target-ms");
    EXPECT_EQ(parameters[0]["schema"],
              (Json{{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 1'000'000'000}}));
  }
}

TEST(OpenApi, KeysAreASecurityScheme) {
  const Json document = Describe(/*needs_key=*/true);
  EXPECT_EQ(document["components"]["securitySchemes"]["key"]["scheme"], "bearer");
  EXPECT_TRUE(document["paths"]["/metrics"]["get"]["responses"].contains("401"));
  EXPECT_EQ(document["paths"]["/health"]["get"]["security"], Json::array());
  EXPECT_FALSE(Describe()["components"].contains("securitySchemes"));
}

}  // namespace
}  // namespace tandem
