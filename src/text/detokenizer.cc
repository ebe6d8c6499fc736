#include "text/detokenizer.h"

#include <utility>

#include "text/unicode.h"

namespace tandem {

std::string Utf8Assembler::Append(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  size_t pos = 0;
  while (pos < pending_.size()) {
    const DecodedChar c = DecodeChar(pending_, pos);
    if (c.truncated) break;
    if (c.valid) {
      out.append(pending_, pos, c.size);
    } else {
      AppendChar(out, kReplacementCharacter);
    }
    pos += c.size;
  }
  pending_.erase(0, pos);
  return out;
}

std::string Utf8Assembler::Flush() {
  return ReplaceInvalidUtf8(std::exchange(pending_, {}));
}

std::string IncrementalDetokenizer::Append(TokenId token, bool skip_special) {
  if (skip_special && tokenizer_->IsControl(token)) return {};
  return assembler_.Append(tokenizer_->TokenBytes(token));
}

}  // namespace tandem
