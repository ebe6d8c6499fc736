#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>

#include "base/rng.h"
#include "text/testing/tiny_vocabulary.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::TinyVocabulary;

class TokenizerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = *Tokenizer::Create(TinyVocabulary());

  std::vector<std::string> Pieces(std::string_view text, const EncodeOptions& options = {}) {
    std::vector<std::string> out;
    for (const TokenId id : tokenizer_->Encode(text, options)) {
      out.emplace_back(tokenizer_->TokenBytes(id));
    }
    return out;
  }
};

TEST_F(TokenizerTest, MergesByRank) {
  EXPECT_THAT(Pieces("hello world"), ElementsAre("hello", " world"));
  // "or" (rank 5) joins before "_w or" can; "lo" has no rank.
  EXPECT_THAT(Pieces("hel wo"), ElementsAre("he", "l", " w", "o"));
  EXPECT_TRUE(Pieces("").empty());
}

TEST_F(TokenizerTest, EqualRanksMergeFromTheLeft) {
  EXPECT_THAT(Pieces("aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(Pieces("aaaaaaaaaaaaa"), ElementsAre("aaaaaaaa", "aaaa", "a"));
  EXPECT_THAT(Pieces("x aaa"), ElementsAre("x", " ", "aa", "a"));
}

TEST_F(TokenizerTest, SpecialLookAlikesStayTextUnlessAsked) {
  const std::string text = "hello<|end|><think>";
  EXPECT_THAT(Pieces(text), ElementsAre("hello", "<", "|", "e", "n", "d", "|", ">", "<think>"));
  EXPECT_THAT(tokenizer_->Encode(text, {.parse_special = true}),
              ElementsAre(*tokenizer_->Encode("hello", {}).begin(), TokenId(0), TokenId(2)));
  EXPECT_THAT(Pieces("<|end|", {.parse_special = true}), ElementsAre("<", "|", "e", "n", "d", "|"));
}

TEST(Tokenizer, LongestSpecialTokenWins) {
  Vocabulary v = TinyVocabulary();
  for (const char* text : {"<|end|><|end|>", "<|en"}) {
    v.tokens.emplace_back(text);
    v.types.push_back(TokenType::kControl);
  }
  const int32_t twice = static_cast<int32_t>(v.tokens.size()) - 2;
  const auto tokenizer = *Tokenizer::Create(std::move(v));
  EXPECT_THAT(tokenizer->Encode("<|end|><|end|><|end|><|en", {.parse_special = true}),
              ElementsAre(TokenId(twice), TokenId(0), TokenId(twice + 1)));
}

TEST(Tokenizer, AddsBosAndEosWhereTheVocabularySaysSo) {
  Vocabulary v = TinyVocabulary();
  v.add_bos = true;
  const auto with_bos = *Tokenizer::Create(v);
  EXPECT_THAT(with_bos->Encode("", {.add_special = true}), ElementsAre(TokenId(1)));
  EXPECT_TRUE(with_bos->Encode("", {}).empty());
  v.add_eos = true;
  const auto with_both = *Tokenizer::Create(v);
  EXPECT_THAT(with_both->Encode("", {.add_special = true}), ElementsAre(TokenId(1), TokenId(0)));
}

TEST_F(TokenizerTest, DamagedUtf8CountsAsReplacementCharacters) {
  EXPECT_EQ(tokenizer_->Encode("a\xE2\x82z\xFF", {}), tokenizer_->Encode("a\uFFFDz\uFFFD", {}));
}

TEST(Tokenizer, BytesWithoutATokenYieldNothingAndTheirNeighboursMeet) {
  Vocabulary v = TinyVocabulary();
  v.tokens[3 + 'x'] = "unreachable";
  const auto tokenizer = *Tokenizer::Create(std::move(v));
  EXPECT_EQ(tokenizer->Encode("helxlo", {}), tokenizer->Encode("hello", {}));
  EXPECT_TRUE(tokenizer->Encode("xxx", {}).empty());
}

TEST_F(TokenizerTest, DescribesItsTokens) {
  EXPECT_TRUE(tokenizer_->IsControl(TokenId(0)));
  EXPECT_FALSE(tokenizer_->IsControl(TokenId(2)));
  EXPECT_FALSE(tokenizer_->IsControl(TokenId(-1)));
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(TokenId(0)));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(TokenId(1)));
  EXPECT_EQ(tokenizer_->FindSpecial("<|start|>"), TokenId(1));
  EXPECT_EQ(tokenizer_->FindSpecial("<think>"), TokenId(2));
  EXPECT_EQ(tokenizer_->FindSpecial("a"), std::nullopt);
  EXPECT_EQ(tokenizer_->FindSpecial("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer_->TokenBytes(TokenId(1 << 30)), "");
  EXPECT_EQ(tokenizer_->TokenBytes(TokenId(3 + '\n')), "\n");
  EXPECT_EQ(tokenizer_->max_token_bytes(), 9u);  // "<|start|>"
}

TEST(Tokenizer, MoreEndTokensEndGeneration) {
  Vocabulary v = TinyVocabulary();
  v.more_end_tokens = {TokenId(2)};
  const auto tokenizer = *Tokenizer::Create(std::move(v));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(TokenId(0)));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(TokenId(2)));
}

