#include "server/tokenizer_info.h"

#include <unordered_map>
#include <utility>

#include "server/json_body.h"
#include "text/tokenizer.h"

namespace tandem {
namespace {

Json TextOf(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  if (!token || !tokenizer.Contains(*token)) return nullptr;
  return std::string(tokenizer.TokenBytes(*token));
}

// The tokens that stand for their own text, by id.
Json AddedTokens(const Tokenizer& tokenizer) {
  Json added = Json::object();
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::unordered_map<size_t, const LiteralRule*> rules;
  for (const LiteralRule& rule : vocabulary.literal_rules) {
    rules.emplace(static_cast<size_t>(rule.token.value()), &rule);
  }
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.type(i);
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    const TokenId token(static_cast<int32_t>(i));
    const auto found = rules.find(i);
    const LiteralRule rule = found != rules.end() ? *found->second : LiteralRule{.token = token};
    Json entry = {{"content", TextOf(tokenizer, token)},
                  {"single_word", rule.single_word},
                  {"lstrip", rule.lstrip},
                  {"rstrip", rule.rstrip},
                  {"normalized", rule.normalized},
                  {"special", type == TokenType::kControl}};
    // Ids differ, so there is nothing to search for.
    added.get_ref<Json::object_t&>().Container::emplace_back(std::to_string(i), std::move(entry));
  }
  return added;
}

}  // namespace

std::string TokenizerInfoJson(const ServedModel& model, int32_t max_context_tokens) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  Json info = {{"tokenizer_class", "PreTrainedTokenizerFast"},
               {"model_max_length", max_context_tokens},
               {"bos_token", TextOf(tokenizer, vocabulary.bos)},
               {"eos_token", TextOf(tokenizer, vocabulary.eos)},
               {"unk_token", TextOf(tokenizer, vocabulary.unknown)},
               {"pad_token", TextOf(tokenizer, vocabulary.padding)},
               {"add_bos_token", vocabulary.add_bos},
               {"add_eos_token", vocabulary.add_eos},
               {"clean_up_tokenization_spaces", false},
               {"added_tokens_decoder", AddedTokens(tokenizer)},
               {"chat_template", nullptr}};
  if (!model.chat_template_source.empty()) info["chat_template"] = model.chat_template_source;
  return DumpJson(info);
}

}  // namespace tandem
