#include "text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "text/byte_level.h"
#include "text/nfc.h"
#include "text/unicode.h"

namespace tandem {
namespace {

// BPE counts positions in 32 bits. A longer stretch without any border of the pre-tokeniser is cut
// here.
constexpr size_t kMaxPieceBytes = size_t{1} << 30;

// U+2581, how SentencePiece writes a blank.
constexpr std::string_view kBlank = "\xE2\x96\x81";

bool IsLiteral(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

// `text` with `to` in place of every `from`.
std::string Replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, begin)) {
    out += text.substr(begin, at - begin);
    out += to;
    begin = at + from.size();
  }
  return out += text.substr(begin);
}

// The value of "<0x0A>", a token of type kByte.
std::optional<uint8_t> ByteTokenValue(std::string_view stored) {
  uint8_t value = 0;
  if (stored.size() != 6 || !stored.starts_with("<0x") || stored[5] != '>') return std::nullopt;
  const auto parsed = std::from_chars(stored.data() + 3, stored.data() + 5, value, 16);
  if (parsed.ec != std::errc() || parsed.ptr != stored.data() + 5) return std::nullopt;
  return value;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(Vocabulary vocabulary) {
  std::optional<PreTokenizer> pretokenizer;
  if (vocabulary.model == "gpt2") {
    TANDEM_ASSIGN_OR_RETURN(pretokenizer, PreTokenizer::ForName(vocabulary.pre));
  } else if (vocabulary.model != "llama") {
    return UnimplementedError("tokenizer model '{}' is not supported (known: gpt2, llama)",
                              vocabulary.model.substr(0, 64));
  }
  TANDEM_RETURN_IF_ERROR(ValidateVocabulary(vocabulary));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(vocabulary), pretokenizer));
  TANDEM_RETURN_IF_ERROR(tokenizer->Init());
  return tokenizer;
}

Tokenizer::Tokenizer(Vocabulary vocabulary, std::optional<PreTokenizer> pretokenizer)
    : vocabulary_(std::move(vocabulary)), pretokenizer_(pretokenizer), index_(vocabulary_.tokens) {}

Status Tokenizer::Init() {
  if (!is_byte_level() && vocabulary_.merges.empty()) {
    if (vocabulary_.scores.empty()) {
      return InvalidArgumentError("vocabulary: model 'llama' needs scores or merges");
    }
    TANDEM_ASSIGN_OR_RETURN(merger_, BpeMerger::CreateFromScores(vocabulary_, index_));
  } else {
    TANDEM_ASSIGN_OR_RETURN(merger_, BpeMerger::Create(vocabulary_.merges, index_, vocab_size()));
  }
  for (size_t i = 0; i < vocab_size(); ++i) {
    if (vocabulary_.type(i) == TokenType::kByte && !ByteTokenValue(vocabulary_.tokens[i])) {
      return InvalidArgumentError("vocabulary: token {} is of type byte, but not written <0xNN>",
                                  i);
    }
  }
  InitTokens();
  end_tokens_ = vocabulary_.more_end_tokens;
  if (vocabulary_.eos) end_tokens_.push_back(*vocabulary_.eos);
  std::sort(end_tokens_.begin(), end_tokens_.end());
  return OkStatus();
}

void Tokenizer::InitTokens() {
  std::vector<SpecialTokens::Word> special;
  byte_tokens_.fill(-1);
  byte_offsets_.reserve(vocab_size() + 1);
  byte_offsets_.push_back(0);
  for (size_t i = 0; i < vocab_size(); ++i) {
    const std::string& text = vocabulary_.tokens[i];
    const TokenType type = vocabulary_.type(i);
    const TokenId id(static_cast<int32_t>(i));
    if (type == TokenType::kUserDefined || type == TokenType::kControl) {
      special.push_back({text, id, type == TokenType::kControl});
    }
    if (type == TokenType::kByte) byte_tokens_[*ByteTokenValue(text)] = id.value();
    bytes_ += DecodeStored(text, type);
    byte_offsets_.push_back(bytes_.size());
    max_token_bytes_ = std::max(max_token_bytes_, TokenBytes(id).size());
  }
  special_ = SpecialTokens(std::move(special));
  if (!is_byte_level()) return;
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const auto id = index_.Find(EncodeByteLevel(std::string_view(&byte, 1)));
    byte_tokens_[b] = id ? id->value() : -1;
  }
}

