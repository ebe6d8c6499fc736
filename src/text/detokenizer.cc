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

std::string Utf8Assembler::Flush() { return ReplaceInvalidUtf8(std::exchange(pending_, {})); }

std::string IncrementalDetokenizer::Append(TokenId token, bool skip_special) {
  if (skip_special && tokenizer_->IsControl(token)) return {};
  std::string_view bytes = tokenizer_->TokenBytes(token);
  if (bytes.empty() || !std::exchange(at_start_, false)) return assembler_.Append(bytes);
  if (tokenizer_->first_space() == FirstSpace::kDropAll) {
    std::string dense(bytes);
    std::erase(dense, ' ');
    return assembler_.Append(dense);
  }
  if (tokenizer_->first_space() == FirstSpace::kDropOne && bytes.front() == ' ') {
    bytes.remove_prefix(1);
  }
  return assembler_.Append(bytes);
}

std::string IncrementalDetokenizer::Flush() {
  at_start_ = true;
  return assembler_.Flush();
}

}  // namespace tandem
