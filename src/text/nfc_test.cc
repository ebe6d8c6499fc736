#include "text/nfc.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "text/testing/tiny_vocabulary.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace tandem {
namespace {

TEST(Nfc, ComposesAndOrders) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"caf\u00E9", "caf\u00E9"},
      {"cafe\u0301", "caf\u00E9"},
      {"A\u030A\u212B", "\u00C5\u00C5"},
      {"q\u0307\u0323", "q\u0323\u0307"},  // marks in order of class
      {"d\u0307\u0323", "\u1E0D\u0307"},   // the lower one composes first
      {"\u1E0B\u0323", "\u1E0D\u0307"},    // across a composed letter
      {"\u0301e", "\u0301e"},              // a mark without a letter
      {"\u0344", "\u0308\u0301"},          // decomposes for good
      {"\u0958", "\u0915\u093C"},          // excluded from composition
      {"\u1112\u1161\u11AB", "\uD55C"},    // Hangul
      {"\uAC00\u11A8", "\uAC01"},
      {"\u0F71\u0F72", "\u0F71\u0F72"},
      {"a\u0315\u0300\u05AE\u0062", "\u00E0\u05AE\u0315b"},
      {"\U0001D15E", "\U0001D157\U0001D165"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(NormalizeNfc(text), expected) << text;
}

TEST(Nfc, IsIdempotent) {
  for (char32_t code = 0x20; code < 0x30000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text = "a";
    AppendChar(text, code);
    AppendChar(text, 0x301);
    const std::string once = NormalizeNfc(text);
    ASSERT_EQ(NormalizeNfc(once), once) << static_cast<uint32_t>(code);
  }
}

TEST(Nfc, TokenizersApplyItBetweenSpecialTokens) {
  Vocabulary v = testing::TinyVocabulary("qwen2");
  ApplyGgufConventions(v);
  ASSERT_TRUE(v.normalize_nfc);
  const auto tokenizer = Tokenizer::Create(v).value();
  EXPECT_EQ(tokenizer->Encode("e\u0301", {}), tokenizer->Encode("\u00E9", {}));
  // The mark does not reach into the token before it.
  const auto tokens = tokenizer->Encode("<think>\u0338", {});
  ASSERT_FALSE(tokens.empty());
  EXPECT_EQ(tokenizer->TokenBytes(tokens[0]), "<think>");
}

// A megabyte that makes a naive ordering of marks, or a naive scan, quadratic.
TEST(Nfc, HostileTextIsLinear) {
  std::string falling;  // classes 230 and 220 in turns: every pair is out of order
  std::string rising = "a";
  while (falling.size() < (1u << 18)) falling += "\u0301\u0323";
  while (rising.size() < (1u << 18)) rising += "\u0323";
  for (const char* pre : {"qwen2", "llama-bpe", "default", "gpt-2", "smollm"}) {
    Vocabulary v = testing::TinyVocabulary(pre);
    v.normalize_nfc = true;
    const auto tokenizer = Tokenizer::Create(v).value();
    for (const std::string& text :
         {falling, rising, std::string(1 << 18, 'a'), std::string(1 << 18, ' '),
          std::string(1 << 18, '\n'), std::string(1 << 18, '1'), std::string(1 << 18, '!'),
          std::string(1 << 18, '\'')}) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_FALSE(tokenizer->Encode(text, {}).empty());
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      EXPECT_LT(taken.count(), 20) << pre << " " << text.substr(0, 4);  // quadratic: minutes
    }
  }
}

}  // namespace
}  // namespace tandem
