#include "text/hf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A byte-level tokenizer with one merge, two added tokens and a bos: ids 0..255 bytes, 256 "ab",
// 257 "<s>", 258 "<t>".
json Small() {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    vocab[EncodeByteLevel(std::string_view(&byte, 1))] = b;
  }
  vocab["ab"] = 256;
  json root = json::parse(R"({
    "added_tokens": [{"id": 257, "content": "<s>", "special": true, "normalized": false},
                     {"id": 258, "content": "<t>", "special": false, "normalized": false}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                  {"Sequence": {"id": "A", "type_id": 0}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}},
    "model": {"type": "BPE", "unk_token": null, "merges": [["a", "b"]]}})");
  root["model"]["vocab"] = vocab;
  return root;
}

TEST(HfTokenizer, ReadsAByteLevelModel) {
  const std::string text = Small().dump();
  const Result<Vocabulary> v = VocabularyFromHf({.tokenizer = text});
  ASSERT_TRUE(v.ok()) << v.status().ToString();
  EXPECT_EQ(v->model, "gpt2");
  EXPECT_EQ(v->pre, "gpt-2");
  EXPECT_TRUE(v->normalize_nfc);
  EXPECT_TRUE(v->add_bos);
  EXPECT_EQ(v->bos, TokenId(257));
  EXPECT_EQ(v->type(257), TokenType::kControl);
  EXPECT_EQ(v->type(258), TokenType::kUserDefined);
  const auto tokenizer = Tokenizer::Create(*v);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT((*tokenizer)->Encode("ab<t>", {.add_special = true}),
              ElementsAre(TokenId(257), TokenId(256), TokenId(258)));
}

TEST(HfTokenizer, MergesMayBeStrings) {
  json root = Small();
  root["model"]["merges"] = {"a b"};
  EXPECT_THAT(VocabularyFromHf({.tokenizer = root.dump()})->merges, ElementsAre("a b"));
}

TEST(HfTokenizer, MissingIdsBecomeUnusedTokens) {
  json root = Small();
  root["added_tokens"][1]["id"] = 260;
  const Result<Vocabulary> v = VocabularyFromHf({.tokenizer = root.dump()});
  ASSERT_TRUE(v.ok());
  ASSERT_EQ(v->tokens.size(), 261u);
  EXPECT_EQ(v->type(258), TokenType::kUnused);
  EXPECT_TRUE(Tokenizer::Create(*v).ok());
}

TEST(HfTokenizer, ConfigFilesNameEndTokensAndTemplate) {
  const std::string tokenizer = Small().dump();
  HfTokenizerFiles files;
  files.tokenizer = tokenizer;
  files.config = R"({"eos_token": {"content": "<t>"}, "bos_token": null, "pad_token": "<s>",
    "chat_template": [{"name": "tool_use", "template": "T"},
                      {"name": "default", "template": "D"}]})";
  files.generation_config = R"({"eos_token_id": [258, 7, 9], "temperature": 0.6})";
  Result<Vocabulary> v = VocabularyFromHf(files);
  ASSERT_TRUE(v.ok()) << v.status().ToString();
  EXPECT_EQ(v->eos, TokenId(258));
  EXPECT_EQ(v->padding, TokenId(257));
  EXPECT_THAT(v->more_end_tokens, ElementsAre(TokenId(7), TokenId(9)));
  EXPECT_EQ(v->chat_template, "D");
  files.chat_template = "J";
  EXPECT_EQ(VocabularyFromHf(files)->chat_template, "J");
}

struct Damage {
  const char* pointer;  // JSON pointer into Small()
  const char* value;    // what is put there
  StatusCode code;
  const char* message;
};

