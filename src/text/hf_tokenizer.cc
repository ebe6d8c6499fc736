#include "text/hf_tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/bounded_json.h"
#include "text/byte_level.h"
#include "text/hf_pipeline.h"
#include "text/token_index.h"
#include "text/unicode.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 16;
// Ids without a token; the largest public files have a few hundred.
constexpr size_t kMaxHoles = size_t{1} << 16;

// The texts by id, as they are collected from the model and the added tokens.
class TokenTable {
 public:
  Status Add(std::string_view where, const std::string& text, const json& id, TokenType type) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxVocabSize) {
      return OutOfRangeError("{}: the id of {} is {}, not in [0, {})", where, QuoteText(text),
                             id.dump().substr(0, 32), kMaxVocabSize);
    }
    entries_.push_back({static_cast<size_t>(id.get<uint64_t>()), type, text});
    return OkStatus();
  }

  // Later entries of the same id and text replace the type of earlier ones; holes become tokens of
  // type kUnused.
  Status Fill(Vocabulary& v) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.id < b.id; });
    if (entries_.empty()) return InvalidArgumentError("model.vocab: no tokens");
    const size_t size = entries_.back().id + 1;
    if (size > entries_.size() + kMaxHoles) {
      return OutOfRangeError("{} tokens have ids up to {}: more than {} are missing",
                             entries_.size(), size - 1, kMaxHoles);
    }
    for (Entry& e : entries_) {
      while (v.tokens.size() < e.id) {
        v.types.push_back(TokenType::kUnused);
        v.tokens.push_back(fmt::format("<no token {}>", v.tokens.size()));
      }
      if (v.tokens.size() == e.id) {
        v.tokens.push_back(std::move(e.text));
        v.types.push_back(e.type);
      } else if (v.tokens[e.id] == e.text) {
        v.types[e.id] = e.type;
      } else {
        return InvalidArgumentError("tokens {} and {} have the same id {}",
                                    QuoteText(v.tokens[e.id]), QuoteText(e.text), e.id);
      }
    }
    return OkStatus();
  }

 private:
  struct Entry {
    size_t id;
    TokenType type;
    std::string text;
  };
  std::vector<Entry> entries_;
};

bool IsByteToken(const std::string& text) {
  return text.size() == 6 && text.starts_with("<0x") && text.back() == '>';
}

// `byte_fallback`: tokens written <0x0A> stand for bytes.
Status ReadModelVocab(const json& model, bool byte_fallback, TokenTable& table) {
  const auto vocab = model.find("vocab");
  if (vocab == model.end() || !vocab->is_object()) {
    return InvalidArgumentError("model.vocab must be an object");
  }
  for (const auto& [text, id] : vocab->items()) {
    const bool byte = byte_fallback && IsByteToken(text);
    TANDEM_RETURN_IF_ERROR(
        table.Add("model.vocab", text, id, byte ? TokenType::kByte : TokenType::kNormal));
  }
  return OkStatus();
}

Status ReadMerges(const json& model, Vocabulary& v) {
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) {
    return InvalidArgumentError("model.merges must be a list");
  }
  v.merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const json& merge = (*merges)[i];
    if (merge.is_string()) {
      v.merges.push_back(merge.get<std::string>());
      continue;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
      return InvalidArgumentError("model.merges[{}] must be a string or two strings", i);
    }
    v.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return OkStatus();
}

// A key of the model that must be absent, null, or the value that changes nothing.
Status RefuseUnless(const json& model, const char* key, const json& neutral) {
  const auto it = model.find(key);
  if (it == model.end() || it->is_null() || *it == neutral) return OkStatus();
  return UnimplementedError("model.{} = {} is not supported", key, it->dump().substr(0, 64));
}

Status CheckModel(const json& model) {
  const auto type = model.find("type");
  if (type != model.end() && *type != "BPE") {
    return UnimplementedError("the model {} is not supported (known: BPE)",
                              type->dump().substr(0, 64));
  }
  TANDEM_RETURN_IF_ERROR(RefuseUnless(model, "dropout", 0.0));
  TANDEM_RETURN_IF_ERROR(RefuseUnless(model, "continuing_subword_prefix", ""));
  return RefuseUnless(model, "end_of_word_suffix", "");
}

