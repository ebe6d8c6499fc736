#include "plan/scenario.h"

#include <gtest/gtest.h>

#include <string>

#include "plan/wide_int.h"

namespace tandem {
namespace {

// A scenario with `extra` members.
std::string Text(const std::string& extra) {
  return R"({"max_sequences":2,"token_budget":8,"chunk_tokens":8,"step_base_ns":1,)"
         R"("per_new_token_ns":1,"per_causal_pair_ns":1)" +
         extra + "}";
}
constexpr char kRequests[] =
    R"(,"requests":[{"arrival_ns":0,"prompt_tokens":1,"output_tokens":1}])";

std::string ErrorOf(const std::string& text) {
  const Result<Scenario> s = ParseScenario(text);
  return s.ok() ? "" : s.status().message();
}

TEST(Scenario, ReadsItsKeysAndKeepsDefaults) {
  const Result<Scenario> s = ParseScenario(Text(
      R"(,"policy":"fixed","block_tokens":16,"kv_capacity_bytes":null,"requests":[
         {"id":"b","arrival_ns":5,"prompt_tokens":3,"output_tokens":2,"max_tokens":null},
         {"arrival_ns":4,"prompt_tokens":3,"output_tokens":2,"deadline_ns":9}])"));
  ASSERT_TRUE(s.ok()) << s.status().ToString();
  EXPECT_EQ(s->policy, Policy::kStatic);
  EXPECT_EQ(s->block_tokens, 16);
  EXPECT_FALSE(s->kv_capacity_bytes.has_value());
  EXPECT_EQ(s->model.kv_bytes_per_token, 147'456);
  ASSERT_EQ(s->requests.size(), 2u);
  EXPECT_EQ(s->requests[0].id, "r1") << "in the order of arrival";
  EXPECT_EQ(s->requests[0].max_tokens, 2);
  EXPECT_EQ(s->requests[0].deadline, 9);
  EXPECT_FALSE(s->requests[1].max_tokens.has_value());
}

TEST(Scenario, ErrorsNameTheKey) {
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(ErrorOf(text).find(part), std::string::npos) << text << ": " << ErrorOf(text);
  };
  EXPECT_EQ(ErrorOf(Text(kRequests)), "");
  expect("", "not valid JSON");
  expect("[1]", "the scenario must be an object");
  expect(Text(kRequests) + "x", "not valid JSON");
  expect(Text(kRequests) + std::string(1, '\0'), "not valid JSON");
  expect(Text(std::string(kRequests) + R"(,"model":"qwen3-8b")"), "model must be an object");
  expect(Text(std::string(kRequests) + R"(,"model":{})"), "model.kv_bytes_per_token is missing");
  expect(Text(std::string(kRequests) + R"(,"chunk_tokens":9)"), "chunk_tokens twice");
  expect(Text(R"(,"requests":[{"arrival_ns":0,"prompt_tokens":1,"output_tokens":1},
                              {"arrival_ns":0,"prompt_tokens":1,"prompt_tokens":2}])"),
         "prompt_tokens twice");
  expect(R"({"max_sequences":2})", "token_budget is missing");
  expect(Text(""), "no requests");
  expect(Text(R"(,"requests":[])"), "no requests");
  expect(Text(R"(,"requests":{})"), "requests must be a list");
  expect(Text(R"(,"requests":[1])"), "requests[0] must be an object");
  expect(Text(R"(,"requests":[{"arrival_ns":-1,"prompt_tokens":1,"output_tokens":1}])"),
         "requests[0].arrival_ns must be an integer from 0");
  expect(Text(R"(,"requests":[{"arrival_ns":1.5,"prompt_tokens":1,"output_tokens":1}])"),
         "requests[0].arrival_ns must be an integer");
  expect(
      Text(
          R"(,"requests":[{"arrival_ns":18446744073709551615,"prompt_tokens":1,"output_tokens":1}])"),
      "requests[0].arrival_ns");
  expect(Text(R"(,"requests":[{"id":"a","arrival_ns":0,"prompt_tokens":1,"output_tokens":1},
                              {"id":"a","arrival_ns":0,"prompt_tokens":1,"output_tokens":1}])"),
         "requests[1].id occurs twice");
  EXPECT_EQ(ErrorOf(Text(R"(,"requests":[{"arrival_ns":0,"prompt_tokens":1,"output_tokens":1},
                                         {"arrival_ns":0,"prompt_tokens":1,"output_tokens":1}],
                            "model":{"kv_bytes_per_token":4,"name":"m"})")),
            "")
      << "the same keys in two objects";
  expect(Text(std::string(kRequests) + R"(,"polcy":"static")"), "polcy is no key");
  expect(Text(std::string(kRequests) + R"(,"policy":"greedy")"), "there are static");
  expect(Text(std::string(kRequests) + R"(,"block_tokens":0)"), "block_tokens");
  expect(Text(std::string(kRequests) + R"(,"prepared_tokens":[4,4])"), "prepared_tokens");
  expect(
      Text(R"(,"workload":{"count":1,"rate_per_s":0,"prompt_tokens":[1,2],"output_tokens":[1,2]})"),
      "workload.rate_per_s");
  expect(
      Text(R"(,"workload":{"count":1,"rate_per_s":1,"prompt_tokens":[3,2],"output_tokens":[1,2]})"),
      "workload.prompt_tokens");
  expect(Text(R"(,"a":)" + std::string(100, '[') + std::string(100, ']')), "nested deeper");
}

