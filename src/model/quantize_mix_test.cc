#include "model/quantize_mix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TensorSpec Matrix(std::string name, int64_t cols) {
  return {std::move(name), TensorKind::kMatrix, 64, cols, TensorSplit::kWhole};
}

TEST(QuantizeMix, NamesAreFoundInAnyCase) {
  EXPECT_EQ(WritableTypeFromName("q4_1").value(), DType::kQ4_1);
  EXPECT_EQ(WritableTypeFromName("BF16").value(), DType::kBF16);
}

TEST(QuantizeMix, AnUnknownNameListsAllAndNamesTheNearest) {
  const Status status = WritableTypeFromName("q8_1").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'Q8_1'"));
  EXPECT_THAT(status.message(), HasSubstr("did you mean Q"));
  for (const GgmlTypeInfo* type : WritableTypes()) {
    EXPECT_THAT(status.message(), HasSubstr(std::string(type->name)));
  }
  const std::string far = WritableTypeFromName(std::string(1000, 'x')).status().message();
  EXPECT_LT(far.size(), 400u);
  EXPECT_EQ(far.find("did you mean"), std::string::npos);
}

TEST(QuantizeMix, VectorsAreF32AndTheLogitsMatrixIsFiner) {
  ModelSpec tied;
  tied.tied_embeddings = true;
  const TypeMix mix{DType::kQ4_0, std::nullopt};
  EXPECT_EQ(ChooseType(mix, tied, {"output_norm.weight", TensorKind::kVector, 1, 33}).type,
            DType::kF32);
  EXPECT_EQ(ChooseType(mix, tied, Matrix("blk.0.attn_q.weight", 96)).type, DType::kQ4_0);
  EXPECT_EQ(ChooseType(mix, tied, Matrix("token_embd.weight", 96)).type, DType::kQ8_0);
  ModelSpec untied;
  EXPECT_EQ(ChooseType(mix, untied, Matrix("token_embd.weight", 96)).type, DType::kQ4_0);
  EXPECT_EQ(ChooseType(mix, untied, Matrix("output.weight", 96)).type, DType::kQ8_0);
  const TypeMix chosen{DType::kQ4_0, DType::kF16};
  EXPECT_EQ(ChooseType(chosen, untied, Matrix("token_embd.weight", 96)).type, DType::kF16);
  EXPECT_EQ(ChooseType(chosen, untied, Matrix("output.weight", 96)).type, DType::kF16);
  const TypeMix plain{DType::kBF16, std::nullopt};
  EXPECT_EQ(ChooseType(plain, tied, Matrix("token_embd.weight", 96)).type, DType::kBF16);
}

TEST(QuantizeMix, EveryTypeFitsEveryRowLength) {
  for (const GgmlTypeInfo* type : WritableTypes()) {
    const TypeMix mix{*type->dtype, std::nullopt};
    for (const int64_t cols : {33, 48, 576, 640, 768}) {
      for (const char* name : {"blk.0.ffn_down.weight", "token_embd.weight", "output.weight"}) {
        const ChosenType chosen = ChooseType(mix, {}, Matrix(name, cols));
        EXPECT_EQ(cols % InfoOf(chosen.type).block_elements, 0)
            << type->name << " " << cols << " became " << NameOf(chosen.type);
        if (cols % 32 == 0 && type->quantised()) {
          EXPECT_NE(chosen.type, DType::kF16);
        }
      }
    }
  }
}

TEST(QuantizeMix, FallbacksAreCountedAndNamed) {
  TypeCounts counts;
  const TypeMix mix{DType::kQ4_0, std::nullopt};
  for (const int64_t cols : {64, 33, 35}) {
    const TensorSpec tensor = Matrix("blk.0.ffn_down.weight", cols);
    counts.Add(tensor, ChooseType(mix, {}, tensor));
  }
  const TensorSpec output = Matrix("output.weight", 96);
  counts.Add(output, ChooseType(mix, {}, output));
  EXPECT_EQ(counts.ToText(), "2 x F16, 1 x Q4_0, 1 x Q8_0; output.weight is Q8_0");
  EXPECT_EQ(counts.FallbackText(), "2 x F16 instead of Q4_0");
}

TEST(QuantizeMix, FileTypesAreThoseOfGguf) {
  EXPECT_EQ(FileTypeOf(DType::kF32), 0u);
  EXPECT_EQ(FileTypeOf(DType::kQ4_0), 2u);
  EXPECT_EQ(FileTypeOf(DType::kQ8_0), 7u);
  EXPECT_EQ(FileTypeOf(DType::kBF16), 32u);
}

}  // namespace
}  // namespace tandem
