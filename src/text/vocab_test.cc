#include "text/vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "text/testing/tiny_vocabulary.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using testing::TinyVocabulary;

struct Damage {
  const char* name;
  std::function<void(Vocabulary&)> apply;
  const char* message;
};

TEST(Vocabulary, EveryDamageIsAnErrorThatNamesIt) {
  const Damage damages[] = {
      {"no tokens", [](Vocabulary& v) { v.tokens.clear(); }, "no tokens"},
      {"empty token", [](Vocabulary& v) { v.tokens[7].clear(); }, "token 7 is empty"},
      {"duplicate", [](Vocabulary& v) { v.tokens[9] = v.tokens[5]; }, "tokens 5 and 9"},
      {"types", [](Vocabulary& v) { v.types.pop_back(); }, "token types for"},
      {"scores", [](Vocabulary& v) { v.scores = {1.0f}; }, "1 scores for"},
      {"bos", [](Vocabulary& v) { v.bos = TokenId(100000); }, "bos token id 100000"},
      {"negative eos", [](Vocabulary& v) { v.eos = TokenId(-1); }, "eos token id -1"},
      {"end", [](Vocabulary& v) { v.more_end_tokens = {TokenId(1 << 30)}; }, "end token id"},
      {"no bos", [](Vocabulary& v) { v.bos.reset(), v.add_bos = true; }, "add_bos"},
      {"no eos", [](Vocabulary& v) { v.eos.reset(), v.add_eos = true; }, "add_eos"},
      {"long token", [](Vocabulary& v) { v.tokens[20] = std::string(kMaxTokenBytes + 1, 'x'); },
       "token 20 has 16385 bytes"},
      {"long special", [](Vocabulary& v) { v.tokens[0] = std::string(513, 'x'); },
       "token 0 has 513 bytes"},
      {"merge without space", [](Vocabulary& v) { v.merges[3] = "abc"; }, "merge 3 'abc'"},
      {"merge of three", [](Vocabulary& v) { v.merges[3] = "a b c"; }, "merge 3"},
      {"merge with empty left", [](Vocabulary& v) { v.merges[0] = " a"; }, "merge 0"},
      {"merge with empty right", [](Vocabulary& v) { v.merges[0] = "a "; }, "merge 0"},
      {"left unknown", [](Vocabulary& v) { v.merges[1] = "zz l"; }, "left part"},
      {"right unknown", [](Vocabulary& v) { v.merges[1] = "l zz"; }, "right part"},
      {"result unknown", [](Vocabulary& v) { v.merges[1] = "z z"; }, "not a token"},
      {"same pair", [](Vocabulary& v) { v.merges[5] = v.merges[2]; }, "merges 2 and 5"},
      {"model", [](Vocabulary& v) { v.model = "rwkv"; }, "'rwkv'"},
      {"pre", [](Vocabulary& v) { v.pre = "mystery"; }, "'mystery'"},
  };
  ASSERT_TRUE(Tokenizer::Create(TinyVocabulary()).ok());
  for (const Damage& damage : damages) {
    Vocabulary v = TinyVocabulary();
    damage.apply(v);
    const auto tokenizer = Tokenizer::Create(std::move(v));
    ASSERT_FALSE(tokenizer.ok()) << damage.name;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(damage.message)) << damage.name;
  }
}

TEST(Vocabulary, TooManySpecialBytesAreRefused) {
  Vocabulary v = TinyVocabulary();
  for (int i = 0; i < 2100; ++i) {
    std::string text = std::to_string(i);
    text.resize(500, '#');
    v.tokens.push_back(std::move(text));
    v.types.push_back(TokenType::kControl);
  }
  EXPECT_EQ(ValidateVocabulary(v).code(), StatusCode::kOutOfRange);
}

TEST(Vocabulary, UnsupportedKindsAreUnimplemented) {
  Vocabulary v = TinyVocabulary("tekken");
  EXPECT_EQ(Tokenizer::Create(v).status().code(), StatusCode::kUnimplemented);
  for (const char* model : {"t5", "bert", "rwkv"}) {
    v.model = model;
    const Status status = Tokenizer::Create(v).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    EXPECT_THAT(status.message(), HasSubstr(model));
  }
}

TEST(Vocabulary, SentencePieceNeedsScoresOrMerges) {
  Vocabulary v;
  v.model = "llama";
  v.tokens = {"a", "b", "ab"};
  EXPECT_EQ(Tokenizer::Create(v).status().code(), StatusCode::kInvalidArgument);
  v.scores = {0, 0, NAN};
  EXPECT_THAT(Tokenizer::Create(v).status().message(), HasSubstr("score of token 2"));
  v.scores = {0, 0, 1};
  EXPECT_TRUE(Tokenizer::Create(v).ok());
  v.types = {TokenType::kNormal, TokenType::kByte, TokenType::kNormal};
  EXPECT_THAT(Tokenizer::Create(v).status().message(), HasSubstr("<0xNN>"));
}

TEST(Vocabulary, GgufConventions) {
  Vocabulary v = TinyVocabulary("llama-bpe");
  ApplyGgufConventions(v);
  EXPECT_TRUE(v.ignore_merges && v.add_bos && !v.normalize_nfc);
  v = TinyVocabulary("smollm");
  ApplyGgufConventions(v);
  EXPECT_TRUE(!v.ignore_merges && !v.add_bos && !v.normalize_nfc && !v.add_space_prefix);
}

TEST(Vocabulary, TokenTypesAreThoseOfGguf) {
  EXPECT_EQ(*TokenTypeFromInt(3), TokenType::kControl);
  EXPECT_FALSE(TokenTypeFromInt(0).ok());
  EXPECT_FALSE(TokenTypeFromInt(7).ok());
  EXPECT_FALSE(TokenTypeFromInt(INT64_MIN).ok());
}

}  // namespace
}  // namespace tandem
