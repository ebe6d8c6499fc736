// What: Tokenizer: text to token ids and token ids to bytes, for one vocabulary.
// Not here: joining decoded bytes into characters (detokenizer.h), chat templates
//   (chat_template.h).
// Threads: immutable after Create; every method from any thread.
// Cost: encoding is n log n at worst and near linear on ordinary text; no state grows with use.
//   Transient memory is about 50 bytes per byte of the longest piece between two borders of the
//   pre-tokeniser (for "llama", which has none, of the text).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/bpe.h"
#include "text/marked_text.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"
#include "text/token_index.h"
#include "text/vocab.h"

namespace tandem {

struct EncodeOptions {
  // Adds bos and eos where the vocabulary says so (Vocabulary::add_bos, add_eos).
  bool add_special = false;
  // Turns the text of control tokens ("<|im_end|>") into those tokens. Off: it is text like any
  // other, which is what users' words need. User-defined tokens are found in either case.
  bool parse_special = false;
};

class Tokenizer {
 public:
  // Checks `vocabulary` (ValidateVocabulary, merges that resolve). UNIMPLEMENTED names a model kind
  // or pre-tokeniser that is not supported; other errors say which entry is wrong.
  static Result<std::unique_ptr<Tokenizer>> Create(Vocabulary vocabulary);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Never fails. Damaged UTF-8 counts as U+FFFD, one for each maximal subpart, as if the bytes had
  // been decoded with replacement first. A byte for which the vocabulary has no token (SmolLM2's
  // has none for 21 of the 256, most of which no UTF-8 text contains) yields nothing, as in the
  // reference.
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const;
  // The same for text in which some bytes are data: with parse_special, control tokens count only
  // where they share no byte with those. This is how a prompt is encoded (chat_template.h), so that
  // no user's words become control tokens. In damaged UTF-8 all of it is data.
  std::vector<TokenId> Encode(const MarkedText& text, const EncodeOptions& options) const;

  // The bytes that a token stands for: not necessarily whole characters; empty for an id outside
  // the vocabulary. For control tokens their literal text.
  std::string_view TokenBytes(TokenId token) const;

  bool Contains(TokenId token) const {
    return token.value() >= 0 && static_cast<size_t>(token.value()) < vocab_size();
  }
  // A token that people should not see: control or unknown.
  bool IsControl(TokenId token) const;
  bool IsEndOfGeneration(TokenId token) const;
  // A control or user-defined token by its literal text.
  std::optional<TokenId> FindSpecial(std::string_view text) const;

  // What decoding does with blanks at the start of an answer ("llama" vocabularies put one there).
  FirstSpace first_space() const {
    return vocabulary_.first_space.value_or(vocabulary_.add_space_prefix ? FirstSpace::kDropOne
                                                                         : FirstSpace::kKeep);
  }

  size_t vocab_size() const { return vocabulary_.tokens.size(); }
  size_t max_token_bytes() const { return max_token_bytes_; }
  std::optional<TokenId> bos() const { return vocabulary_.bos; }
  std::optional<TokenId> eos() const { return vocabulary_.eos; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Tokenizer(Vocabulary vocabulary, std::optional<PreTokenizer> pretokenizer);

  Status Init();
  void InitTokens();
  // The bytes that a token of this stored text and type stands for.
  std::string DecodeStored(const std::string& text, TokenType type) const;
  bool is_byte_level() const { return pretokenizer_.has_value(); }

  // Where the encoded goes, and memory for the way.
  struct Sink {
    BpeMerger::Scratch scratch;
    std::vector<TokenId> tokens;
  };
  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options,
                              std::span<const ByteSpan> data) const;
  // text[begin, end), in which no token is found that stands for itself.
  void EncodeStretch(std::string_view text, size_t begin, size_t end,
                     const SpecialTokens::Control& control, Sink& sink) const;
  // Normalised text without special tokens; `at_start`: nothing stands before it.
  void EncodeText(std::string_view text, bool at_start, Sink& sink) const;
  void EncodeByteLevelPiece(std::string_view piece, Sink& sink) const;
  void EncodeMetaspace(std::string_view text, bool at_start, Sink& sink) const;
  void EncodeCharacters(std::string_view text, Sink& sink) const;
  std::string Normalize(std::string_view text) const;
  // text[begin, end) normalised, with the parts of `data` in it marked: as they are or, where they
  // melt with their neighbours, with those.
  MarkedText NormalizeMarked(std::string_view text, size_t begin, size_t end,
                             std::span<const ByteSpan> data) const;
  // Without add_space_prefix.
  std::string NormalizePart(std::string_view part) const;
  // A token that text can be encoded as without being its literal text.
  std::optional<TokenId> FindNormal(std::string_view stored) const;

  const Vocabulary vocabulary_;
  // Of byte-level BPE; none for "llama".
  const std::optional<PreTokenizer> pretokenizer_;
  TokenIndex index_;
  BpeMerger merger_;
  // Words that stand for themselves, and those that are looked for in normalised text.
  SpecialTokens special_;
  SpecialTokens normalized_special_;
  std::vector<TokenId> end_tokens_;
  std::vector<bool> is_normal_;
  // Token of each single byte, -1 where there is none.
  std::array<int32_t, 256> byte_tokens_{};
  // Decoded bytes of token t: bytes_[byte_offsets_[t] .. byte_offsets_[t + 1]).
  std::string bytes_;
  std::vector<size_t> byte_offsets_;
  size_t max_token_bytes_ = 0;
};

}  // namespace tandem
