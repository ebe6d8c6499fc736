#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "core/cost.h"
#include "core/model_spec.h"
#include "core/step_plan.h"

namespace tandem {
namespace {

ModelSpec SmolLm2() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.num_layers = 30;
  spec.hidden_dim = 576;
  spec.num_heads = 9;
  spec.num_kv_heads = 3;
  spec.head_dim = 64;
  spec.ffn_dim = 1536;
  spec.vocab_size = 49152;
  spec.tokenizer_size = 49152;
  spec.context_length = 8192;
  spec.rms_epsilon = 1e-5;
  spec.rope = {RopeStyle::kInterleaved, 1e5, 64};
  return spec;
}

TEST(ModelSpec, NamesTheFieldThatMakesNoSense) {
  EXPECT_TRUE(SmolLm2().Validate().ok());
  ModelSpec spec = SmolLm2();
  spec.num_kv_heads = 4;
  EXPECT_NE(spec.Validate().message().find("KV heads"), std::string::npos);
  spec = SmolLm2();
  spec.rope.dims = 65;
  EXPECT_NE(spec.Validate().message().find("rope"), std::string::npos);
  for (const auto& divisors : {std::vector<float>(31, 1.0f), std::vector<float>(32, 0.0f)}) {
    spec = SmolLm2();
    spec.rope.divisors = divisors;
    EXPECT_NE(spec.Validate().message().find("divisor"), std::string::npos);
  }
  spec.rope.divisors.assign(32, 8.0f);
  EXPECT_TRUE(spec.Validate().ok());
  spec.rope.divisors[31] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(spec.Validate().message().find("divisor"), std::string::npos);
  for (const int32_t size : {0, 49153}) {
    spec = SmolLm2();
    spec.tokenizer_size = size;
    EXPECT_NE(spec.Validate().message().find("tokenizer size"), std::string::npos);
  }
  spec = SmolLm2();
  spec.rms_epsilon = 0;
  EXPECT_NE(spec.Validate().message().find("epsilon"), std::string::npos);
}

TEST(MakeStateGroups, FastStoresHalfOfWhatExactStores) {
  const auto fast = MakeStateGroups(SmolLm2(), Numerics::kFast, 16, {}).value();
  const auto exact = MakeStateGroups(SmolLm2(), Numerics::kExact, 16, {}).value();
  ASSERT_EQ(fast.size(), 1u);
  EXPECT_EQ(fast[0].BlockBytes(), 30 * 3 * 2 * 64 * 16 * 2);
  EXPECT_EQ(exact[0].BlockBytes(), 2 * fast[0].BlockBytes());
  EXPECT_FALSE(MakeStateGroups(SmolLm2(), Numerics::kFast, 16, {0, 2}).ok());
  EXPECT_EQ(MakeStateGroups(SmolLm2(), Numerics::kFast, 16, {0, 3}).value()[0].num_heads, 1);
}

TEST(MakeStateGroups, StoresWhatTheNumericsSay) {
  for (const DType type : kKvTypes) {
    const Numerics numerics{Arithmetic::kFast, type};
    const StateGroup group = MakeStateGroups(SmolLm2(), numerics, 16, {}).value()[0];
    for (const StatePlane& plane : group.planes) EXPECT_EQ(plane.dtype, type);
    EXPECT_EQ(group.BlockBytes(), BytesOf(type, int64_t{30} * 3 * 2 * 16 * 64));
    // What budgets, planner and benches count with.
    const StateGroup groups[] = {group};
    EXPECT_EQ(CostOfModel(SmolLm2(), groups, 0, 0).kv_bytes_per_token, group.BlockBytes() / 16);
  }
}

TEST(Numerics, NameHoldsArithmeticAndKvType) {
  EXPECT_EQ(NameOf(Numerics::kExact), "exact-kv-f32");
  EXPECT_EQ(NameOf(Numerics::kFast), "fast-kv-f16");
  std::vector<std::string_view> names;
  for (const char* arithmetic : {"exact", "fast"}) {
    for (const DType type : kKvTypes) {
      const auto numerics = NumericsFromName(arithmetic, NameOfKvType(type));
      ASSERT_TRUE(numerics.ok());
      EXPECT_EQ(numerics->kv, type);
      EXPECT_EQ(NameOf(numerics->arithmetic), arithmetic);
      names.push_back(NameOf(*numerics));
    }
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(Numerics, EachArithmeticHasItsOwnKvType) {
  EXPECT_EQ(NumericsFromName("exact").value(), Numerics::kExact);
  EXPECT_EQ(NumericsFromName("fast").value(), Numerics::kFast);
  EXPECT_EQ(NumericsFromName("fast", "bf16").value(), (Numerics{Arithmetic::kFast, DType::kBF16}));
  EXPECT_EQ(NumericsFromName("fats").status().message(),
            "unknown numerics 'fats': use exact or fast");
  for (const char* wrong : {"q4_0", "F16", "f8", "q8_0 "}) {
    EXPECT_EQ(NumericsFromName("fast", wrong).status().message(),
              fmt::format("unknown KV type '{}': use f32, f16, bf16, q8_0", wrong));
  }
}

TEST(CostOfStep, CountsPairsBytesAndOperations) {
  const ModelSpec spec = SmolLm2();
  const auto groups = MakeStateGroups(spec, Numerics::kFast, 16, {}).value();
  const ModelCost model = CostOfModel(spec, groups, 66'000'000, 30'000'000);
  EXPECT_EQ(model.kv_bytes_per_token, 23040);
  EXPECT_EQ(model.macs_per_token, 30 * (576 * (2 * 576 + 2 * 192) + 3 * 576 * 1536));
  StepPlan plan;
  plan.rows.push_back({SlotId(0), 100, 1, -1, StepId(1), 0, true, 0});
  StepCost cost = CostOfStep(model, plan);
  EXPECT_EQ(cost.causal_pairs, 101);
  EXPECT_EQ(cost.kv_bytes, 102 * 23040);
  EXPECT_EQ(cost.weight_bytes, 96'000'000);
  plan.rows[0].sample = false;  // a middle chunk reads no output projection
  plan.rows[0].num_tokens = 7;
  cost = CostOfStep(model, plan);
  EXPECT_EQ(cost.causal_pairs, 7 * 100 + 28);
  EXPECT_EQ(cost.weight_bytes, 66'000'000);
  EXPECT_DOUBLE_EQ(cost.flops, 2.0 * (7.0 * static_cast<double>(model.macs_per_token) +
                                      728.0 * static_cast<double>(model.macs_per_pair)));
}

TEST(StepPlan, TextHasOneLinePerEntry) {
  StepPlan plan;
  plan.step = StepId(3);
  plan.leaves = {SlotId(2)};
  plan.joins.push_back({SlotId(0), RequestId(7), 0, {}});
  plan.appends.push_back({SlotId(0), GroupId(0), BlockId(5)});
  plan.copies.push_back({GroupId(1), BlockId(1), BlockId(2)});
  plan.tokens = {TokenId(1), TokenId(2)};
  plan.rows.push_back({SlotId(0), 0, 2, 0, StepId(), 0, true, 0});
  plan.rows.push_back({SlotId(1), 9, 1, -1, StepId(2), 4, true, 0});
  EXPECT_EQ(plan.ToText(),
            "step 3\nleave slot=2\njoin slot=0 request=7\nappend slot=0 group=0 block=5\n"
            "copy group=1 from=1 to=2\nrow slot=0 pos=0 n=2 sample\nrow slot=1 pos=9 n=1 from=2:4 "
            "sample\n");
  EXPECT_EQ(plan.NumTokens(), 3);
  plan.Clear();
  EXPECT_EQ(plan.ToText(), "step 0\n");
}

}  // namespace
}  // namespace tandem