// The definition of BPE, quadratic: join the lowest-ranked pair, left-most first.
std::vector<int32_t> SlowMerge(const std::vector<std::string>& merges,
                               const std::vector<std::string>& tokens,
                               std::vector<int32_t> symbols) {
  while (true) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::string pair = tokens[symbols[i]] + " " + tokens[symbols[i + 1]];
      const size_t rank = std::find(merges.begin(), merges.end(), pair) - merges.begin();
      if (rank < best_rank) best_rank = rank, best = i;
    }
    if (best_rank == merges.size()) return symbols;
    const std::string joined = tokens[symbols[best]] + tokens[symbols[best + 1]];
    symbols[best] =
        static_cast<int32_t>(std::find(tokens.begin(), tokens.end(), joined) - tokens.begin());
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, AgreesWithItsDefinitionOnRandomVocabularies) {
  SplitMix64 rng(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::string> merges;
    while (merges.size() < 25) {
      const std::string left = tokens[rng.Below(tokens.size())];
      const std::string right = tokens[rng.Below(tokens.size())];
      const std::string merge = left + " " + right;
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) {
        tokens.push_back(left + right);
      }
    }
    // Out of order on purpose: a merge may then outrank the one that makes its parts.
    for (size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[rng.Below(i)]);
    const TokenIndex index(tokens);
    const BpeMerger merger = *BpeMerger::Create(merges, index, tokens.size());
    BpeMerger::Scratch scratch;
    for (int text = 0; text < 20; ++text) {
      scratch.symbols.clear();
      for (uint64_t n = rng.Below(40); n > 0; --n) {
        scratch.symbols.push_back(static_cast<int32_t>(rng.Below(3)));
      }
      const std::vector<int32_t> expected = SlowMerge(merges, tokens, scratch.symbols);
      std::vector<TokenId> merged;
      merger.Merge(scratch, merged);
      std::vector<int32_t> got;
      for (const TokenId id : merged) got.push_back(id.value());
      ASSERT_EQ(got, expected);
    }
  }
}

// Hostile texts must not be quadratic: 1 MiB of one thing takes well under a second in a release
// build; a quadratic merge of a million symbols would take hours.
TEST_F(TokenizerTest, HostileTextsTakeAboutLinearTime) {
  for (const std::string_view unit : {"a", " ", "7", "\u0301", "'", "<|end|", "\xFF", "\u4E2D"}) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += unit;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(tokenizer_->Encode(text, {.parse_special = true}).empty());
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60)) << unit;
  }
}

TEST_F(TokenizerTest, EncodesFromManyThreads) {
  const std::string text = "hello world aaaaaaa <|end|>  12 e\u0301 \u4E2D";
  const std::vector<TokenId> expected = tokenizer_->Encode(text, {.parse_special = true});
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        wrong[t] += tokenizer_->Encode(text, {.parse_special = true}) != expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST_F(TokenizerTest, RandomTextSurvivesARoundTrip) {
  SplitMix64 rng(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t n = rng.Below(50); n > 0; --n) {
      char32_t code =
          static_cast<char32_t>(rng.Below(4) == 0 ? rng.Below(0x3000) : 'a' + rng.Below(9));
      AppendChar(text, code);
    }
    std::string decoded;
    for (const std::string& piece : Pieces(text)) decoded += piece;
    ASSERT_EQ(decoded, text);
  }
}

// --- data in prompts ---

TEST(Tokenizer, ControlTokensDoNotComeFromData) {
  const auto tokenizer = Tokenizer::Create(testing::TinyVocabulary()).value();
  const auto encode = [&](const MarkedText& text) {
    return tokenizer->Encode(text, {.parse_special = true});
  };
  const TokenId end(0);
  const TokenId start(1);
  MarkedText prompt("<|start|>");
  prompt.AppendData("a<|end|><|start|>");
  prompt.Append("<|end|>");
  std::vector<TokenId> tokens = encode(prompt);
  EXPECT_EQ(tokens.front(), start);
  EXPECT_EQ(tokens.back(), end);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), end), 1);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), start), 1);

  // Neither does one byte of data make a token with its neighbours.
  for (size_t data = 0; data < 7; ++data) {
    const std::string_view word = "<|end|>";
    MarkedText text{std::string(word.substr(0, data))};
    text.AppendData(word.substr(data, 1));
    text.Append(word.substr(data + 1));
    tokens = encode(text);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), end), 0) << data;
    EXPECT_EQ(tokens, tokenizer->Encode(word, {}));
  }
  // Text before and after the border merges as if there were none.
  MarkedText hello("hel");
  hello.AppendData("lo");
  EXPECT_EQ(encode(hello), tokenizer->Encode("hello", {}));
  // User-defined tokens are found in data too, as everywhere.
  EXPECT_EQ(encode(MarkedText::FromData("<think>")), std::vector<TokenId>{TokenId(2)});
  // Where damaged text has no reliable marks, all of it is data.
  EXPECT_EQ(encode(MarkedText("\xFF<|end|>")), tokenizer->Encode("\xFF<|end|>", {}));
}