TEST(HfTokenizer, SaysWhatIsWrongOrNotSupported) {
  const Damage damages[] = {
      {"/model", "null", StatusCode::kInvalidArgument, "model must be"},
      {"/model/type", "\"Unigram\"", StatusCode::kUnimplemented, "\"Unigram\""},
      {"/model/type", "\"WordPiece\"", StatusCode::kUnimplemented, "\"WordPiece\""},
      {"/model/vocab", "[]", StatusCode::kInvalidArgument, "model.vocab"},
      {"/model/vocab/ab", "-1", StatusCode::kOutOfRange, "'ab'"},
      {"/model/vocab/ab", "1.5", StatusCode::kOutOfRange, "'ab'"},
      {"/model/vocab/ab", "4194304", StatusCode::kOutOfRange, "'ab'"},
      {"/model/vocab/ab", "4000000", StatusCode::kOutOfRange, "missing"},
      {"/model/vocab/ab", "3", StatusCode::kInvalidArgument, "same id 3"},
      {"/model/merges", "{}", StatusCode::kInvalidArgument, "model.merges"},
      {"/model/merges", "[[\"a\"]]", StatusCode::kInvalidArgument, "model.merges[0]"},
      {"/model/merges", "[1]", StatusCode::kInvalidArgument, "model.merges[0]"},
      {"/model/dropout", "0.1", StatusCode::kUnimplemented, "model.dropout"},
      {"/model/end_of_word_suffix", "\"</w>\"", StatusCode::kUnimplemented, "end_of_word_suffix"},
      {"/model/unk_token", "\"<nope>\"", StatusCode::kInvalidArgument, "unk_token"},
      {"/model/ignore_merges", "1", StatusCode::kInvalidArgument, "ignore_merges"},
      {"/model/byte_fallback", "true", StatusCode::kUnimplemented, "byte_fallback with ByteLevel"},
      {"/model/fuse_unk", "3", StatusCode::kInvalidArgument, "fuse_unk"},
      {"/added_tokens", "3", StatusCode::kInvalidArgument, "added_tokens"},
      {"/added_tokens/0", "3", StatusCode::kInvalidArgument, "added_tokens[0]"},
      {"/added_tokens/0/id", "5", StatusCode::kInvalidArgument, "same id 5"},
      {"/added_tokens/0/lstrip", "1", StatusCode::kInvalidArgument, "lstrip"},
      {"/added_tokens/0/normalized", "[]", StatusCode::kInvalidArgument, "normalized"},
      {"/normalizer/type", "\"NFKC\"", StatusCode::kUnimplemented, "NFKC"},
      {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Sequence",
        "normalizers": [{"type": "Lowercase"}]}]})",
       StatusCode::kUnimplemented, "Lowercase"},
      {"/decoder", R"({"type": "WordPiece"})", StatusCode::kUnimplemented, "the decoder"},
      {"/pre_tokenizer/type", "\"Whitespace\"", StatusCode::kUnimplemented, "Whitespace"},
      {"/pre_tokenizer/add_prefix_space", "true", StatusCode::kUnimplemented, "add_prefix_space"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "invert":
        false, "behavior": "Isolated", "pattern": {"Regex": "\\w+"}}, {"type": "ByteLevel",
        "add_prefix_space": false, "use_regex": false}]})",
       StatusCode::kUnimplemented, "the pre_tokenizer"},
      {"/post_processor/type", "\"BertProcessing\"", StatusCode::kUnimplemented, "BertProcessing"},
      {"/post_processor/single", "[]", StatusCode::kUnimplemented, "post_processor"},
      {"/post_processor/special_tokens/<s>/ids", "[999]", StatusCode::kInvalidArgument, "'<s>'"},
      {"/post_processor/special_tokens", "null", StatusCode::kInvalidArgument, "'<s>'"},
  };
  for (const Damage& damage : damages) {
    json root = Small();
    root[json::json_pointer(damage.pointer)] = json::parse(damage.value);
    const Status status = VocabularyFromHf({.tokenizer = root.dump()}).status();
    EXPECT_EQ(status.code(), damage.code) << damage.pointer << " " << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("tokenizer.json")) << damage.pointer;
    EXPECT_THAT(status.message(), HasSubstr(damage.message)) << damage.pointer;
  }
}

// A model over characters with Metaspace.
json Characters() {
  return json::parse(R"({
    "added_tokens": [{"id": 5, "content": "<x>", "special": true, "normalized": false}],
    "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                      "split": false},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "?", "fuse_unk": true, "merges": [["\u2581", "a"]],
              "vocab": {"?": 0, "\u2581": 1, "a": 2, "b": 3, "\u2581a": 4}}})");
}

TEST(HfTokenizer, ReadsAModelOverCharacters) {
  const Result<Vocabulary> v = VocabularyFromHf({.tokenizer = Characters().dump()});
  ASSERT_TRUE(v.ok()) << v.status().ToString();
  EXPECT_EQ(v->model, "llama");
  EXPECT_EQ(v->first_space, FirstSpace::kDropOne);
  ASSERT_TRUE(v->metaspace);
  EXPECT_EQ(v->metaspace->prefix, Metaspace::Prefix::kFirst);
  EXPECT_FALSE(v->metaspace->split);
  const auto tokenizer = Tokenizer::Create(*v);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT((*tokenizer)->Encode("a zz<x>a", {.parse_special = true}),
              ElementsAre(TokenId(4), TokenId(1), TokenId(0), TokenId(5), TokenId(2)));
}

