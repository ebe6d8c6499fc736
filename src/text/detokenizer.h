// What: IncrementalDetokenizer: a stream of tokens to a stream of whole UTF-8 characters.
// Not here: what ends a stream (stop_strings.h, Tokenizer::IsEndOfGeneration).
// Threads: belongs to one thread; the Tokenizer may be shared.
// Invariants: the concatenation of all returned texts equals decoding all the tokens' bytes at once
//   with damaged sequences replaced by U+FFFD (ReplaceInvalidUtf8), however the tokens cut the
//   characters.
//   A vocabulary that puts a blank before its text has that one taken off
//   (Tokenizer::first_space).
// Cost: holds back at most 3 bytes.
#pragma once

#include <string>
#include <string_view>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace tandem {

// The same for raw bytes.
class Utf8Assembler {
 public:
  // The text that `bytes` completes; valid UTF-8, possibly empty.
  std::string Append(std::string_view bytes);
  // At the end of the stream: U+FFFD for a character that was never completed. Ready for a new
  // stream.
  std::string Flush();
  // Bytes of a character that is not complete yet, 0 to 3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  std::string pending_;
};

class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive this object.
  explicit IncrementalDetokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // The text that `token` completes. With `skip_special` a control token counts as absent: a
  // character may continue behind it. An id outside the vocabulary adds nothing.
  std::string Append(TokenId token, bool skip_special);
  // At the end of the stream: U+FFFD for a character that was never completed. Ready for a new
  // stream.
  std::string Flush();
  size_t pending_bytes() const { return assembler_.pending_bytes(); }

 private:
  const Tokenizer* tokenizer_;
  Utf8Assembler assembler_;
  bool at_start_ = true;
};

}  // namespace tandem