Result<bool> Flag(const json& object, const char* key, bool fallback) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_boolean()) return InvalidArgumentError("{} must be true or false", key);
  return it->get<bool>();
}

Status ReadAddedTokens(const json& root, const json& model, TokenTable& table,
                       std::vector<LiteralRule>& rules) {
  const auto added = root.find("added_tokens");
  if (added == root.end() || added->is_null()) return OkStatus();
  if (!added->is_array()) return InvalidArgumentError("added_tokens must be a list");
  for (size_t i = 0; i < added->size(); ++i) {
    const json& token = (*added)[i];
    const std::string where = fmt::format("added_tokens[{}]", i);
    if (!token.is_object() || !token.contains("id") || !token.contains("content") ||
        !token["content"].is_string()) {
      return InvalidArgumentError("{} must have an id and a content", where);
    }
    const std::string text = token["content"].get<std::string>();
    TANDEM_ASSIGN_OR_RETURN(const bool special, Flag(token, "special", false));
    TANDEM_RETURN_IF_ERROR(table.Add(where, text, token["id"],
                                     special ? TokenType::kControl : TokenType::kUserDefined));
    LiteralRule rule;
    rule.token = TokenId(token["id"].get<int32_t>());
    TANDEM_ASSIGN_OR_RETURN(rule.single_word, Flag(token, "single_word", false));
    TANDEM_ASSIGN_OR_RETURN(rule.lstrip, Flag(token, "lstrip", false));
    TANDEM_ASSIGN_OR_RETURN(rule.rstrip, Flag(token, "rstrip", false));
    TANDEM_ASSIGN_OR_RETURN(rule.normalized, Flag(token, "normalized", !special));
    rule.in_model = !special && model["vocab"].contains(text);
    rules.push_back(rule);
  }
  return OkStatus();
}

std::optional<TokenId> FindToken(const Vocabulary& v, std::string_view text) {
  const auto it = std::find(v.tokens.begin(), v.tokens.end(), text);
  if (it == v.tokens.end()) return std::nullopt;
  return TokenId(static_cast<int32_t>(it - v.tokens.begin()));
}

// What becomes of characters that are no tokens.
Status ReadUnknown(const json& model, Vocabulary& v) {
  if (const auto unknown = model.find("unk_token"); unknown != model.end() && !unknown->is_null()) {
    if (!unknown->is_string()) return InvalidArgumentError("model.unk_token must be a string");
    v.unknown = FindToken(v, unknown->get_ref<const std::string&>());
    if (!v.unknown) return InvalidArgumentError("model.unk_token is not a token");
  }
  TANDEM_ASSIGN_OR_RETURN(v.fuse_unknown, Flag(model, "fuse_unk", false));
  if (v.model != "gpt2" || !v.unknown) return OkStatus();  // bytes without a token are dropped
  const TokenIndex index(v.tokens);
  for (int b = 0; b < 256; ++b) {
    std::string byte;
    AppendChar(byte, ByteToAlphabet(static_cast<uint8_t>(b)));
    if (!index.Find(byte)) {
      return UnimplementedError(
          "a vocabulary with model.unk_token, but without a token for the byte {} is not supported",
          b);
    }
  }
  return OkStatus();
}

Result<Vocabulary> ReadTokenizer(const json& root) {
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object()) {
    return InvalidArgumentError("model must be an object");
  }
  TANDEM_RETURN_IF_ERROR(CheckModel(*model));
  Vocabulary v;
  TANDEM_ASSIGN_OR_RETURN(const bool byte_fallback, Flag(*model, "byte_fallback", false));
  TANDEM_ASSIGN_OR_RETURN(v.ignore_merges, Flag(*model, "ignore_merges", false));
  TANDEM_RETURN_IF_ERROR(ReadPipeline(root, byte_fallback, v));
  TokenTable table;
  TANDEM_RETURN_IF_ERROR(ReadModelVocab(*model, byte_fallback, table));
  TANDEM_RETURN_IF_ERROR(ReadAddedTokens(root, *model, table, v.literal_rules));
  TANDEM_RETURN_IF_ERROR(table.Fill(v));
  TANDEM_RETURN_IF_ERROR(ReadMerges(*model, v));
  TANDEM_RETURN_IF_ERROR(ReadUnknown(*model, v));
  TANDEM_RETURN_IF_ERROR(ReadPostProcessor(root, v));
  return v;
}

