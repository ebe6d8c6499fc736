// Delivery of log probabilities: of prompts and answers, whole and in order, whatever else happens.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/testing/driver.h"

namespace tandem::testing {
namespace {

constexpr int32_t kVocab = 50;

EngineConfig SmallConfig() {
  EngineConfig config;
  config.groups = {PagedGroup(4, 200)};
  config.context_length = 100;
  config.vocab_size = kVocab;
  config.pipeline_depth = 1;
  config.max_running = 4;
  config.token_budget = 32;
  config.chunk_tokens = 16;
  return config;
}

// Every third request wants nothing, every third its answer's, every third its prompt's as well.
Request MakeRequest(uint64_t id, int32_t prompt) {
  Request request;
  request.id = RequestId(id);
  for (int32_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(TokenId((static_cast<int32_t>(id) * 17 + i * i) % kVocab));
  }
  request.sampling.top_logprobs = id % 3 == 0 ? -1 : static_cast<int32_t>(id % 4);
  request.prompt_logprobs = id % 3 == 2;
  return request;
}

TEST(Logprobs, AreDeliveredWholeAtEveryDepthAndChunk) {
  for (const int32_t depth : {0, 1, 2}) {
    for (const int32_t chunk : {1, 7, 256}) {
      EngineConfig config = SmallConfig();
      config.pipeline_depth = depth;
      config.chunk_tokens = chunk;
      EngineDriver driver(config);
      for (uint64_t id = 1; id <= 9; ++id) {
        Request request = MakeRequest(id, static_cast<int32_t>(1 + (id - 1) * 5));
        request.max_output_tokens = 12;
        ASSERT_TRUE(driver.Arrive(std::move(request)).ok());
      }
      driver.Drain(1000);
      for (const auto& [id, record] : driver.records()) {
        EXPECT_EQ(record.finish, FinishReason::kLength);
        driver.CheckAnswer(record);
      }
      EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
      EXPECT_EQ(driver.records().at(RequestId(5)).prompt_logprobs.size(), 20u * 2);
      EXPECT_EQ(driver.records().at(RequestId(5)).logprobs.size(), 12u * 2);
    }
  }
}

TEST(Logprobs, ComeWithTheChunkThatHasRunThem) {
  EngineConfig config = SmallConfig();
  config.pipeline_depth = 0;
  EngineDriver driver(config);
  Request request = MakeRequest(2, 40);
  request.max_output_tokens = 2;
  ASSERT_TRUE(driver.Arrive(std::move(request)).ok());
  driver.Drain(100);
  ASSERT_EQ(driver.outputs().size(), 4u);
  constexpr size_t kEntries = 3;
  const std::vector<size_t> kTokens = {16, 16, 7, 0};
  for (size_t i = 0; i < kTokens.size(); ++i) {
    EXPECT_EQ(driver.outputs()[i].prompt_logprobs.size(), kTokens[i] * kEntries) << i;
    EXPECT_EQ(driver.outputs()[i].logprobs.size(), i < 2 ? 0 : kEntries) << i;
    EXPECT_EQ(driver.outputs()[i].tokens.size(), i < 2 ? 0u : 1u) << i;
  }
}

TEST(Logprobs, OfTheStopTokenAreNotDelivered) {
  Request request = MakeRequest(2, 10);
  Request longer = request;
  longer.max_output_tokens = 9;
  const std::vector<TokenId> alone = ExpectedAnswer(longer, 100, kVocab);
  size_t stop_at = 4;  // the first token from here that has not come before
  while (std::count(alone.begin(), alone.begin() + static_cast<int64_t>(stop_at), alone[stop_at])) {
    ++stop_at;
  }
  request.stop_tokens = {alone[stop_at]};
  EngineDriver driver(SmallConfig());
  ASSERT_TRUE(driver.Arrive(request).ok());
  driver.Drain(100);
  const EngineDriver::Record& record = driver.records().at(RequestId(2));
  EXPECT_EQ(record.finish, FinishReason::kStop);
  EXPECT_EQ(record.answer.size(), stop_at);
  EXPECT_EQ(record.logprobs.size(), stop_at * 3);
  driver.CheckAnswer(record);
  EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
}

TEST(Logprobs, OfAPromptAreNotRepeatedAfterAPreemption) {
  for (const int32_t depth : {0, 1}) {
    EngineConfig config = SmallConfig();
    config.pipeline_depth = depth;
    config.groups = {PagedGroup(4, 30)};
    config.reserve_tokens = 0;
    EngineDriver driver(config);
    for (const uint64_t id : {1, 2, 5, 8}) {
      ASSERT_TRUE(driver.Arrive(MakeRequest(id, 22)).ok());
    }
    int32_t preemptions = 0;
    driver.Drain(2000);
    for (const auto& [id, record] : driver.records()) {
      EXPECT_EQ(record.finish, FinishReason::kLength);
      driver.CheckAnswer(record);
      if (record.request.prompt_logprobs) preemptions += record.preemptions;
    }
    EXPECT_TRUE(driver.fault().ok()) << driver.fault().ToString();
    EXPECT_GT(preemptions, 0);
  }
}

}  // namespace
}  // namespace tandem::testing
