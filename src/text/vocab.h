// What: Vocabulary: everything a model file says about its tokens, as a plain value that a loader
//   fills in.
// Not here: reading files (module `model`), encoding and decoding (tokenizer.h).
// Threads: a value.
// Invariants: none until ValidateVocabulary() says OK; what it checks is listed there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tandem {

// The numbers are those of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // meant for the model, not for people: <|im_end|>
  kUserDefined = 4,  // kept whole wherever it stands in a text, and shown: <think>
  kUnused = 5,       // a place holder; never produced by encoding
  kByte = 6,         // "<0x0A>": one raw byte (SentencePiece)
};

// OUT_OF_RANGE for a number that names no type.
Result<TokenType> TokenTypeFromInt(int64_t value);

// How a control or user-defined token is found in a text, where that is not simply its own text,
// wherever it stands. In the words of Hugging Face's added tokens.
struct LiteralRule {
  TokenId token;
  // Not inside of a word: neither neighbour is a letter, mark, digit or underscore.
  bool single_word = false;
  // White space before (behind) it belongs to it.
  bool lstrip = false;
  bool rstrip = false;
  // Looked for after the tokens without this mark, in what normalisation makes of the text between
  // them, where its own text is normalised too.
  bool normalized = false;
  // Of a user-defined token: the model has it as a normal token too, so that merging may give it
  // where these rules do not find it.
  bool in_model = false;
};

// Hugging Face's Metaspace: blanks are written as U+2581 piece by piece, not by a normaliser.
struct Metaspace {
  enum class Prefix : uint8_t { kNever, kFirst, kAlways };
  // Which stretches of text between special tokens get a blank in front, if they do not begin with
  // one: none, the one at the very start of a text, all.
  Prefix prefix = Prefix::kAlways;
  // Merges do not cross a blank: every one begins a piece.
  bool split = true;
};

// What decoding does with blanks at the start of an answer.
enum class FirstSpace : uint8_t {
  kKeep,
  kDropOne,  // of the text
  kDropAll,  // all blanks of the first token
};

struct Vocabulary {
  // Family of the algorithm, in GGUF's words: "gpt2" is byte-level BPE; "llama" is SentencePiece's
  // BPE over characters, a blank written as U+2581, by `merges` or, without those, by `scores`.
  std::string model;
  // Name of the pre-tokeniser, in GGUF's words: "smollm".
  std::string pre;
  // Index = token id. Stored text: for "gpt2", normal tokens are written in the byte-level alphabet
  // (byte_level.h), control and user-defined ones literally.
  std::vector<std::string> tokens;
  // One per token, or empty: all normal.
  std::vector<TokenType> types;
  // One per token, or empty; higher scores merge first.
  std::vector<float> scores;
  // "left right" in stored text; the index is the rank, low ranks merge first.
  std::vector<std::string> merges;

  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> unknown;
  std::optional<TokenId> padding;
  // Tokens besides `eos` that end an answer (end of turn, end of message).
  std::vector<TokenId> more_end_tokens;
  // Whether encoding with `add_special` puts `bos` first and `eos` last.
  bool add_bos = false;
  bool add_eos = false;
  // A piece of the pre-tokeniser that is a token as a whole becomes that token, whatever the
  // merges.
  bool ignore_merges = false;
  // Text is brought into Unicode's normal form C first.
  bool normalize_nfc = false;
  // "llama" only: a blank is put before each stretch of text.
  bool add_space_prefix = false;
  // "llama" only; excludes add_space_prefix.
  std::optional<Metaspace> metaspace;
  // None: kDropOne with add_space_prefix, else kKeep.
  std::optional<FirstSpace> first_space;
  // Neighbouring characters that are no tokens make one unknown token together.
  bool fuse_unknown = false;
  // At most one for a token.
  std::vector<LiteralRule> literal_rules;
  // Jinja source; empty where the model has none.
  std::string chat_template;

  TokenType type(size_t token) const { return types.empty() ? TokenType::kNormal : types[token]; }
};

// Entries of a vocabulary; the largest public ones have about 262 thousand.
inline constexpr size_t kMaxVocabSize = size_t{1} << 22;
inline constexpr size_t kMaxMerges = size_t{1} << 23;
// Stored bytes of one token; the longest public ones have a few hundred (runs of spaces).
inline constexpr size_t kMaxTokenBytes = size_t{1} << 14;
// Stored bytes of one control or user-defined token. Every position of a text may be compared with
// that many bytes, so this bounds the cost of a hostile vocabulary.
inline constexpr size_t kMaxSpecialTokenBytes = 512;
// Stored bytes of all control and user-defined tokens together; their trie takes about 50 times as
// much.
inline constexpr size_t kMaxSpecialBytes = size_t{1} << 20;

// Sets what GGUF leaves to the names of model and pre-tokeniser, as its readers know them:
//   llama-bpe, llama3   ignore_merges; add_bos
//   qwen2 and the like  normalize_nfc: those models' own tokenizer.json says so, and their training
//                       text was normalised, though other GGUF readers omit it
//   model "llama"       add_space_prefix; add_bos
// To be called before the file's own keys are read, which may then overrule.
void ApplyGgufConventions(Vocabulary& vocabulary);

// What holds for every kind of vocabulary: at least one token, sizes within the limits above,
// tokens not empty and all different, parallel arrays of equal length, ids inside the vocabulary, a
// bos (eos) where add_bos (add_eos) wants one. INVALID_ARGUMENT or OUT_OF_RANGE otherwise, naming
// the entry. Merges are checked where they are resolved (bpe.h). Does not modify. Cost: n log n in
// tokens.
Status ValidateVocabulary(const Vocabulary& vocabulary);

}  // namespace tandem
