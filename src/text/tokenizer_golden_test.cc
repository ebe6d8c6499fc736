// Tokenizers of every supported family against the `tokenizers` library
// (tests/golden/make_tokenizers.py) and sentencepiece.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "text/detokenizer.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

using nlohmann::json;

std::string ReadGolden(const std::string& name) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::unique_ptr<Tokenizer> Load(const std::string& family) {
  std::string text = ReadGolden("tokenizers/" + family + ".json");
  if (family == "default") {  // steps of GGUF readers, which no Hugging Face file has
    json root = json::parse(text);
    root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    text = root.dump();
  }
  Result<Vocabulary> vocabulary = VocabularyFromHf({.tokenizer = text});
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status().ToString();
  if (!vocabulary.ok()) return nullptr;
  if (family == "default") vocabulary->pre = "default";
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(*vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::vector<TokenId> TokensOf(const json& ids) {
  std::vector<TokenId> tokens;
  for (const json& id : ids) tokens.push_back(TokenId(id.get<int32_t>()));
  return tokens;
}

std::string Decode(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens,
                   bool skip_special = false) {
  IncrementalDetokenizer detokenizer(tokenizer);
  std::string text;
  for (const TokenId token : tokens) text += detokenizer.Append(token, skip_special);
  return text + detokenizer.Flush();
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, IdsAndTextEqualTheReference) {
  const std::string family = GetParam();
  const auto tokenizer = Load(family);
  ASSERT_NE(tokenizer, nullptr);
  const json golden = json::parse(ReadGolden("tokenizers_golden.json"));
  ASSERT_GT(golden["records"].size(), 400u);
  for (const json& record : golden["records"]) {
    const auto text = record["text"].get<std::string>();
    const bool special = record.value("special", false);
    const auto tokens = tokenizer->Encode(text, {.add_special = special, .parse_special = special});
    ASSERT_EQ(tokens, TokensOf(record["ids"][family])) << record["text"].dump();
    std::string expected = text;
    if (record.contains("decoded") && record["decoded"].contains(family)) {
      expected = record["decoded"][family].get<std::string>();
    }
    EXPECT_EQ(Decode(*tokenizer, tokens), expected) << record["text"].dump();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGolden,
                         testing::Values("gpt2", "smollm", "llama3", "qwen2", "default", "llama2",
                                         "gemma"),
                         [](const auto& family) { return std::string(family.param); });

class TokenizerStepsGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerStepsGolden, IdsAndTextEqualTheReference) {
  const std::string family = GetParam();
  const auto tokenizer = Load("steps_" + family);
  ASSERT_NE(tokenizer, nullptr);
  const json golden = json::parse(ReadGolden("tokenizer_steps_golden.json"));
  int compared = 0;
  for (const json& record : golden["records"]) {
    if (!record["ids"].contains(family)) continue;  // the reference gave up
    const auto text = record["text"].get<std::string>();
    const bool special = record["special"].get<bool>();
    const auto tokens = tokenizer->Encode(text, {.add_special = special, .parse_special = special});
    ASSERT_EQ(tokens, TokensOf(record["ids"][family])) << record["text"].dump() << special;
    ++compared;
    if (family == "added_bytes") continue;  // the reference takes the e of Latin-1 for a byte
    std::string expected = text;
    if (record.contains("decoded") && record["decoded"].contains(family)) {
      expected = record["decoded"][family].get<std::string>();
    }
    EXPECT_EQ(Decode(*tokenizer, tokens, /*skip_special=*/!family.starts_with("added")), expected)
        << record["text"].dump() << special;
  }
  EXPECT_GT(compared, 400);
}

INSTANTIATE_TEST_SUITE_P(Steps, TokenizerStepsGolden,
                         testing::Values("first", "always", "never", "unknown", "unknown_apart",
                                         "some_bytes", "no_unknown", "added_prepend", "added_nfc",
                                         "added_metaspace", "added_bytes"),
                         [](const auto& family) { return std::string(family.param); });

// SentencePiece's own BPE, by scores, as GGUF files of model "llama" hold it.
TEST(SentencePieceGolden, IdsAndTextEqualTheReference) {
  const json golden = json::parse(ReadGolden("sentencepiece_golden.json"));
  Vocabulary v;
  v.model = "llama";
  v.tokens = golden["pieces"].get<std::vector<std::string>>();
  v.scores = golden["scores"].get<std::vector<float>>();
  for (const json& type : golden["types"]) v.types.push_back(*TokenTypeFromInt(type.get<int>()));
  ApplyGgufConventions(v);
  v.unknown = TokenId(0);
  v.bos = TokenId(1);
  const auto tokenizer = Tokenizer::Create(std::move(v));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  ASSERT_GT(golden["records"].size(), 300u);
  for (const json& record : golden["records"]) {
    const auto text = record["text"].get<std::string>();
    const auto tokens = (*tokenizer)->Encode(text, {});
    ASSERT_EQ(tokens, TokensOf(record["ids"])) << record["text"].dump();
    EXPECT_EQ(Decode(**tokenizer, tokens), record.value("decoded", text)) << record["text"].dump();
  }
}

}  // namespace
}  // namespace tandem
