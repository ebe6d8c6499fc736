// Any bytes as tokenizer.json (and, behind a NUL, as the other files): an error or a tokenizer that
// gives texts back.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"

namespace {

constexpr std::string_view kText = "Hello 123 \xC3\xA9\xCC\x81 <|x|>\n\n  don't";

std::string_view TakePart(std::string_view* rest) {
  const std::string_view part = rest->substr(0, rest->find('\0'));
  rest->remove_prefix(std::min(part.size() + 1, rest->size()));
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  tandem::HfTokenizerFiles files;
  files.tokenizer = TakePart(&rest);
  files.config = TakePart(&rest);
  files.generation_config = TakePart(&rest);
  files.chat_template = rest;
  auto vocabulary = tandem::VocabularyFromHf(files);
  if (!vocabulary.ok()) return 0;
  const auto tokenizer = tandem::Tokenizer::Create(std::move(*vocabulary));
  if (!tokenizer.ok()) return 0;
  for (const bool special : {false, true}) {
    const auto tokens =
        (*tokenizer)->Encode(kText, {.add_special = special, .parse_special = special});
    for (const tandem::TokenId token : tokens) TANDEM_CHECK((*tokenizer)->Contains(token));
  }
  return 0;
}
