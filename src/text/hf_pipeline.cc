#include "text/hf_pipeline.h"

#include <algorithm>
#include <optional>
#include <vector>

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

// A step, or the steps of a Sequence (`list` names its key), which may hold more of those.
std::vector<json> StepsOf(const json& step, const char* list) {
  if (step.is_null()) return {};
  if (!Is(step, "Sequence") || !At(step, list).is_array()) return {step};
  std::vector<json> steps;
  for (const json& inner : At(step, list)) {
    const std::vector<json> more = StepsOf(inner, list);
    steps.insert(steps.end(), more.begin(), more.end());
  }
  return steps;
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
  // Every character belongs to some match of the known expressions: to keep only the matches is the
  // same.
  const json& behavior = At(steps[0], "behavior");
  const bool isolates = (behavior == "Isolated" && IsFalse(steps[0], "invert")) ||
                        (behavior == "Removed" && At(steps[0], "invert") == true);
  if (!Is(steps[0], "Split") || !isolates || !IsByteLevel(steps[1], false)) return std::nullopt;
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

// The normaliser of a model over characters. `writes_blanks`: it turns them into U+2581.
Status ReadCharacterNormalizer(const json& root, Vocabulary& v, bool* writes_blanks) {
  for (const json& step : StepsOf(At(root, "normalizer"), "normalizers")) {
    if (Is(step, "NFC")) {
      v.normalize_nfc = true;
    } else if (Is(step, "Prepend") && At(step, "prepend") == kBlank && !v.add_space_prefix) {
      v.add_space_prefix = true;
    } else if (IsBlankReplacement(step)) {
      *writes_blanks = true;
    } else {
      return NotSupported("the normalizer", step);
    }
  }
  return OkStatus();
}

// Metaspace, in its present and its older spelling.
Result<Metaspace> ReadMetaspace(const json& step) {
  const json& scheme = At(step, "prepend_scheme");
  const json& split = At(step, "split");
  const bool fits = At(step, "replacement") == kBlank && (split.is_null() || split.is_boolean());
  Metaspace out;
  out.split = split.is_boolean() ? split.get<bool>() : true;
  if (fits && scheme == "never") {
    out.prefix = Metaspace::Prefix::kNever;
  } else if (fits && scheme == "first" && !IsFalse(step, "add_prefix_space")) {
    out.prefix = Metaspace::Prefix::kFirst;
  } else if (!fits || (!scheme.is_null() && scheme != "always") ||
             IsFalse(step, "add_prefix_space")) {
    return NotSupported("the pre_tokenizer", step);
  }
  return out;
}

Status ReadCharacterPreTokenizer(const json& root, bool writes_blanks, Vocabulary& v) {
  for (const json& step : StepsOf(At(root, "pre_tokenizer"), "pretokenizers")) {
    const bool at_blanks = Is(step, "Split") && At(At(step, "pattern"), "String") == " ";
    if (Is(step, "Metaspace") && !v.metaspace && !writes_blanks && !v.add_space_prefix) {
      TANDEM_ASSIGN_OR_RETURN(v.metaspace, ReadMetaspace(step));
    } else if (!at_blanks || !writes_blanks) {  // no blank is left that this could split at
      return NotSupported("the pre_tokenizer", step);
    }
  }
  if (writes_blanks || v.metaspace) return OkStatus();
  return NotSupported("without Metaspace or ByteLevel, the normalizer", At(root, "normalizer"));
}

// The decoder of a model over characters: how text is put together.
Status ReadCharacterDecoder(const json& root, bool byte_fallback, Vocabulary& v) {
  const json& decoder = At(root, "decoder");
  v.first_space = FirstSpace::kKeep;
  bool blanks = false;
  bool bytes = false;
  bool fused = false;
  for (const json& step : StepsOf(decoder, "decoders")) {
    const json& content = At(step, "content");
    if (Is(step, "Replace") && At(At(step, "pattern"), "String") == kBlank && content == " ") {
      blanks = true;
    } else if (Is(step, "Metaspace") && !blanks && !fused) {
      TANDEM_ASSIGN_OR_RETURN(const Metaspace metaspace, ReadMetaspace(step));
      blanks = true;
      if (metaspace.prefix != Metaspace::Prefix::kNever) v.first_space = FirstSpace::kDropAll;
    } else if (Is(step, "ByteFallback") && !fused) {
      bytes = true;
    } else if (Is(step, "Fuse")) {
      fused = true;
    } else if (Is(step, "Strip") && fused && v.first_space == FirstSpace::kKeep && content == " " &&
               At(step, "start") == 1 && At(step, "stop") == 0) {
      v.first_space = FirstSpace::kDropOne;
    } else {
      return NotSupported("the decoder", step);
    }
  }
  if (decoder.is_null() || (blanks && (bytes || !byte_fallback))) return OkStatus();
  return NotSupported("the decoder", decoder);
}

Status ReadCharacterSteps(const json& root, bool byte_fallback, Vocabulary& v) {
  v.model = "llama";
  bool writes_blanks = false;
  TANDEM_RETURN_IF_ERROR(ReadCharacterNormalizer(root, v, &writes_blanks));
  TANDEM_RETURN_IF_ERROR(ReadCharacterPreTokenizer(root, writes_blanks, v));
  return ReadCharacterDecoder(root, byte_fallback, v);
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
  const std::vector<json> pre_steps = StepsOf(At(root, "pre_tokenizer"), "pretokenizers");
  const bool byte_level = std::any_of(pre_steps.begin(), pre_steps.end(),
                                      [](const json& step) { return Is(step, "ByteLevel"); });
  if (!byte_level) return ReadCharacterSteps(root, byte_fallback, v);
  v.model = "gpt2";
  if (byte_fallback)
    return UnimplementedError("model.byte_fallback with ByteLevel is not supported");
  for (const json& step : StepsOf(At(root, "normalizer"), "normalizers")) {
    if (!Is(step, "NFC")) return NotSupported("the normalizer", step);
    v.normalize_nfc = true;
  }
  const auto pre = PreOf(pre_steps);
  if (!pre) return NotSupported("the pre_tokenizer", At(root, "pre_tokenizer"));
  v.pre = *pre;
  for (const json& step : StepsOf(At(root, "decoder"), "decoders")) {
    if (!Is(step, "ByteLevel")) return NotSupported("the decoder", step);
  }
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
