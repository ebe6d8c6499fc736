#include "text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <deque>
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
  std::vector<LiteralRule> rules = vocabulary_.literal_rules;
  std::sort(rules.begin(), rules.end(),
            [](const LiteralRule& a, const LiteralRule& b) { return a.token < b.token; });
  auto rule = rules.begin();
  std::vector<SpecialTokens::Word> special;
  std::vector<SpecialTokens::Word> normalized;
  std::deque<std::string> normalized_texts;  // whose strings do not move
  byte_tokens_.fill(-1);
  is_normal_.resize(vocab_size());
  byte_offsets_.reserve(vocab_size() + 1);
  byte_offsets_.push_back(0);
  for (size_t i = 0; i < vocab_size(); ++i) {
    const std::string& text = vocabulary_.tokens[i];
    const TokenType type = vocabulary_.type(i);
    const TokenId id(static_cast<int32_t>(i));
    std::string bytes = DecodeStored(text, type);
    is_normal_[i] = type == TokenType::kNormal;
    if (type == TokenType::kUserDefined || type == TokenType::kControl) {
      while (rule != rules.end() && rule->token < id) ++rule;
      const bool ruled = rule != rules.end() && rule->token == id;
      const LiteralRule r = ruled ? *rule : LiteralRule{};
      SpecialTokens::Word word{text,          id,       type == TokenType::kControl,
                               r.single_word, r.lstrip, r.rstrip};
      is_normal_[i] = r.in_model && type == TokenType::kUserDefined;
      if (r.normalized) {
        word.text = normalized_texts.emplace_back(Normalize(text));
        bytes = is_byte_level() ? word.text : Replace(word.text, kBlank, " ");
      }
      (r.normalized ? normalized : special).push_back(word);
    }
    if (type == TokenType::kByte) byte_tokens_[*ByteTokenValue(text)] = id.value();
    bytes_ += bytes;
    byte_offsets_.push_back(bytes_.size());
    max_token_bytes_ = std::max(max_token_bytes_, bytes.size());
  }
  special_ = SpecialTokens(std::move(special));
  normalized_special_ = SpecialTokens(std::move(normalized));
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
  Sink sink;
  sink.tokens.reserve(text.size() / 4 + 2);
  if (options.add_special && vocabulary_.add_bos) sink.tokens.push_back(*vocabulary_.bos);
  const SpecialTokens::Control control{options.parse_special, data};
  SpecialTokens::Finder finder(special_, text, control);
  size_t pos = 0;
  while (const auto match = finder.Next()) {
    EncodeStretch(text, pos, match->begin, control, sink);
    sink.tokens.push_back(match->token);
    pos = match->end;
  }
  EncodeStretch(text, pos, text.size(), control, sink);
  if (options.add_special && vocabulary_.add_eos) sink.tokens.push_back(*vocabulary_.eos);
  return std::move(sink.tokens);
}

void Tokenizer::EncodeStretch(std::string_view text, size_t begin, size_t end,
                              const SpecialTokens::Control& control, Sink& sink) const {
  if (begin >= end) return;
  if (normalized_special_.empty()) {
    return EncodeText(Normalize(text.substr(begin, end - begin)), begin == 0, sink);
  }
  const MarkedText normalized = NormalizeMarked(
      text, begin, end, control.allowed ? control.data : std::span<const ByteSpan>());
  const std::string_view stretch = normalized.text();
  SpecialTokens::Finder finder(normalized_special_, stretch, {control.allowed, normalized.data()});
  size_t pos = 0;
  while (const auto match = finder.Next()) {
    if (pos < match->begin) {
      EncodeText(stretch.substr(pos, match->begin - pos), begin == 0 && pos == 0, sink);
    }
    sink.tokens.push_back(match->token);
    pos = match->end;
  }
  EncodeText(stretch.substr(pos), begin == 0 && pos == 0, sink);
}

std::string Tokenizer::NormalizePart(std::string_view part) const {
  std::string composed;
  if (vocabulary_.normalize_nfc && !IsTriviallyNfc(part)) part = composed = NormalizeNfc(part);
  const bool writes_blanks = !is_byte_level() && !vocabulary_.metaspace;
  return writes_blanks ? Replace(part, " ", kBlank) : std::string(part);
}

std::string Tokenizer::Normalize(std::string_view text) const {
  std::string out = NormalizePart(text);
  if (!text.empty() && vocabulary_.add_space_prefix) out.insert(0, kBlank);
  return out;
}