// A token of tokenizer_config.json: a string, or an object with "content".
Status ReadNamedToken(const json& config, const char* key, const Vocabulary& v,
                      std::optional<TokenId>* out) {
  auto it = config.find(key);
  if (it == config.end() || it->is_null()) return OkStatus();
  const json& token = it->is_object() && it->contains("content") ? (*it)["content"] : *it;
  if (!token.is_string()) return InvalidArgumentError("{} must be a string", key);
  const auto id = FindToken(v, token.get_ref<const std::string&>());
  if (!id) {
    return InvalidArgumentError("{} {} is not a token", key,
                                QuoteText(token.get_ref<const std::string&>()));
  }
  *out = id;
  return OkStatus();
}

// One template, or a list of named ones, of which "default" counts.
Status ReadChatTemplate(const json& config, Vocabulary& v) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return OkStatus();
  if (it->is_string()) {
    v.chat_template = it->get<std::string>();
    return OkStatus();
  }
  if (!it->is_array()) return InvalidArgumentError("chat_template must be a string or a list");
  for (size_t i = 0; i < it->size(); ++i) {
    const json& entry = (*it)[i];
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string()) {
      return InvalidArgumentError("chat_template[{}] must have a name and a template", i);
    }
    if (entry["name"] == "default" || it->size() == 1) {
      v.chat_template = entry["template"].get<std::string>();
      return OkStatus();
    }
  }
  return InvalidArgumentError("chat_template: none of {} templates has the name 'default'",
                              it->size());
}

Status ReadConfig(const json& config, Vocabulary& v) {
  TANDEM_RETURN_IF_ERROR(ReadNamedToken(config, "bos_token", v, &v.bos));
  TANDEM_RETURN_IF_ERROR(ReadNamedToken(config, "eos_token", v, &v.eos));
  TANDEM_RETURN_IF_ERROR(ReadNamedToken(config, "pad_token", v, &v.padding));
  return ReadChatTemplate(config, v);
}

// eos_token_id: a number or a list of them.
Status ReadGenerationConfig(const json& config, Vocabulary& v) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return OkStatus();
  const json ids = it->is_array() ? *it : json::array({*it});
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= v.tokens.size()) {
      return OutOfRangeError("eos_token_id {} is not a token id below {}", id.dump().substr(0, 32),
                             v.tokens.size());
    }
    const TokenId token(static_cast<int32_t>(id.get<uint64_t>()));
    if (!v.eos) {
      v.eos = token;
    } else if (*v.eos != token) {
      v.more_end_tokens.push_back(token);
    }
  }
  return OkStatus();
}

}  // namespace

Result<Vocabulary> VocabularyFromHf(const HfTokenizerFiles& files) {
  Vocabulary v;
  {
    TANDEM_ASSIGN_OR_RETURN(const json root, ParseBoundedJson("tokenizer.json", files.tokenizer,
                                                              kMaxTokenizerJsonBytes, kMaxDepth));
    Result<Vocabulary> read = ReadTokenizer(root);
    if (!read.ok()) return read.status().WithContext("tokenizer.json");
    v = std::move(*read);
  }
  const auto read_config = [&](std::string_view name, std::string_view text,
                               Status (*read)(const json&, Vocabulary&)) -> Status {
    if (text.empty()) return OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const json config,
                            ParseBoundedJson(name, text, kMaxTokenizerConfigBytes, kMaxDepth));
    return read(config, v).WithContext(name);
  };
  TANDEM_RETURN_IF_ERROR(read_config("tokenizer_config.json", files.config, ReadConfig));
  TANDEM_RETURN_IF_ERROR(
      read_config("generation_config.json", files.generation_config, ReadGenerationConfig));
  if (files.chat_template.size() > kMaxTokenizerConfigBytes) {
    return OutOfRangeError("chat_template.jinja: {} bytes; the limit is {}",
                           files.chat_template.size(), kMaxTokenizerConfigBytes);
  }
  if (!files.chat_template.empty()) v.chat_template = files.chat_template;
  if (v.add_bos && !v.bos) return InvalidArgumentError("tokenizer.json: no token to put first");
  return v;
}

}  // namespace tandem
