// Any bytes as a template, rendered for a small conversation: no crash, and limits that hold.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/unicode.h"

namespace {

const tandem::jinja::Json& Messages() {
  static const auto* const kMessages = new tandem::jinja::Json(tandem::jinja::Json::parse(
      R"([{"role": "system", "content": " S "}, {"role": "user", "content": "aé中😀\n"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
           "arguments": {"a": [1, 2.5, null, true, {"b": {}}]}}}]}])"));
  return *kMessages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = tandem::ChatTemplate::Create(source, "<s>", "</s>");
  if (!compiled.ok()) return 0;
  tandem::RenderOptions options;
  options.limits.max_steps = 100'000;
  options.limits.max_output_bytes = 1 << 20;
  options.limits.max_allocated_bytes = 16 << 20;
  options.tools = Messages();
  options.extra = {{"d", {{"k", 1}}}, {"s", "text"}, {"n", 5}};
  const auto text = compiled->RenderMarked(Messages(), options);
  if (text.ok()) {
    TANDEM_CHECK_LE(text->size(), options.limits.max_output_bytes);
    TANDEM_CHECK(tandem::IsValidUtf8(text->text()));
    size_t last = 0;
    for (const tandem::ByteSpan& span : text->data()) {
      TANDEM_CHECK(span.begin < span.end && span.end <= text->size());
      TANDEM_CHECK(span.begin > last || (last == 0 && span.begin == 0));
      last = span.end;
    }
  }
  return 0;
}
