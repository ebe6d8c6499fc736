// What a prefill node's server answers, and numbers from outside in /metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/test_server.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class RoleTest : public ServerTest {
 protected:
  void StartPrefillNode() {
    ServerConfig config;
    config.answers_requests = false;
    config.extra_metrics = [] {
      return std::vector<ExtraMetric>{
          {"tandem:handoff_peers", false, "Peers.", 2, ",state=\"ready\""},
          {"tandem:handoff_peers", false, "Peers.", 0, ",state=\"leaving\""},
          {"tandem:handoff_chunks_total", true, "Chunks.", 12345678901, ""}};
    };
    Start({}, config);
  }
};

TEST_F(RoleTest, APrefillNodeAnswersNoCompletions) {
  StartPrefillNode();
  for (const HttpResponse& response : {Chat(ChatBody()), Complete(R"("prompt": "a")")}) {
    EXPECT_EQ(response.status, 421);
    const TestJson error = TestJson::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "prefill_node");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("--role decode"));
  }
  EXPECT_EQ(engine_->stats().requests_running, 0);
  EXPECT_TRUE(
      MetricsHave(R"(tandem:api_errors_total{model_name="org/test-model",code="prefill_node"} 2)"));
}

TEST_F(RoleTest, APrefillNodeAnswersEverythingElse) {
  StartPrefillNode();
  for (const char* path : {"/health", "/health/live", "/version", "/v1/models", "/openapi.json"}) {
    EXPECT_EQ(Get(path).status, 200) << path;
  }
  EXPECT_EQ(Post("/tokenize", R"({"prompt": "hi"})").status, 200);
}

TEST_F(RoleTest, MetricsHaveTheNumbersOfOthers) {
  StartPrefillNode();
  const std::string text = Get("/metrics").body;
  EXPECT_THAT(text,
              HasSubstr("# HELP tandem:handoff_peers Peers.\n"
                        "# TYPE tandem:handoff_peers gauge\n"
                        "tandem:handoff_peers{model_name=\"org/test-model\",state=\"ready\"} 2\n"
                        "tandem:handoff_peers{model_name=\"org/test-model\","
                        "state=\"leaving\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE tandem:handoff_chunks_total counter\n"
                              "tandem:handoff_chunks_total{model_name=\"org/test-model\"} "
                              "12345678901\n"));
}

}  // namespace
}  // namespace tandem
