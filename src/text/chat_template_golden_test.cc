// Templates with the constructs of public model families, against jinja2
// (tests/golden/make_templates.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "text/chat_template.h"

namespace tandem {
namespace {

using jinja::Json;

std::tm TimeOf(const Json& fields) {
  std::tm t{};
  t.tm_year = fields[0].get<int>() - 1900;
  t.tm_mon = fields[1].get<int>() - 1;
  t.tm_mday = fields[2].get<int>();
  t.tm_hour = fields[3].get<int>();
  t.tm_min = fields[4].get<int>();
  t.tm_sec = fields[5].get<int>();
  t.tm_wday = (fields[6].get<int>() + 1) % 7;
  t.tm_yday = fields[7].get<int>() - 1;
  return t;
}

TEST(ChatTemplateGolden, RendersAsJinja2) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/chat_templates.json");
  const Json golden = Json::parse(file);
  std::map<std::string, ChatTemplate> templates;
  for (const auto& [name, source] : golden["templates"].items()) {
    auto created = ChatTemplate::Create(source.get<std::string>(), "<s>", "</s>");
    ASSERT_TRUE(created.ok()) << name << ": " << created.status().ToString();
    templates.emplace(name, std::move(*created));
  }
  EXPECT_GE(templates.size(), 18u);
  ASSERT_GT(golden["records"].size(), 300u);
  for (const Json& record : golden["records"]) {
    const std::string name = record["template"];
    RenderOptions options;
    options.add_generation_prompt = record["add_generation_prompt"].get<bool>();
    options.tools = record["tools"];
    options.extra = record["extra"];
    options.now = TimeOf(golden["now"]);
    const auto text = templates.at(name).Render(record["messages"], options);
    if (record.contains("error")) {
      EXPECT_FALSE(text.ok()) << name << record["messages"].dump();
      continue;
    }
    ASSERT_TRUE(text.ok()) << name << ": " << text.status().ToString() << record["messages"].dump();
    EXPECT_EQ(*text, record["text"].get<std::string>()) << name;
  }
}

// Whatever a template does to a message: its words stay data, and the template's own stay none.
TEST(ChatTemplateGolden, WordsOfMessagesStayData) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/golden/chat_templates.json");
  const Json golden = Json::parse(file);
  // U+03A9 stands for data; no template has it.
  const Json messages = Json::parse(R"([
    {"role": "system", "content": "\u03A9 \u03A9"},
    {"role": "user", "content": " \u03A9\u03A9\n"},
    {"role": "assistant", "content": "<think>\n\u03A9\n</think>\n\n\u03A9"},
    {"role": "user", "content": "\u03A9 \u03A9 \u03A9 \u03A9 \u03A9"}])");
  int marked = 0;
  for (const auto& [name, source] : golden["templates"].items()) {
    const auto created = ChatTemplate::Create(source.get<std::string>(), "<s>", "</s>");
    RenderOptions options;
    options.tools = Json::parse(R"([{"type": "function", "function": {"name": "\u03A9",
      "description": "\u03A9", "parameters": {"type": "object",
      "properties": {"\u03A9": {"type": "string", "description": "\u03A9"}}}}}])");
    options.extra = {{"documents", Json::array({{{"\u03A9", "\u03A9"}}})}};
    const auto text = created->RenderMarked(messages, options);
    ASSERT_TRUE(text.ok()) << name << ": " << text.status().ToString();
    std::string outside = text->text();
    for (const ByteSpan& span : text->data()) {
      const std::string data = outside.substr(span.begin, span.end - span.begin);
      EXPECT_EQ(data.find("<|"), std::string::npos) << name << ": " << data;
      marked += data.find("\u03A9") != std::string::npos ? 1 : 0;
      std::fill_n(outside.begin() + static_cast<ptrdiff_t>(span.begin), span.end - span.begin, '_');
    }
    EXPECT_EQ(outside.find("\u03A9"), std::string::npos) << name << ": " << text->text();
  }
  EXPECT_GT(marked, 60);
}

}  // namespace
}  // namespace tandem
