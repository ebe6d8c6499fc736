// Compares docs/formats/http-api.md with the tables in the code.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "server/api.h"
#include "server/api_error.h"
#include "server/chat_message.h"
#include "server/chat_request.h"
#include "server/chat_tools.h"
#include "server/completion_endpoint.h"
#include "server/completion_request.h"
#include "server/generation_fields.h"
#include "server/http_server.h"
#include "server/tokenize_request.h"

namespace tandem {
namespace {

using Row = std::vector<std::string>;

std::string Trim(std::string text) {
  const size_t begin = text.find_first_not_of(" `");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" `") - begin + 1);
}

// The rows of the tables under the line `heading`, up to the next heading or the next plain line
// that ends in ':'.
std::vector<Row> RowsUnder(const std::string& heading) {
  std::ifstream file(TANDEM_SOURCE_DIR "/docs/formats/http-api.md");
  std::vector<Row> rows;
  bool inside = false;
  bool found = false;
  for (std::string line; std::getline(file, line);) {
    if (line == heading) {
      inside = found = true;
    } else if (line.starts_with("#") || (line.ends_with(":") && !line.starts_with("|"))) {
      inside = false;
    } else if (inside && line.starts_with("| ")) {
      Row row;
      std::istringstream cells(line.substr(1));
      for (std::string cell; std::getline(cells, cell, '|');) row.push_back(Trim(cell));
      rows.push_back(row);
    }
  }
  EXPECT_TRUE(found) << heading;
  EXPECT_FALSE(rows.empty()) << heading;
  if (!rows.empty()) rows.erase(rows.begin());  // the table's head
  return rows;
}

void ExpectFields(const std::string& heading, const std::vector<FieldInfo>& fields) {
  std::map<std::string, Row> documented;
  for (const Row& row : RowsUnder(heading)) {
    EXPECT_TRUE(documented.emplace(row.at(0), row).second) << row[0] << " twice";
  }
  for (const FieldInfo& field : fields) {
    const auto it = documented.find(std::string(field.name));
    ASSERT_NE(it, documented.end()) << field.name << " is not documented";
    EXPECT_EQ(it->second.at(1), NameOf(field.use)) << field.name;
    if (field.use == FieldUse::kRefused) {
      const std::string note =
          field.neutral.empty() ? "" : fmt::format("accepted as `{}", field.neutral);
      EXPECT_EQ(it->second.at(2), note) << field.name;
    }
    documented.erase(it);
  }
  for (const auto& [name, row] : documented) ADD_FAILURE() << name << " is not in the code";
}

TEST(ApiDocument, FieldsAreThoseOfTheCode) {
  ExpectFields("### Fields that all requests for text share", GenerationFieldInfos());
  ExpectFields("### Fields of stream_options", StreamOptionsFields());
  ExpectFields("### Fields of a chat", ChatRequestFields());
  ExpectFields("### Fields of a conversation", RenderingFieldInfos());
  ExpectFields("### Fields of a message", ChatMessageFields());
  ExpectFields("### Fields of a tool call in a message", ToolCallFields());
  ExpectFields("### Fields of a tool", ToolFields());
  ExpectFields("### Fields of a tool's function", ToolFunctionFields());
  ExpectFields("### Fields of a completion", CompletionRequestFields());
  ExpectFields("### Fields of /tokenize", TokenizeRequestFields());
  ExpectFields("### Fields of /detokenize", DetokenizeRequestFields());
}

TEST(ApiDocument, RoutesAreThoseOfTheCode) {
  std::set<std::string> documented;
  for (const Row& row : RowsUnder("## Routes")) documented.insert(row.at(0) + " " + row.at(1));
  std::set<std::string> known;
  for (const ApiRoute& route : ApiRoutes())
    known.insert(fmt::format("{} {}", route.method, route.path));
  EXPECT_EQ(documented, known);
}

TEST(ApiDocument, ErrorsAreThoseOfTheCode) {
  std::set<std::string> documented;
  for (const Row& row : RowsUnder("What the engine says, by its status:")) {
    documented.insert(
        fmt::format("{} {} {} {} {}", row.at(0), row.at(1), row.at(2), row.at(3), row.at(4)));
  }
  std::set<std::string> known;
  for (const StatusMapping& row : StatusMappings()) {
    known.insert(fmt::format("{} {} {} {} {}", StatusCodeName(row.status), row.http_status,
                             row.type, row.code, row.retry_after_ms));
  }
  EXPECT_EQ(documented, known);

  documented.clear();
  for (const Row& row : RowsUnder("Found by the HTTP layer:")) {
    documented.insert(fmt::format("{} {} {}", row.at(0), row.at(1), row.at(2)));
  }
  known.clear();
  for (const HttpErrorMapping& row : HttpErrorMappings()) {
    known.insert(fmt::format("{} {} {}", row.http_status, row.type, row.code));
  }
  EXPECT_EQ(documented, known);
}

TEST(ApiDocument, LimitsAreThoseOfTheCode) {
  const HttpConfig config;
  EXPECT_EQ(config.body_bytes_max, 8u << 20);
  EXPECT_EQ(config.header_bytes_max, 16u << 10);
  EXPECT_EQ(config.all_bodies_bytes_max, 256u << 20);
  EXPECT_EQ(config.unread_bytes_max, 1u << 20);
  EXPECT_EQ(config.header_timeout_ms, 10'000);
  EXPECT_EQ(config.body_timeout_ms, 60'000);
  EXPECT_EQ(config.idle_timeout_ms, 120'000);
  EXPECT_EQ(config.write_timeout_ms, 60'000);
  EXPECT_EQ(kStopStringsMax, 4u);
  EXPECT_EQ(kStopCharsMax, 1024);
  EXPECT_EQ(kStopTokenIdsMax, 32u);
  EXPECT_EQ(kMaxLogitBias, 1024);
  EXPECT_EQ(kMaxTopLogprobs, 20);
  EXPECT_EQ(kSamplesMax, 128);
  EXPECT_EQ(kCacheSaltCharsMax, 256);
  EXPECT_EQ(kDeadlineMsMax, 1e9);
  EXPECT_EQ(kChoicesMax, 256);
  EXPECT_EQ(kToolsMax, 128u);
  EXPECT_EQ(kCompletionTokensDefault, 16);
  EXPECT_EQ(kTokenizeBytesMax, 1u << 20);
  EXPECT_EQ(kJsonDepthMax, 64);
  EXPECT_EQ(kJsonKeysMax, 2000u);
  EXPECT_EQ(kJsonValuesMax, 500'000);
}

}  // namespace
}  // namespace tandem
