// Any bytes as text: encoding and decoding give them back (with damaged UTF-8 replaced), and
// streams do not depend on how they are cut.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/nfc.h"
#include "text/stop_strings.h"
#include "text/testing/tiny_vocabulary.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using namespace tandem;  // NOLINT(google-build-using-namespace)

// One for each kind of pre-tokeniser.
const std::vector<std::unique_ptr<Tokenizer>>& Tokenizers() {
  static const auto* const kTokenizers = [] {
    auto* const all = new std::vector<std::unique_ptr<Tokenizer>>;
    for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2", "default"}) {
      all->push_back(Tokenizer::Create(testing::TinyVocabulary(pre)).value());
    }
    return all;
  }();
  return *kTokenizers;
}

void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  const std::string expected = ReplaceInvalidUtf8(text);
  IncrementalDetokenizer detokenizer(tokenizer);
  std::string decoded;
  for (const TokenId id : tokenizer.Encode(text, {.parse_special = parse_special})) {
    const std::string piece = detokenizer.Append(id, /*skip_special=*/false);
    TANDEM_CHECK(IsValidUtf8(piece));
    decoded += piece;
  }
  decoded += detokenizer.Flush();
  TANDEM_CHECK(decoded == expected);
}

// Feeds `text` in pieces of `step` bytes and returns all that comes out.
template <typename Stream>
std::string Feed(Stream stream, std::string_view text, size_t step) {
  std::string out;
  for (size_t pos = 0; pos < text.size(); pos += step) out += stream.Append(text.substr(pos, step));
  return out + stream.Flush();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : Tokenizers()) {
    CheckRoundTrip(*tokenizer, text, false);
    CheckRoundTrip(*tokenizer, text, true);
    // Text that is all data has no control tokens.
    const auto tokens =
        tokenizer->Encode(MarkedText::FromData(std::string(text)), {.parse_special = true});
    for (const TokenId token : tokens) TANDEM_CHECK(!tokenizer->IsControl(token));
  }
  const std::string composed = NormalizeNfc(ReplaceInvalidUtf8(text));
  TANDEM_CHECK(IsValidUtf8(composed));
  TANDEM_CHECK(NormalizeNfc(composed) == composed);
  // The first bytes choose the cuts and the stop strings.
  if (size < 4) return 0;
  const size_t step = 1 + data[0] % 7;
  const std::string_view rest = text.substr(4);
  TANDEM_CHECK(Feed(Utf8Assembler(), rest, step) == ReplaceInvalidUtf8(rest));
  const size_t first = 1 + data[1] % 6;
  const auto stops =
      StopMatcher::Create({ReplaceInvalidUtf8(rest.substr(rest.size() / 2, first)) + "b", "ab",
                           std::string(1 + data[2] % 9, 'a') + static_cast<char>(data[3] & 0x7F)});
  TANDEM_CHECK(stops.ok());
  TANDEM_CHECK(Feed(*stops, rest, step) == Feed(*stops, rest, rest.size() + 1));
  return 0;
}
