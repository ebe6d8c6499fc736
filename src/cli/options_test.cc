#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/test_dir.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParsedCommandLine Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "tandem");
  return ParseCommandLine(static_cast<int>(args.size()), args.data());
}

// What a refused command line says.
std::string Refusal(std::vector<const char*> args) {
  testing::internal::CaptureStderr();
  const ParsedCommandLine parsed = Parse(std::move(args));
  std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(parsed.exit_code, 2) << said;
  return said;
}

TEST(CommandLine, WithoutCommandMeansRun) {
  const ParsedCommandLine parsed = Parse({"why is the sky blue?", "-n", "5", "--seed", "7"});
  ASSERT_FALSE(parsed.exit_code.has_value());
  EXPECT_EQ(parsed.options.command, "run");
  EXPECT_EQ(parsed.options.terminal.prompt, "why is the sky blue?");
  EXPECT_EQ(parsed.options.terminal.max_tokens, 5);
  EXPECT_EQ(parsed.options.terminal.seed, 7U);
  EXPECT_EQ(Parse({}).options.command, "run");
}

TEST(CommandLine, ListsTakeOneValueAtATime) {
  const ParsedCommandLine parsed =
      Parse({"serve", "--served-model-name", "a", "--served-model-name=b", "--api-key", "k"});
  ASSERT_FALSE(parsed.exit_code.has_value());
  EXPECT_THAT(parsed.options.serve.served_model_names, ElementsAre("a", "b"));
  EXPECT_THAT(parsed.options.serve.api_keys, ElementsAre("k"));
  EXPECT_THAT(parsed.options.serve.cors_origins, IsEmpty());
  EXPECT_THAT(Refusal({"serve", "--served-model-name", "a", "b"}), HasSubstr("argument 'b'"));
}

TEST(CommandLine, RefusalsSayWhatIsAllowed) {
  EXPECT_THAT(Refusal({"serve", "--max-seq", "3"}), HasSubstr("did you mean --max-seqs?"));
  EXPECT_THAT(Refusal({"serve", "--port=-1"}), HasSubstr("a whole number from 0 to 65535"));
  EXPECT_THAT(Refusal({"hi", "--top-p", "0"}), HasSubstr("'0' is not a number from"));
  EXPECT_THAT(Refusal({"hi", "--temperature", "1e999"}), HasSubstr("is not a number from 0 to 2"));
  EXPECT_THAT(Refusal({"hi", "--log-level", "debg"}), HasSubstr("did you mean debug?"));
  EXPECT_THAT(Refusal({"bench", "fast"}), HasSubstr("limits, decode, prefill"));
  EXPECT_THAT(Refusal({"bnch", "limits"}), HasSubstr("did you mean bench?"));
  EXPECT_FALSE(Parse({"run", "bnch"}).exit_code.has_value());
}

TEST(CommandLine, AConfigurationFileFillsInWhatItDoesNotSay) {
  const TestDir dir;
  const std::string path = dir.Write("tandem.conf",
                                     "port = 9000\n"
                                     "max-seqs = 3\n"
                                     "no-cache = true\n"
                                     "api-key = one\n"
                                     "api-key = two\n"
                                     "served-model-name = file\n");
  const ParsedCommandLine parsed =
      Parse({"serve", "--max-seqs", "5", "--config", path.c_str(), "--served-model-name", "line"});
  ASSERT_FALSE(parsed.exit_code.has_value());
  const Options& options = parsed.options;
  EXPECT_EQ(options.serve.port, 9000);
  EXPECT_EQ(options.model.max_seqs, 5);
  EXPECT_TRUE(options.model.no_cache);
  EXPECT_THAT(options.serve.api_keys, ElementsAre("one", "two"));
  EXPECT_THAT(options.serve.served_model_names, ElementsAre("line"));
  EXPECT_EQ(options.serve.host, "127.0.0.1");
}

TEST(CommandLine, AConfigurationFileIsCheckedLikeFlags) {
  const TestDir dir;
  for (const auto& [text, message] :
       {std::pair<const char*, const char*>{"\nmax-seq = 3\n", ":2: 'tandem serve' has no flag"},
        {"host = a\nport = x\n", ":2: --port: 'x' is not"},
        {"port = 1\n\nport = 2\n", ":3: --port is set on line 1 already"},
        {"no-cache = 1\n", ":1: --no-cache: '1' is not true or false"},
        {"api-key =\n", ":1: --api-key: may not be empty"},
        {"help = true\n", ":1: 'help' belongs on the command line"}}) {
    const std::string path = dir.Write("tandem.conf", text);
    EXPECT_THAT(Refusal({"serve", "--config", path.c_str()}), HasSubstr(path + message)) << text;
  }
  EXPECT_THAT(Refusal({"serve", "--config", "/nonexistent"}), HasSubstr("/nonexistent"));
}

}  // namespace
}  // namespace tandem