std::string Tokenizer::DecodeStored(const std::string& text, TokenType type) const {
  if (type == TokenType::kByte) return std::string(1, static_cast<char>(*ByteTokenValue(text)));
  if (IsLiteral(type)) return text;
  if (!is_byte_level()) return Replace(text, kBlank, " ");
  // A text outside the alphabet stands for itself, as in the reference's decoder.
  return DecodeByteLevel(text).value_or(text);
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  return Encode(text, options, {});
}

std::vector<TokenId> Tokenizer::Encode(const MarkedText& text, const EncodeOptions& options) const {
  if (IsValidUtf8(text.text())) return Encode(text.text(), options, text.data());
  return Encode(text.text(), {.add_special = options.add_special, .parse_special = false}, {});
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, const EncodeOptions& options,
                                       std::span<const ByteSpan> data) const {
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ReplaceInvalidUtf8(text);
    text = repaired;
  }
  std::vector<TokenId> out;
  out.reserve(text.size() / 4 + 2);
  if (options.add_special && vocabulary_.add_bos) out.push_back(*vocabulary_.bos);
  SpecialTokens::Control control{options.parse_special, data};
  BpeMerger::Scratch scratch;
  size_t pos = 0;
  while (const auto match = special_.FindNext(text, pos, control)) {
    EncodeText(text.substr(pos, match->begin - pos), scratch, out);
    out.push_back(match->token);
    pos = match->end;
    while (!control.data.empty() && control.data.front().end <= pos) {
      control.data = control.data.subspan(1);
    }
  }
  EncodeText(text.substr(pos), scratch, out);
  if (options.add_special && vocabulary_.add_eos) out.push_back(*vocabulary_.eos);
  return out;
}

void Tokenizer::EncodeText(std::string_view text, BpeMerger::Scratch& scratch,
                           std::vector<TokenId>& out) const {
  std::string normalized;
  if (vocabulary_.normalize_nfc && !IsTriviallyNfc(text)) {
    normalized = NormalizeNfc(text);
    text = normalized;
  }
  if (!is_byte_level()) return EncodeCharacters(text, scratch, out);
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pretokenizer_->NextPieceEnd(text, pos);
    while (pos < end) {
      const std::string_view piece = text.substr(pos, std::min(end - pos, kMaxPieceBytes));
      EncodeByteLevelPiece(piece, scratch, out);
      pos += piece.size();
    }
  }
}

void Tokenizer::EncodeByteLevelPiece(std::string_view piece, BpeMerger::Scratch& scratch,
                                     std::vector<TokenId>& out) const {
  if (vocabulary_.ignore_merges && piece.size() <= max_token_bytes_) {
    if (const auto whole = FindNormal(EncodeByteLevel(piece))) return out.push_back(*whole);
  }
  scratch.symbols.clear();
  for (const char c : piece) {
    const int32_t token = byte_tokens_[static_cast<uint8_t>(c)];
    if (token >= 0) scratch.symbols.push_back(token);
  }
  merger_.Merge(scratch, out);
}

// Characters that are tokens stand for themselves, others for their bytes, and where the vocabulary
// has no bytes for the unknown token.
void Tokenizer::EncodeCharacters(std::string_view text, BpeMerger::Scratch& scratch,
                                 std::vector<TokenId>& out) const {
  if (text.empty()) return;
  std::string blanked = Replace(text, " ", kBlank);
  if (vocabulary_.add_space_prefix) blanked.insert(0, kBlank);
  scratch.symbols.clear();
  for (size_t pos = 0; pos < blanked.size();) {
    const size_t size = DecodeChar(blanked, pos).size;
    const std::string_view character = std::string_view(blanked).substr(pos, size);
    pos += size;
    if (const auto token = FindNormal(character)) {
      scratch.symbols.push_back(token->value());
    } else if (std::all_of(character.begin(), character.end(),
                           [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; })) {
      for (const char c : character) {
        scratch.symbols.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
      }
    } else if (vocabulary_.unknown) {
      scratch.symbols.push_back(vocabulary_.unknown->value());
    }
    if (scratch.symbols.size() >= kMaxPieceBytes) {
      merger_.Merge(scratch, out);
      scratch.symbols.clear();
    }
  }
  merger_.Merge(scratch, out);
}

std::optional<TokenId> Tokenizer::FindNormal(std::string_view stored) const {
  const auto id = index_.Find(stored);
  if (!id || vocabulary_.type(static_cast<size_t>(id->value())) != TokenType::kNormal) {
    return std::nullopt;
  }
  return id;
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
