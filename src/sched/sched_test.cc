#include <gtest/gtest.h>

#include <string>

#include "sched/handoff_ledger.h"
#include "sched/request_state.h"
#include "sched/scheduler.h"
#include "sched/scheduler_config.h"
#include "sched/sequence_store.h"

namespace tandem {
namespace {

StateGroupBlocks Paged(int32_t tokens_per_block, int32_t num_blocks) {
  StateGroup group;
  group.layers = {0};
  group.num_heads = 1;
  group.planes = {{"k", DType::kF32, TileLayout::kTokenMajor, 1}};
  group.tokens_per_block = tokens_per_block;
  return {group, num_blocks};
}

SchedulerConfig SmallConfig() {
  SchedulerConfig config;
  config.groups = {Paged(4, 8)};
  config.context_length = 64;
  config.vocab_size = 100;
  config.pipeline_depth = 0;
  config.max_running = 2;
  config.token_budget = 16;
  config.chunk_tokens = 8;
  config.max_queue = 2;
  return config;
}

Request MakeRequest(uint64_t id, int32_t prompt, std::optional<int32_t> limit = std::nullopt) {
  Request request;
  request.id = RequestId(id);
  request.prompt.assign(static_cast<size_t>(prompt), TokenId(7));
  request.max_output_tokens = limit;
  return request;
}

TEST(RequestState, EndStatesAreFinalAndNothingMovesToItself) {
  for (int from = 0; from < kNumRequestStates; ++from) {
    const auto f = static_cast<RequestState>(from);
    EXPECT_FALSE(CanMove(f, f)) << NameOf(f);
    int moves = 0;
    for (int to = 0; to < kNumRequestStates; ++to)
      moves += CanMove(f, static_cast<RequestState>(to));
    EXPECT_EQ(moves == 0, IsEnd(f)) << NameOf(f);
    EXPECT_EQ(IsEnd(f), !CanMove(f, RequestState::kCancelled)) << NameOf(f);
  }
  EXPECT_FALSE(CanMove(RequestState::kQueued, RequestState::kDecode));
  EXPECT_FALSE(CanMove(RequestState::kQueued, RequestState::kFinished));
  EXPECT_FALSE(CanMove(RequestState::kDecode, RequestState::kPrefill));
  EXPECT_FALSE(CanMove(RequestState::kAwaitingKv, RequestState::kPreempted)) << "it never ran";
  EXPECT_FALSE(CanMove(RequestState::kPreempted, RequestState::kAwaitingKv));
  EXPECT_FALSE(CanMove(RequestState::kPrefill, RequestState::kFinished)) << "sent first";
}

TEST(RequestState, EveryStateIsOfOneKind) {
  for (int i = 0; i < kNumRequestStates; ++i) {
    const auto s = static_cast<RequestState>(i);
    const int kinds =
        IsWaiting(s) + IsRunning(s) + IsEnd(s) + (s == RequestState::kSending ? 1 : 0);
    EXPECT_EQ(kinds, 1) << NameOf(s);
    EXPECT_NE(NameOf(s), "unknown");
    EXPECT_TRUE(!IsQueued(s) || IsWaiting(s)) << NameOf(s);
    EXPECT_TRUE(!HoldsSlot(s) || !IsQueued(s)) << NameOf(s);
  }
}

// Blocks of one group of 4 tokens; a sequence holds the first three.
class HandoffLedgerTest : public ::testing::Test {
 protected:
  HandoffLedgerTest() : pools_(kGroups, 8, 1), ledger_(&pools_), holder_(pools_.MakeSequence(12)) {
    TANDEM_CHECK(pools_.Reserve(&holder_, 12));
    StepPlan plan;
    TANDEM_CHECK(pools_.Grow(&holder_, 12, SlotId(0), &plan) == Growth::kDone);
  }
  const BlockPool& pool() const { return pools_.pool(GroupId(0)); }

