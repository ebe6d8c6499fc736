#include "cli/synth_vocabulary.h"

#include <array>
#include <string>
#include <vector>

#include "text/byte_level.h"

namespace tandem {
namespace {

constexpr int32_t kBytes = 256;
// Begin of a message, end of a message, end of a text.
constexpr const char* kControlTokens[] = {"<|im_start|>", "<|im_end|>", "<|endoftext|>"};
constexpr auto kNumControl = static_cast<int32_t>(std::size(kControlTokens));

constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

// All bytes in stored text, the ones of plain English first: the first merges are of those.
std::array<std::string, kBytes> StoredBytes() {
  constexpr int kFirst = ' ';
  constexpr int kPrintable = '~' - ' ' + 1;
  std::array<std::string, kBytes> stored;
  for (int i = 0; i < kBytes; ++i) {
    int byte = kFirst + i;
    if (i >= kPrintable) byte = i - kPrintable < kFirst ? i - kPrintable : i;
    const char c = static_cast<char>(byte);
    stored[static_cast<size_t>(i)] = EncodeByteLevel({&c, 1});
  }
  return stored;
}

}  // namespace

Result<Vocabulary> MakeSynthVocabulary(std::string_view architecture, int32_t size) {
  const int32_t num_normal = size - kNumControl;
  if (num_normal < kBytes || static_cast<size_t>(size) > kMaxVocabSize) {
    return InvalidArgumentError("a byte-level vocabulary has {}..{} tokens, not {}",
                                kBytes + kNumControl, kMaxVocabSize, size);
  }
  Vocabulary v;
  v.model = "gpt2";
  v.pre = architecture.starts_with("qwen") ? "qwen2" : "smollm";
  v.tokens.reserve(static_cast<size_t>(size));
  const std::array<std::string, kBytes> bytes = StoredBytes();
  v.tokens.assign(bytes.begin(), bytes.end());
  // Each token in turn, followed by each byte: all pairs, then triples that begin with a pair.
  for (size_t left = 0; v.tokens.size() < static_cast<size_t>(num_normal); ++left) {
    for (const std::string& byte : bytes) {
      if (v.tokens.size() == static_cast<size_t>(num_normal)) break;
      v.merges.push_back(v.tokens[left] + " " + byte);
      v.tokens.push_back(v.tokens[left] + byte);
    }
  }
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  for (const char* control : kControlTokens) {
    v.tokens.emplace_back(control);
    v.types.push_back(TokenType::kControl);
  }
  v.bos = TokenId(num_normal);
  v.eos = TokenId(num_normal + 1);
  v.padding = TokenId(num_normal + 2);
  v.chat_template = kChatTemplate;
  return v;
}

void AddVocabularyTo(GgufHeader& header, const Vocabulary& vocabulary) {
  std::vector<int32_t> types;
  types.reserve(vocabulary.types.size());
  for (const TokenType type : vocabulary.types) types.push_back(static_cast<int32_t>(type));
  header.AddString("tokenizer.ggml.model", vocabulary.model);
  header.AddString("tokenizer.ggml.pre", vocabulary.pre);
  header.AddStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  header.AddI32s("tokenizer.ggml.token_type", types);
  header.AddStrings("tokenizer.ggml.merges", vocabulary.merges);
  const auto add_id = [&](const char* key, TokenId id) {
    header.AddU32(key, static_cast<uint32_t>(id.value()));
  };
  add_id("tokenizer.ggml.bos_token_id", vocabulary.bos.value());
  add_id("tokenizer.ggml.eos_token_id", vocabulary.eos.value());
  add_id("tokenizer.ggml.padding_token_id", vocabulary.padding.value());
  header.AddBool("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  header.AddBool("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  header.AddString("tokenizer.chat_template", vocabulary.chat_template);
}

}  // namespace tandem
