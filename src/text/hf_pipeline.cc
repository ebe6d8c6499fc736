#include "text/hf_pipeline.h"

#include <optional>

namespace tandem {
namespace {

using nlohmann::json;

constexpr const char* kBlank = "\xE2\x96\x81";

// The expressions of Split, as the vocabularies' files write them.
struct KnownSplit {
  std::string_view pre;
  std::string_view expression;
};
constexpr KnownSplit kKnownSplits[] = {
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"gpt-2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
};

const json& At(const json& object, const char* key) {
  static const json* const kNull = new json();
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() ? *it : *kNull;
}

bool Is(const json& step, const char* type) { return At(step, "type") == type; }

bool IsFalse(const json& step, const char* key) { return At(step, key) == false; }

Status NotSupported(const char* what, const json& step) {
  const json& type = At(step, "type");
  return UnimplementedError("{} {} is not supported: {}", what, QuoteText(type.dump()),
                            QuoteText(step.dump()));
}

// A step, or the steps of a Sequence (`list` names its key).
std::vector<json> StepsOf(const json& step, const char* list) {
  if (step.is_null()) return {};
  if (!Is(step, "Sequence") || !At(step, list).is_array()) return {step};
  return At(step, list).get<std::vector<json>>();
}

// ByteLevel without a blank of its own, with or without GPT-2's expression.
bool IsByteLevel(const json& step, bool expression) {
  const json& use = At(step, "use_regex");
  return Is(step, "ByteLevel") && IsFalse(step, "add_prefix_space") &&
         (use.is_null() ? true : use == true) == expression;
}

std::optional<std::string_view> PreOf(const std::vector<json>& steps) {
  if (steps.size() == 1 && IsByteLevel(steps[0], true)) return "gpt-2";
  if (steps.size() != 2) return std::nullopt;
  if (Is(steps[0], "Digits") && At(steps[0], "individual_digits") == true &&
      IsByteLevel(steps[1], true)) {
    return "smollm";
  }
  const bool splits = Is(steps[0], "Split") && At(steps[0], "behavior") == "Isolated" &&
                      IsFalse(steps[0], "invert") && IsByteLevel(steps[1], false);
  if (!splits) return std::nullopt;
  const json& expression = At(At(steps[0], "pattern"), "Regex");
  for (const KnownSplit& known : kKnownSplits) {
    if (expression == known.expression) return known.pre;
  }
  return std::nullopt;
}

bool IsBlankReplacement(const json& step) {
  return Is(step, "Replace") && At(At(step, "pattern"), "String") == " " &&
         At(step, "content") == kBlank;
}

Status ReadSentencePiece(const json& root, Vocabulary& v) {
  v.model = "llama";
  const std::vector<json> steps = StepsOf(At(root, "normalizer"), "normalizers");
  v.add_space_prefix =
      steps.size() == 2 && Is(steps[0], "Prepend") && At(steps[0], "prepend") == kBlank;
  const bool known = !steps.empty() && steps.size() == (v.add_space_prefix ? 2u : 1u) &&
                     IsBlankReplacement(steps.back());
  if (!known) return NotSupported("with byte_fallback, the normalizer", At(root, "normalizer"));
  // After the replacement there is no blank that this could split at.
  const json& pre = At(root, "pre_tokenizer");
  const bool splits_at_blanks = Is(pre, "Split") && At(At(pre, "pattern"), "String") == " ";
  if (!pre.is_null() && !splits_at_blanks) {
    return NotSupported("with byte_fallback, the pre_tokenizer", pre);
  }
  return OkStatus();
}

// What a TemplateProcessing puts around a single text.
Status ReadTemplate(const json& step, Vocabulary& v) {
  const json& single = At(step, "single");
  if (!single.is_array() || single.empty()) return NotSupported("post_processor", step);
  bool before = true;
  for (const json& piece : single) {
    if (!At(piece, "Sequence").is_null()) {
      if (!before) return NotSupported("post_processor", step);
      before = false;
      continue;
    }
    const json& name = At(At(piece, "SpecialToken"), "id");
    if (!name.is_string()) return NotSupported("post_processor", step);
    const json& ids =
        At(At(At(step, "special_tokens"), name.get_ref<const std::string&>().c_str()), "ids");
    if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_unsigned() ||
        ids[0].get<uint64_t>() >= v.tokens.size()) {
      return InvalidArgumentError("post_processor: {} needs one token id below {}",
                                  QuoteText(name.get_ref<const std::string&>()), v.tokens.size());
    }
    bool& adds = before ? v.add_bos : v.add_eos;
    if (adds) return NotSupported("post_processor", step);
    adds = true;
    (before ? v.bos : v.eos) = TokenId(static_cast<int32_t>(ids[0].get<uint64_t>()));
  }
  return before ? NotSupported("post_processor", step) : OkStatus();
}

}  // namespace

std::string QuoteText(std::string_view text) {
  constexpr size_t kMaxBytes = 160;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxBytes)) out += static_cast<uint8_t>(c) < 0x20 ? '?' : c;
  return out + (text.size() > kMaxBytes ? "...'" : "'");
}

Status ReadPipeline(const json& root, bool byte_fallback, Vocabulary& v) {
  if (byte_fallback) return ReadSentencePiece(root, v);
  v.model = "gpt2";
  const std::vector<json> normalizers = StepsOf(At(root, "normalizer"), "normalizers");
  if (normalizers.size() > 1 || (normalizers.size() == 1 && !Is(normalizers[0], "NFC"))) {
    return NotSupported("the normalizer", At(root, "normalizer"));
  }
  v.normalize_nfc = !normalizers.empty();
  const auto pre = PreOf(StepsOf(At(root, "pre_tokenizer"), "pretokenizers"));
  if (!pre) return NotSupported("the pre_tokenizer", At(root, "pre_tokenizer"));
  v.pre = *pre;
  return OkStatus();
}

Status ReadPostProcessor(const json& root, Vocabulary& v) {
  for (const json& step : StepsOf(At(root, "post_processor"), "processors")) {
    if (Is(step, "ByteLevel")) continue;  // moves offsets only
    if (!Is(step, "TemplateProcessing")) return NotSupported("the post_processor", step);
    TANDEM_RETURN_IF_ERROR(ReadTemplate(step, v));
  }
  return OkStatus();
}

}  // namespace tandem