TEST(HfTokenizer, RefusesStepsOverCharactersThatItDoesNotKnow) {
  const std::pair<const char*, const char*> damages[] = {
      {"/pre_tokenizer/prepend_scheme", "\"sometimes\""},
      {"/pre_tokenizer/replacement", "\"_\""},
      {"/pre_tokenizer/split", "3"},
      {"/pre_tokenizer/add_prefix_space", "false"},
      {"/pre_tokenizer", "null"},
      {"/pre_tokenizer", R"({"type": "Digits", "individual_digits": true})"},
      {"/normalizer", R"({"type": "Prepend", "prepend": "_"})"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": " "}, "content": "\u2581"})"},
      {"/normalizer", R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})"},
      {"/decoder/decoders/0/content", "\"_\""},
      {"/decoder/decoders/3/start", "2"},
      {"/decoder/decoders", "[]"},
      {"/decoder", R"({"type": "Metaspace", "replacement": "_"})"},
      {"/model/type", "\"Unigram\""},
  };
  for (const auto& [pointer, value] : damages) {
    json root = Characters();
    root[json::json_pointer(pointer)] = json::parse(value);
    const Status status = VocabularyFromHf({.tokenizer = root.dump()}).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << pointer << " " << status.ToString();
  }
  json root = Characters();
  root["decoder"]["decoders"].erase(1);
  EXPECT_TRUE(VocabularyFromHf({.tokenizer = root.dump()}).ok());
  root["model"]["byte_fallback"] = true;  // whose tokens would be shown as <0x0A>
  EXPECT_EQ(VocabularyFromHf({.tokenizer = root.dump()}).status().code(),
            StatusCode::kUnimplemented);
}

TEST(HfTokenizer, RefusesTextThatIsNoJson) {
  const std::string whole = Small().dump();
  const auto code = [](std::string_view text) {
    return VocabularyFromHf({.tokenizer = text}).status().code();
  };
  for (size_t cut = 0; cut < whole.size(); cut += 97) {
    EXPECT_EQ(code(std::string_view(whole).substr(0, cut)), StatusCode::kDataLoss) << cut;
  }
  EXPECT_EQ(code("{\"model\": \"\xFF\"}"), StatusCode::kDataLoss);
  EXPECT_EQ(code("{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}"), StatusCode::kDataLoss);
  EXPECT_EQ(code("[]"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(5'000'000, '[')), StatusCode::kOutOfRange);
}

// Files from which the fuzz target starts (tests/corpus/make_text_seeds.py).
TEST(HfTokenizer, DamagedFilesAreRefusedWithAMessage) {
  const std::set<std::string> sound = {"bytes",        "characters",        "holes",
                                       "metaspace",    "metaspace_decoder", "metaspace_old",
                                       "with_configs", "normalizer_nested"};
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/tests/corpus/hf_tokenizer_fuzz")) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    std::vector<std::string> parts = {""};
    for (const char c : all) {
      if (c == '\0') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    parts.resize(4);
    Result<Vocabulary> v = VocabularyFromHf({parts[0], parts[1], parts[2], parts[3]});
    const Status status = v.ok() ? Tokenizer::Create(std::move(*v)).status() : v.status();
    const std::string name = entry.path().filename();
    EXPECT_EQ(status.ok(), sound.count(name) == 1) << name << " " << status.ToString();
    EXPECT_TRUE(status.ok() || status.message().size() < 1000) << name;
    ++files;
  }
  EXPECT_GE(files, 30);
}

TEST(HfTokenizer, ConfigFilesAreCheckedToo) {
  const std::string tokenizer = Small().dump();
  const auto message = [&](std::string_view config, std::string_view generation) {
    return VocabularyFromHf({tokenizer, config, generation, ""}).status().message();
  };
  EXPECT_THAT(message("[", ""), HasSubstr("tokenizer_config.json"));
  EXPECT_THAT(message(R"({"eos_token": "<nope>"})", ""), HasSubstr("eos_token '<nope>'"));
  EXPECT_THAT(message(R"({"bos_token": 3})", ""), HasSubstr("bos_token"));
  EXPECT_THAT(message(R"({"chat_template": 3})", ""), HasSubstr("chat_template"));
  EXPECT_THAT(message(R"({"chat_template": [{"name": "a", "template": "x"},
                                            {"name": "b", "template": "y"}]})",
                      ""),
              HasSubstr("'default'"));
  EXPECT_THAT(message("", R"({"eos_token_id": 259})"), HasSubstr("eos_token_id 259"));
  EXPECT_THAT(message("", R"({"eos_token_id": [[1]]})"), HasSubstr("eos_token_id"));
}

}  // namespace
}  // namespace tandem