MarkedText Tokenizer::NormalizeMarked(std::string_view text, size_t begin, size_t end,
                                      std::span<const ByteSpan> data) const {
  if (data.empty()) return MarkedText(Normalize(text.substr(begin, end - begin)));
  text = text.substr(0, end);
  MarkedText out(std::string(vocabulary_.add_space_prefix ? kBlank : ""));
  size_t pos = begin;
  // The first span that ends behind `begin`; they are in order.
  auto span = std::partition_point(data.begin(), data.end(),
                                   [begin](const ByteSpan& s) { return s.end <= begin; });
  for (; span != data.end() && span->begin < end; ++span) {
    size_t first = std::max(span->begin, pos);
    size_t last = std::min(span->end, end);
    if (first >= last) continue;
    if (vocabulary_.normalize_nfc) {
      first = NfcBorderBefore(text, pos, first);
      last = NfcBorderAfter(text, last);
    }
    out.Append(NormalizePart(text.substr(pos, first - pos)));
    out.AppendData(NormalizePart(text.substr(first, last - first)));
    pos = last;
  }
  out.Append(NormalizePart(text.substr(pos)));
  return out;
}

void Tokenizer::EncodeText(std::string_view text, bool at_start, Sink& sink) const {
  if (text.empty()) return;
  if (vocabulary_.metaspace) return EncodeMetaspace(text, at_start, sink);
  if (!is_byte_level()) return EncodeCharacters(text, sink);
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pretokenizer_->NextPieceEnd(text, pos);
    while (pos < end) {
      const std::string_view piece = text.substr(pos, std::min(end - pos, kMaxPieceBytes));
      EncodeByteLevelPiece(piece, sink);
      pos += piece.size();
    }
  }
}

void Tokenizer::EncodeByteLevelPiece(std::string_view piece, Sink& sink) const {
  if (vocabulary_.ignore_merges && piece.size() <= max_token_bytes_) {
    if (const auto whole = FindNormal(EncodeByteLevel(piece))) {
      return sink.tokens.push_back(*whole);
    }
  }
  sink.scratch.symbols.clear();
  for (const char c : piece) {
    const int32_t token = byte_tokens_[static_cast<uint8_t>(c)];
    if (token >= 0) sink.scratch.symbols.push_back(token);
  }
  merger_.Merge(sink.scratch, sink.tokens);
}

void Tokenizer::EncodeMetaspace(std::string_view text, bool at_start, Sink& sink) const {
  std::string blanked = Replace(text, " ", kBlank);
  const Metaspace::Prefix prefix = vocabulary_.metaspace->prefix;
  const bool wants_blank =
      prefix == Metaspace::Prefix::kAlways || (prefix == Metaspace::Prefix::kFirst && at_start);
  if (wants_blank && !blanked.starts_with(kBlank)) blanked.insert(0, kBlank);
  if (!vocabulary_.metaspace->split) return EncodeCharacters(blanked, sink);
  for (size_t pos = 0; pos < blanked.size();) {
    const size_t end = std::min(blanked.find(kBlank, pos + 1), blanked.size());
    EncodeCharacters(std::string_view(blanked).substr(pos, end - pos), sink);
    pos = end;
  }
}

// Characters that are tokens stand for themselves, others for their bytes, and where the vocabulary
// has no bytes for the unknown token. As in the reference, an unknown token is put down only when
// the next one or a character with a token comes: bytes overtake it.
void Tokenizer::EncodeCharacters(std::string_view text, Sink& sink) const {
  if (vocabulary_.ignore_merges && text.size() <= kMaxTokenBytes) {
    const auto whole = index_.Find(text);
    if (whole && (is_normal_[static_cast<size_t>(whole->value())] ||
                  vocabulary_.type(static_cast<size_t>(whole->value())) == TokenType::kByte)) {
      return sink.tokens.push_back(*whole);
    }
  }
  auto& symbols = sink.scratch.symbols;
  symbols.clear();
  bool unknown = false;  // one that is not put down yet
  const auto put_unknown = [&] {
    if (std::exchange(unknown, false)) symbols.push_back(vocabulary_.unknown->value());
  };
  for (size_t pos = 0; pos < text.size();) {
    const size_t size = DecodeChar(text, pos).size;
    const std::string_view character = text.substr(pos, size);
    pos += size;
    if (const auto token = FindNormal(character)) {
      put_unknown();
      symbols.push_back(token->value());
    } else if (std::all_of(character.begin(), character.end(),
                           [this](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; })) {
      for (const char c : character) symbols.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    } else if (vocabulary_.unknown) {
      if (!vocabulary_.fuse_unknown) put_unknown();
      unknown = true;
    }
    if (symbols.size() >= kMaxPieceBytes) {
      merger_.Merge(sink.scratch, sink.tokens);
      symbols.clear();
    }
  }
  put_unknown();
  merger_.Merge(sink.scratch, sink.tokens);
}

std::optional<TokenId> Tokenizer::FindNormal(std::string_view stored) const {
  const auto id = index_.Find(stored);
  return id && is_normal_[static_cast<size_t>(id->value())] ? id : std::nullopt;
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
