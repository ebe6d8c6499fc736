#include "cli/vocabulary_from_gguf.h"

#include <limits>

namespace tandem {
namespace {

// Ids of tokens that end a turn or a message, besides eos.
constexpr const char* kMoreEndKeys[] = {"tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};

// An absent key stays absent.
Status ReadTokenId(const GgufFile& file, std::string_view key, std::optional<TokenId>* out) {
  if (file.FindEntry(key) == nullptr) return OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const int64_t id, file.GetInt(key));
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
    return InvalidArgumentError("{} is {}, not a token id", key, id);
  }
  *out = TokenId(static_cast<int32_t>(id));
  return OkStatus();
}

Status ReadTokens(const GgufFile& file, Vocabulary* vocabulary) {
  TANDEM_ASSIGN_OR_RETURN(const auto tokens, file.GetStrings("tokenizer.ggml.tokens"));
  vocabulary->tokens.assign(tokens.begin(), tokens.end());
  if (file.FindEntry("tokenizer.ggml.token_type") != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const auto types, file.GetInts("tokenizer.ggml.token_type"));
    vocabulary->types.reserve(types.size());
    for (const int64_t number : types) {
      TANDEM_ASSIGN_OR_RETURN(const TokenType type, TokenTypeFromInt(number));
      vocabulary->types.push_back(type);
    }
  }
  if (file.FindEntry("tokenizer.ggml.scores") != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(vocabulary->scores, file.GetFloats("tokenizer.ggml.scores"));
  }
  if (file.FindEntry("tokenizer.ggml.merges") != nullptr) {
    TANDEM_ASSIGN_OR_RETURN(const auto merges, file.GetStrings("tokenizer.ggml.merges"));
    vocabulary->merges.assign(merges.begin(), merges.end());
  }
  return OkStatus();
}

Status CheckSpaceKeys(const GgufFile& file, Vocabulary* vocabulary) {
  TANDEM_ASSIGN_OR_RETURN(
      vocabulary->add_space_prefix,
      file.GetBoolOr("tokenizer.ggml.add_space_prefix", vocabulary->add_space_prefix));
  if (vocabulary->model != "llama") vocabulary->add_space_prefix = false;
  constexpr const char* kExtra = "tokenizer.ggml.remove_extra_whitespaces";
  TANDEM_ASSIGN_OR_RETURN(const bool remove_extra, file.GetBoolOr(kExtra, false));
  if (vocabulary->model == "llama" && remove_extra) {
    return UnimplementedError("{} is not supported", kExtra);
  }
  return OkStatus();
}

}  // namespace

Result<Vocabulary> VocabularyFromGguf(const GgufFile& file) {
  Vocabulary vocabulary;
  TANDEM_ASSIGN_OR_RETURN(vocabulary.model, file.GetString("tokenizer.ggml.model"));
  TANDEM_ASSIGN_OR_RETURN(vocabulary.pre, file.GetStringOr("tokenizer.ggml.pre", "default"));
  ApplyGgufConventions(vocabulary);
  TANDEM_RETURN_IF_ERROR(CheckSpaceKeys(file, &vocabulary));
  TANDEM_RETURN_IF_ERROR(ReadTokens(file, &vocabulary));
  TANDEM_RETURN_IF_ERROR(ReadTokenId(file, "tokenizer.ggml.bos_token_id", &vocabulary.bos));
  TANDEM_RETURN_IF_ERROR(ReadTokenId(file, "tokenizer.ggml.eos_token_id", &vocabulary.eos));
  TANDEM_RETURN_IF_ERROR(ReadTokenId(file, "tokenizer.ggml.unknown_token_id", &vocabulary.unknown));
  TANDEM_RETURN_IF_ERROR(ReadTokenId(file, "tokenizer.ggml.padding_token_id", &vocabulary.padding));
  for (const char* key : kMoreEndKeys) {
    std::optional<TokenId> id;
    TANDEM_RETURN_IF_ERROR(ReadTokenId(file, key, &id));
    if (id.has_value()) vocabulary.more_end_tokens.push_back(*id);
  }
  TANDEM_ASSIGN_OR_RETURN(vocabulary.add_bos,
                          file.GetBoolOr("tokenizer.ggml.add_bos_token", vocabulary.add_bos));
  TANDEM_ASSIGN_OR_RETURN(vocabulary.add_eos,
                          file.GetBoolOr("tokenizer.ggml.add_eos_token", vocabulary.add_eos));
  TANDEM_ASSIGN_OR_RETURN(vocabulary.chat_template,
                          file.GetStringOr("tokenizer.chat_template", ""));
  return vocabulary;
}

}  // namespace tandem
