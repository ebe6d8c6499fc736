#include "server/generation_fields.h"

#include <charconv>
#include <limits>
#include <set>

#include "server/generation.h"
#include "server/generation_table.h"
#include "text/stop_strings.h"

namespace tandem {
namespace {

using Fields = GenerationFields;

constexpr double kInt32Max = std::numeric_limits<int32_t>::max();
// Beyond, one repeated token is all but forbidden.
constexpr double kRepetitionPenaltyMax = 10.0;

// ---- stream_options

struct StreamOptions {
  bool include_usage = false;
  bool continuous_usage_stats = false;
};

constexpr Field<StreamOptions> kStreamOptionsTable[] = {
    BoolField<&StreamOptions::include_usage>("include_usage"),
    BoolField<&StreamOptions::continuous_usage_stats>("continuous_usage_stats"),
    Ignored<StreamOptions>("include_obfuscation"),
};

MaybeError ParseStreamOptions(const Json& value, std::string_view param, const FieldType&,
                              Fields& out) {
  if (!value.is_object()) return TypeError(param, "an object", value);
  StreamOptions options;
  if (auto error = ApplyAll(value, param, options,
                            std::span<const Field<StreamOptions>>(kStreamOptionsTable))) {
    return error;
  }
  out.include_usage = options.include_usage;
  out.continuous_usage_stats = options.continuous_usage_stats;
  return std::nullopt;
}

// ---- Lists and maps

MaybeError ParseStop(const Json& value, std::string_view param, const FieldType&, Fields& out) {
  if (!value.is_string() && !value.is_array()) {
    return TypeError(param, "a string or a list of strings", value);
  }
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > kStopStringsMax) {
    return ValueError(
        param, fmt::format("at most {} strings are allowed, got {}", kStopStringsMax, list.size()));
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name =
        value.is_array() ? fmt::format("{}[{}]", param, i) : std::string(param);
    ApiResult<std::string> text = ReadString(list[i], name);
    if (!text.ok()) return text.error();
    if (text.value().empty()) return ValueError(name, "a stop string must not be empty");
    static_assert(kStopCharsMax * 4 <= StopMatcher::kMaxStringBytes);
    if (const int64_t chars = CountChars(text.value()); chars > kStopCharsMax) {
      return ValueError(
          name, fmt::format("a stop string may have {} characters, got {}", kStopCharsMax, chars));
    }
    out.stop.push_back(std::move(text.value()));
  }
  return std::nullopt;
}

MaybeError ParseStopTokenIds(const Json& value, std::string_view param, const FieldType&,
                             Fields& out) {
  if (!value.is_array()) return TypeError(param, "a list of token ids", value);
  if (value.size() > kStopTokenIdsMax) {
    return ValueError(
        param, fmt::format("at most {} ids are allowed, got {}", kStopTokenIdsMax, value.size()));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    ApiResult<int64_t> id = ReadInteger(value[i], fmt::format("{}[{}]", param, i), 0,
                                        std::numeric_limits<int32_t>::max());
    if (!id.ok()) return id.error();
    out.stop_token_ids.emplace_back(static_cast<int32_t>(id.value()));
  }
  return std::nullopt;
}

MaybeError ParseLogitBias(const Json& value, std::string_view param, const FieldType&,
                          Fields& out) {
  if (!value.is_object()) return TypeError(param, "an object of biases by token id", value);
  if (value.size() > static_cast<size_t>(kMaxLogitBias)) {
    return ValueError(
        param, fmt::format("at most {} tokens are allowed, got {}", kMaxLogitBias, value.size()));
  }
  std::set<int32_t> seen;
  for (const auto& [key, bias] : value.items()) {
    int32_t id = -1;
    const char* const end = key.data() + key.size();
    const auto [rest, failed] = std::from_chars(key.data(), end, id);
    const bool plain = key == "0" || (!key.empty() && key[0] >= '1' && key[0] <= '9');
    if (failed != std::errc() || rest != end || !plain) {
      return ValueError(param, fmt::format("the key '{}' is no token id", Shorten(key)));
    }
    if (!seen.insert(id).second) {
      return ValueError(param, fmt::format("the token {} appears twice", id));
    }
    ApiResult<double> number =
        ReadNumber(bias, fmt::format("{}.{}", param, Shorten(key)), -100.0, 100.0);
    if (!number.ok()) return number.error();
    out.logit_bias.push_back({TokenId(id), static_cast<float>(number.value())});
  }
  return std::nullopt;
}

MaybeError ParseTopP(const Json& value, std::string_view param, const FieldType& type,
                     Fields& out) {
  if (auto error = Store(ReadNumber(value, param, 0.0, 1.0), out.top_p)) return error;
  if (*out.top_p > type.low) return std::nullopt;
  return ValueError(param, "0 would leave no token: use temperature 0");
}

// "cache_salt" is vLLM's name, "prompt_cache_key" OpenAI's.
MaybeError ParseCacheSalt(const Json& value, std::string_view param, const FieldType&,
                          Fields& out) {
  ApiResult<std::string> salt = ReadString(value, param);
  if (!salt.ok()) return salt.error();
  if (const int64_t chars = CountChars(salt.value()); chars > kCacheSaltCharsMax) {
    return ValueError(
        param, fmt::format("at most {} characters are allowed, got {}", kCacheSaltCharsMax, chars));
  }
  if (out.cache_salt && *out.cache_salt != salt.value()) {
    return ValueError("cache_salt", "cache_salt and prompt_cache_key differ: give one");
  }
  out.cache_salt = std::move(salt.value());
  return std::nullopt;
}
constexpr std::string_view kCacheSaltSchema = R"({"type": "string", "maxLength": 256})";

constexpr Field<Fields> kTopP = {
    "top_p", FieldUse::kHonoured, {}, {FieldType::Kind::kNumber, 0.0, 1.0, true}, ParseTopP};

constexpr Field<Fields> kTable[] = {
    StringField<&Fields::model>("model", /*required=*/true),
    NumberField<&Fields::temperature>("temperature", 0.0, 2.0),
    kTopP,
    IntegerField<&Fields::top_k>("top_k", -1, kInt32Max),
    NumberField<&Fields::min_p>("min_p", 0.0, 1.0),
    NumberField<&Fields::repetition_penalty>("repetition_penalty", 0.0, kRepetitionPenaltyMax,
                                             /*above_low=*/true),
    NumberField<&Fields::presence_penalty>("presence_penalty", -2.0, 2.0),
    NumberField<&Fields::frequency_penalty>("frequency_penalty", -2.0, 2.0),
    Honoured<Fields>("logit_bias",
                     R"({"type": "object", "maxProperties": 1024,
                         "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
                         "additionalProperties": {"type": "number", "minimum": -100,
                                                  "maximum": 100}})",
                     ParseLogitBias),
    IntegerField<&Fields::seed>("seed", -0x1p63, 0x1p63),
    IntegerField<&Fields::n>("n", 1, kSamplesMax),
    Honoured<Fields>("stop",
                     R"({"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1024},
                                   {"type": "array", "maxItems": 4,
                                    "items": {"type": "string", "minLength": 1,
                                              "maxLength": 1024}}]})",
                     ParseStop),
    Honoured<Fields>("stop_token_ids",
                     R"({"type": "array", "maxItems": 32,
                         "items": {"type": "integer", "minimum": 0}})",
                     ParseStopTokenIds),
    BoolField<&Fields::ignore_eos>("ignore_eos"),
    IntegerField<&Fields::min_tokens>("min_tokens", 0, kInt32Max),
    BoolField<&Fields::include_stop_str_in_output>("include_stop_str_in_output"),
    BoolField<&Fields::skip_special_tokens>("skip_special_tokens"),
    BoolField<&Fields::return_token_ids>("return_token_ids"),
    Honoured<Fields>("cache_salt", kCacheSaltSchema, ParseCacheSalt),
    Honoured<Fields>("prompt_cache_key", kCacheSaltSchema, ParseCacheSalt),
    NumberField<&Fields::deadline_ms>("deadline_ms", kDeadlineType.low, kDeadlineType.high,
                                      kDeadlineType.above_low),
    NumberField<&Fields::ttft_target_ms>("ttft_target_ms", kDeadlineType.low, kDeadlineType.high,
                                         kDeadlineType.above_low),
    BoolField<&Fields::stream>("stream"),
    Honoured<Fields>("stream_options", R"({"$ref": "#/components/schemas/StreamOptions"})",
                     ParseStreamOptions),
    Ignored<Fields>("user"),
    Ignored<Fields>("metadata"),
    Ignored<Fields>("store"),
    Ignored<Fields>("service_tier"),
    Ignored<Fields>("safety_identifier"),
    Ignored<Fields>("request_id"),
    Ignored<Fields>("prompt_cache_options"),
    Ignored<Fields>("prompt_cache_retention"),
    Refused<Fields>("use_beam_search", "false"),
    Refused<Fields>("length_penalty", "1"),
    Refused<Fields>("early_stopping", "false"),
    Refused<Fields>("bad_words", "[]"),
    Refused<Fields>("allowed_token_ids"),
    Refused<Fields>("spaces_between_special_tokens", "true"),
    Refused<Fields>("truncate_prompt_tokens"),
    Refused<Fields>("prompt_logprobs"),
    Refused<Fields>("return_tokens_as_token_ids", "false"),
    Refused<Fields>("logits_processors", "[]"),
    Refused<Fields>("structured_outputs"),
    Refused<Fields>("guided_json"),
    Refused<Fields>("guided_regex"),
    Refused<Fields>("guided_choice"),
    Refused<Fields>("guided_grammar"),
    Refused<Fields>("guided_decoding_backend"),
    Refused<Fields>("guided_whitespace_pattern"),
    Refused<Fields>("priority", "0"),
    Refused<Fields>("kv_transfer_params"),
    Refused<Fields>("vllm_xargs", "{}"),
    Refused<Fields>("response_format", R"({"type": "text"})"),
};

}  // namespace

std::span<const Field<GenerationFields>> GenerationTable() { return kTable; }

MaybeError CheckGeneration(const Json& body, const GenerationFields& fields) {
  const auto options = body.find("stream_options");
  if (!fields.stream && options != body.end() && !options->is_null()) {
    return ValueError("stream_options", "it is allowed only with \"stream\": true");
  }
  if (fields.max_tokens && fields.min_tokens > *fields.max_tokens) {
    return ValueError("min_tokens", fmt::format("{} is above max_tokens, {}", fields.min_tokens,
                                                *fields.max_tokens));
  }
  return std::nullopt;
}

std::vector<FieldInfo> GenerationFieldInfos() {
  std::vector<FieldInfo> out;
  AppendInfo(GenerationTable(), out);
  return out;
}

std::vector<FieldInfo> StreamOptionsFields() {
  std::vector<FieldInfo> out;
  AppendInfo(std::span<const Field<StreamOptions>>(kStreamOptionsTable), out);
  return out;
}

}  // namespace tandem