TEST(Scenario, AWorkloadIsPoissonWithinItsRanges) {
  const Result<Scenario> s =
      ParseScenario(Text(R"(,"workload":{"count":5000,"rate_per_s":20,"prompt_tokens":[10,30],)"
                         R"("output_tokens":[1,4],"deadline_factor":2,"seed":4})"));
  ASSERT_TRUE(s.ok()) << s.status().ToString();
  ASSERT_EQ(s->requests.size(), 5000u);
  EXPECT_NEAR(static_cast<double>(s->requests.back().arrival) / kNsPerS, 250, 15);
  int64_t prompts = 0;
  for (const ScenarioRequest& r : s->requests) {
    EXPECT_TRUE(r.prompt_tokens >= 10 && r.prompt_tokens <= 30);
    EXPECT_TRUE(r.output_tokens >= 1 && r.output_tokens <= 4);
    EXPECT_EQ(r.deadline, 2 * UnloadedTime(*s, r));
    prompts += r.prompt_tokens;
  }
  EXPECT_NEAR(static_cast<double>(prompts) / 5000, 20, 0.5);
}

TEST(Scenario, ACapacityBelowOneBlockIsAnError) {
  const Result<Scenario> s =
      ParseScenario(Text(std::string(kRequests) + R"(,"kv_capacity_bytes":1)"));
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(ConfigOf(*s).status().code(), StatusCode::kResourceExhausted);
}

TEST(Scenario, ABudgetThatCannotFeedEverySequenceIsAnError) {
  std::string requests;
  for (int i = 0; i < 9; ++i) {
    requests += R"({"arrival_ns":0,"prompt_tokens":1,"output_tokens":1},)";
  }
  requests.pop_back();
  Scenario s = ParseScenario(Text(R"(,"requests":[)" + requests + "]")).value();
  EXPECT_TRUE(ConfigOf(s).ok());
  s.max_sequences = 9;
  EXPECT_NE(ConfigOf(s).status().message().find("token_budget is 8"), std::string::npos);
  s.policy = Policy::kContinuous;
  EXPECT_TRUE(ConfigOf(s).ok()) << "only chunks are bounded";
}

TEST(WideInt, PrintsMoreThanSixtyFourBits) {
  EXPECT_EQ(ToDecimal(0), "0");
  EXPECT_EQ(ToDecimal(WideInt{1'000'000'000'000} * 1'000'000'000'000), "1000000000000000000000000");
}

}  // namespace
}  // namespace tandem