// Words that are looked for in normalised text: marks follow the text through it.
TEST(Tokenizer, ControlTokensOfNormalisedTextDoNotComeFromDataEither) {
  for (const bool nfc : {false, true}) {
    Vocabulary v;
    v.model = "llama";
    v.tokens = {"<unk>", "<s>", "\xE2\x96\x81", "a", "b", "\u00e9"};
    v.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kNormal,
               TokenType::kNormal,  TokenType::kNormal,  TokenType::kNormal};
    v.merges = {};
    v.scores.assign(v.tokens.size(), 0);
    v.unknown = TokenId(0);
    v.fuse_unknown = true;
    v.normalize_nfc = nfc;
    v.literal_rules = {{.token = TokenId(1), .normalized = true}};
    const auto tokenizer = Tokenizer::Create(std::move(v)).value();
    const auto encode = [&](const MarkedText& text) {
      return tokenizer->Encode(text, {.parse_special = true});
    };
    MarkedText text("a <s>");
    text.AppendData(" e\u0301 <s>");
    text.Append("<s> b");
    const std::vector<TokenId> tokens = encode(text);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), TokenId(1)), 2) << nfc;
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), TokenId(5)), nfc ? 1 : 0);
    for (size_t data = 0; data < 3; ++data) {
      MarkedText split{std::string("<s>").substr(0, data)};
      split.AppendData(std::string_view("<s>").substr(data, 1));
      split.Append(std::string_view("<s>").substr(data + 1));
      EXPECT_EQ(encode(split), tokenizer->Encode("<s>", {})) << data;
    }
  }
}

// The processor time for four times the text, in times of the text's own; about 4 where it is
// linear, 16 where quadratic.
double Growth(const Tokenizer& tokenizer, std::string_view unit) {
  const auto time_of = [&](size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const std::clock_t start = std::clock();
      EXPECT_FALSE(tokenizer.Encode(MarkedText::FromData(text), {.parse_special = true}).empty());
      best = std::min(best, static_cast<double>(std::clock() - start));
    }
    return best;
  };
  return time_of(size_t{1} << 18) / time_of(size_t{1} << 16);
}

TEST(Tokenizer, AddedTokensAndMetaspaceTakeLinearTime) {
  Vocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "\xE2\x96\x81", "a", "\n", "<x>", "<xx", "word", "\xE2\x96\x81\xE2\x96\x81"};
  v.types.assign(v.tokens.size(), TokenType::kUserDefined);
  for (const size_t normal : {1, 2, 7}) v.types[normal] = TokenType::kNormal;
  v.types[0] = TokenType::kUnknown;
  v.types[4] = TokenType::kControl;
  v.merges = {"\xE2\x96\x81 \xE2\x96\x81"};
  v.unknown = TokenId(0);
  v.normalize_nfc = true;
  v.literal_rules = {
      {.token = TokenId(3), .lstrip = true, .rstrip = true},
      {.token = TokenId(4), .lstrip = true, .rstrip = true, .normalized = true},
      {.token = TokenId(6), .single_word = true, .lstrip = true, .normalized = true}};
  for (const bool split : {false, true}) {
    v.metaspace = Metaspace{.prefix = Metaspace::Prefix::kAlways, .split = split};
    const auto tokenizer = Tokenizer::Create(v).value();
    for (const std::string_view unit : {"a", " ", "\n", "\n ", "\u0301", "<x>", "<x", "<x> ",
                                        "word", "word ", "\u4E2D", "a\u0301", "\xE2\x96\x81"}) {
      EXPECT_LT(Growth(*tokenizer, unit), 9.0) << "'" << unit << "' " << split;
    }
  }
}

TEST(Tokenizer, IgnoredMergesTakeWholePieces) {
  Vocabulary v = testing::TinyVocabulary("llama-bpe");
  v.tokens.push_back("worldly");
  v.types.push_back(TokenType::kNormal);
  const TokenId whole(static_cast<int32_t>(v.tokens.size() - 1));
  EXPECT_NE(Tokenizer::Create(v).value()->Encode("worldly", {}), std::vector<TokenId>{whole});
  v.ignore_merges = true;
  const auto tokenizer = Tokenizer::Create(v).value();
  EXPECT_EQ(tokenizer->Encode("worldly", {}), std::vector<TokenId>{whole});
  EXPECT_GT(tokenizer->Encode("worldlyx", {}).size(), 1u);
}

}  // namespace
}  // namespace tandem
