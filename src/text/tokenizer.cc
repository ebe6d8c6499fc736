#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace tandem {
namespace {

// BPE counts positions in 32 bits. A longer stretch without any border of the pre-tokeniser is cut
// here.
constexpr size_t kMaxPieceBytes = size_t{1} << 30;

bool IsLiteral(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(Vocabulary vocabulary) {
  if (vocabulary.model != "gpt2") {
    return UnimplementedError("tokenizer model '{}' is not supported (known: gpt2)",
                              vocabulary.model.substr(0, 64));
  }
  Result<PreTokenizer> pretokenizer = PreTokenizer::ForName(vocabulary.pre);
  if (!pretokenizer.ok()) return pretokenizer.status();
  if (Status s = ValidateVocabulary(vocabulary); !s.ok()) return s;
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(vocabulary), *pretokenizer));
  if (Status s = tokenizer->Init(); !s.ok()) return s;
  return tokenizer;
}

Tokenizer::Tokenizer(Vocabulary vocabulary, PreTokenizer pretokenizer)
    : vocabulary_(std::move(vocabulary)), pretokenizer_(pretokenizer), index_(vocabulary_.tokens) {}

Status Tokenizer::Init() {
  Result<BpeMerger> merger = BpeMerger::Create(vocabulary_.merges, index_, vocab_size());
  if (!merger.ok()) return merger.status();
  merger_ = std::move(*merger);

  std::vector<std::pair<std::string_view, TokenId>> user_defined;
  std::vector<std::pair<std::string_view, TokenId>> all_special;
  byte_offsets_.reserve(vocab_size() + 1);
  byte_offsets_.push_back(0);
  for (size_t i = 0; i < vocab_size(); ++i) {
    const std::string& text = vocabulary_.tokens[i];
    const TokenType type = vocabulary_.type(i);
    const TokenId id(static_cast<int32_t>(i));
    if (type == TokenType::kUserDefined) user_defined.emplace_back(text, id);
    if (type == TokenType::kUserDefined || type == TokenType::kControl) {
      all_special.emplace_back(text, id);
    }
    // A text outside the alphabet stands for itself, as in the reference's decoder.
    const std::optional<std::string> decoded =
        IsLiteral(type) ? std::nullopt : DecodeByteLevel(text);
    bytes_ += decoded ? *decoded : text;
    byte_offsets_.push_back(bytes_.size());
    max_token_bytes_ = std::max(max_token_bytes_, TokenBytes(id).size());
  }
  user_defined_ = SpecialTokens(std::move(user_defined));
  all_special_ = SpecialTokens(std::move(all_special));

  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto id = index_.Find(EncodeByteLevel(std::string_view(&byte, 1)));
    byte_tokens_[b] = id ? id->value() : -1;
  }
  end_tokens_ = vocabulary_.more_end_tokens;
  if (vocabulary_.eos) end_tokens_.push_back(*vocabulary_.eos);
  std::sort(end_tokens_.begin(), end_tokens_.end());
  return OkStatus();
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ReplaceInvalidUtf8(text);
    text = repaired;
  }
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 2);
  if (options.add_special && vocabulary_.add_bos) out.push_back(*vocabulary_.bos);
  const SpecialTokens& special = options.parse_special ? all_special_ : user_defined_;
  BpeMerger::Scratch scratch;
  size_t pos = 0;
  while (const auto match = special.FindNext(text, pos)) {
    EncodeText(text.substr(pos, match->begin - pos), scratch, out);
    out.push_back(match->token);
    pos = match->end;
  }
  EncodeText(text.substr(pos), scratch, out);
  if (options.add_special && vocabulary_.add_eos) out.push_back(*vocabulary_.eos);
  return out;
}

void Tokenizer::EncodeText(std::string_view text, BpeMerger::Scratch& scratch,
                           std::vector<TokenId>& out) const {
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pretokenizer_.NextPieceEnd(text, pos);
    while (pos < end) {
      const std::string_view piece = text.substr(pos, std::min(end - pos, kMaxPieceBytes));
      scratch.symbols.clear();
      for (const char c : piece) {
        const int32_t token = byte_tokens_[static_cast<uint8_t>(c)];
        if (token >= 0) scratch.symbols.push_back(token);
      }
      merger_.Merge(scratch, out);
      pos += piece.size();
    }
  }
}

std::string_view Tokenizer::TokenBytes(TokenId token) const {
  if (!Contains(token)) return {};
  const size_t begin = byte_offsets_[token.value()];
  return std::string_view(bytes_).substr(begin, byte_offsets_[token.value() + 1] - begin);
}

bool Tokenizer::IsControl(TokenId token) const {
  if (!Contains(token)) return false;
  const TokenType type = vocabulary_.type(token.value());
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(TokenId token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

std::optional<TokenId> Tokenizer::FindSpecial(std::string_view text) const {
  const std::optional<TokenId> id = index_.Find(text);
  if (!id) return std::nullopt;
  const TokenType type = vocabulary_.type(id->value());
  if (type != TokenType::kControl && type != TokenType::kUserDefined) return std::nullopt;
  return id;
}

}  // namespace tandem