  static const std::vector<StateGroupBlocks> kGroups;
  StatePools pools_;
  HandoffLedger ledger_;
  SequenceBlocks holder_;
};
const std::vector<StateGroupBlocks> HandoffLedgerTest::kGroups = SmallConfig().groups;

TEST_F(HandoffLedgerTest, AFetchIsSettledOnceAndHoldsItsBlocksUntilItDrains) {
  const std::vector<std::vector<BlockId>> blocks = {{BlockId(0), BlockId(1)}};
  const FetchId a = ledger_.OpenFetch({SequenceIndex(3), 7}, blocks);
  const FetchId b = ledger_.OpenFetch({SequenceIndex(4), 8}, blocks);
  EXPECT_NE(a, b);
  EXPECT_EQ(ledger_.Settle(a)->serial, 7u);
  EXPECT_FALSE(ledger_.Settle(a));
  EXPECT_FALSE(ledger_.Settle(FetchId(99)));
  pools_.Release(&holder_, StepId(0));
  EXPECT_EQ(pool().held(), 2);
  EXPECT_TRUE(ledger_.CheckIntegrity().ok());
  ledger_.DrainFetch(a);
  ledger_.DrainFetch(a);
  EXPECT_EQ(pool().held(), 2) << "the other fetch may still write them";
  ledger_.DrainFetch(b);
  EXPECT_EQ(pool().held(), 0);
  EXPECT_EQ(ledger_.open(), 0);
}

TEST_F(HandoffLedgerTest, ASendHoldsWhatItWasLent) {
  ledger_.OpenSend(SendId(5), {SequenceIndex(3), 7});
  ledger_.Lend(SendId(5), GroupId(0), BlockId(2));
  EXPECT_TRUE(ledger_.has_send(SendId(5)));
  pools_.Release(&holder_, StepId(0));
  EXPECT_EQ(pool().held(), 1);
  EXPECT_EQ(ledger_.DrainSend(SendId(5))->sequence, SequenceIndex(3));
  EXPECT_FALSE(ledger_.DrainSend(SendId(5)));
  EXPECT_EQ(pool().held(), 0);
}

TEST_F(HandoffLedgerTest, AUseTokenOfNobodyIsFound) {
  pools_.BeginUse(GroupId(0), BlockId(1), UseAgent::kInboundWrite);
  EXPECT_FALSE(ledger_.CheckIntegrity().ok());
}

TEST(SequenceStore, EndedSequencesAreNotFoundBySerial) {
  SequenceStore store(1);
  const SequenceIndex a = store.Add(MakeRequest(1, 1), 5, 0);
  const uint64_t serial = store.at(a).serial;
  EXPECT_NE(store.FindSerial(a, serial), nullptr);
  store.Unlink(a);
  store.Remove(a);
  EXPECT_EQ(store.FindSerial(a, serial), nullptr);
  const SequenceIndex b = store.Add(MakeRequest(2, 1), 5, 0);
  EXPECT_EQ(a, b);
  EXPECT_EQ(store.FindSerial(a, serial), nullptr);
  EXPECT_EQ(store.Find(RequestId(1)), std::nullopt);
}

TEST(SequenceStore, QueueKeepsItsOrderWhenTheMiddleLeaves) {
  SequenceStore store(4);
  const SequenceIndex a = store.Add(MakeRequest(1, 1), 5, 0);
  const SequenceIndex b = store.Add(MakeRequest(2, 1), 5, 0);
  const SequenceIndex c = store.Add(MakeRequest(3, 1), 5, 0);
  store.Unlink(b);
  EXPECT_EQ(store.queue_head(), a);
  EXPECT_EQ(store.at(a).queue_next, c);
  store.PushHead(b);
  EXPECT_EQ(store.queue_head(), b);
  EXPECT_EQ(store.at(b).queue_next, a);
  EXPECT_TRUE(store.CheckIntegrity().ok());
  store.Unlink(a);
  EXPECT_FALSE(store.CheckIntegrity().ok()) << "a waits, but is on no list";
}

TEST(SchedulerConfig, NamesTheFieldThatMakesNoSense) {
  const auto message = [](auto change) {
    SchedulerConfig config = SmallConfig();
    change(&config);
    return config.Validate().message();
  };
  EXPECT_EQ(message([](SchedulerConfig*) {}), "");
  EXPECT_NE(message([](auto* c) { c->token_budget = 1; }).find("token budget"), std::string::npos);
  EXPECT_NE(message([](auto* c) { c->chunk_tokens = 0; }).find("chunk"), std::string::npos);
  EXPECT_NE(message([](auto* c) { c->groups[0].num_blocks = 0; }).find("group 0"),
            std::string::npos);
  EXPECT_NE(
      message([](auto* c) { c->groups[0].group.tokens_per_block = 0; }).find("tokens per block"),
      std::string::npos);
  EXPECT_NE(message([](auto* c) { c->pipeline_depth = -1; }).find("depth"), std::string::npos);
}

TEST(Scheduler, RefusesWhatCanNeverFitWithTheNumbers) {
  auto scheduler = Scheduler::Create(SmallConfig()).value();
  // 8 blocks of 4 tokens; the last output needs no place.
  EXPECT_EQ(scheduler->max_context_tokens(), 33);
  EXPECT_TRUE(scheduler->Validate(MakeRequest(1, 30, 3)).ok());
  const Status status = scheduler->Validate(MakeRequest(1, 30, 4));
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  for (const char* number : {"34", "30", "33", "64"}) {
    EXPECT_NE(status.message().find(number), std::string::npos) << status.message();
  }
  EXPECT_TRUE(scheduler->Validate(MakeRequest(1, 32)).ok());
  EXPECT_EQ(scheduler->Validate(MakeRequest(1, 33)).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(scheduler->Validate(MakeRequest(1, 1, INT32_MAX)).code(), StatusCode::kOutOfRange);
}

TEST(Scheduler, RefusesValuesThatMakeNoSense) {
  auto scheduler = Scheduler::Create(SmallConfig()).value();
  const auto refused = [&](auto change) {
    Request request = MakeRequest(1, 2);
    change(&request);
    return scheduler->Validate(request).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](Request*) {}));
  EXPECT_TRUE(refused([](Request* r) { r->prompt.clear(); }));
  EXPECT_TRUE(refused([](Request* r) { r->prompt[1] = TokenId(100); }));
  EXPECT_TRUE(refused([](Request* r) { r->prompt[1] = TokenId(-1); }));
  EXPECT_TRUE(refused([](Request* r) { r->max_output_tokens = 0; }));
  EXPECT_TRUE(refused([](Request* r) { r->stop_tokens.resize(65); }));
  EXPECT_TRUE(refused([](Request* r) { r->sampling.temperature = -1; }));
  EXPECT_TRUE(refused([](Request* r) { r->sampling.temperature = 0.0 / 0.0; }));
  EXPECT_TRUE(refused([](Request* r) { r->sampling.top_p = 0; }));
  EXPECT_TRUE(refused([](Request* r) { r->sampling.top_k = -1; }));
}

TEST(Scheduler, TheQueueIsBounded) {
  auto scheduler = Scheduler::Create(SmallConfig()).value();
  EXPECT_TRUE(scheduler->Enqueue(MakeRequest(1, 1), 0).ok());
  EXPECT_EQ(scheduler->Enqueue(MakeRequest(1, 1), 0).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(scheduler->Enqueue(MakeRequest(2, 1), 0).ok());
  EXPECT_EQ(scheduler->Enqueue(MakeRequest(3, 1), 0).code(), StatusCode::kResourceExhausted);
  scheduler->End(scheduler->Find(RequestId(1)).value(), RequestState::kCancelled);
  EXPECT_TRUE(scheduler->Enqueue(MakeRequest(3, 1), 0).ok());
  EXPECT_TRUE(scheduler->CheckIntegrity().ok());
}

TEST(Scheduler, RefusesResultsThatAreNotTheOldestSteps) {
  auto scheduler = Scheduler::Create(SmallConfig()).value();
  ASSERT_TRUE(scheduler->Enqueue(MakeRequest(1, 1), 0).ok());
  StepResult result;
  result.step = StepId(1);
  EXPECT_FALSE(scheduler->CheckResult(result).ok());
  StepPlan plan;
  ASSERT_TRUE(scheduler->PlanStep(0, &plan));
  scheduler->Submitted(plan);
  EXPECT_FALSE(scheduler->CheckResult(result).ok()) << "no rows";
  result.rows = {{SlotId(0), false, TokenId(0)}};
  EXPECT_FALSE(scheduler->CheckResult(result).ok()) << "the row samples";
  result.rows[0].sampled = true;
  EXPECT_TRUE(scheduler->CheckResult(result).ok());
  result.step = StepId(2);
  EXPECT_FALSE(scheduler->CheckResult(result).ok());
}

}  // namespace
}  // namespace tandem
