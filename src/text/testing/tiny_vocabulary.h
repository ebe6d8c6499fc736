// What: a small byte-level BPE vocabulary for tests and fuzz targets: all bytes, some merges,
//   special tokens.
// Not here: any model's real vocabulary.
// Threads: pure function.
#pragma once

#include <string>
#include <string_view>

#include "text/byte_level.h"
#include "text/vocab.h"

namespace tandem::testing {

// Ids: 0 "<|end|>" (control), 1 "<|start|>" (control), 2 "<think>" (user-defined), 3 + b: byte b,
// then one token for each merge in order.
inline Vocabulary TinyVocabulary(std::string_view pre = "smollm") {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = pre;
  const auto add = [&v](std::string text, TokenType type) {
    v.tokens.push_back(std::move(text));
    v.types.push_back(type);
  };
  add("<|end|>", TokenType::kControl);
  add("<|start|>", TokenType::kControl);
  add("<think>", TokenType::kUserDefined);
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    add(EncodeByteLevel(std::string_view(&byte, 1)), TokenType::kNormal);
  }
  // Written with "_" for a space, as bytes; two tokens with a blank between.
  for (const std::string_view merge :
       {"h e", "l l", "he ll", "hell o", "_ w", "o r", "_w or", "l d", "_wor ld", "a a", "aa aa",
        "aaaa aaaa", "_ _", "__ __", "_ a", "\n \n", "\xCC \x81", "\xE4\xB8 \xAD", "\xE4 \xB8"}) {
    const size_t blank = merge.find(' ');
    const auto stored = [](std::string_view part) {
      std::string bytes(part);
      for (char& c : bytes) c = c == '_' ? ' ' : c;
      return EncodeByteLevel(bytes);
    };
    const std::string left = stored(merge.substr(0, blank));
    const std::string right = stored(merge.substr(blank + 1));
    add(left + right, TokenType::kNormal);
    v.merges.push_back(left + " " + right);
  }
  v.bos = TokenId(1);
  v.eos = TokenId(0);
  return v;
}

}  // namespace tandem::testing
