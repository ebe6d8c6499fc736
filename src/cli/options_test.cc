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
  EXPECT_THAT(Refusal({"bench", "fast"}), HasSubstr("limits, fabric, decode, prefill"));
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

TEST(HandoffFlags, MakeAPrefillAndADecodeNode) {
  const ParsedCommandLine prefill =
      Parse({"serve", "--role", "prefill", "--handoff-listen", "127.0.0.1:9100"});
  ASSERT_FALSE(prefill.exit_code.has_value());
  EXPECT_TRUE(prefill.options.handoff.sends());
  EXPECT_FALSE(prefill.options.handoff.fetches());
  const ParsedCommandLine decode =
      Parse({"serve", "--role", "decode", "--prefill", "a:1,[::1]:2", "--handoff-min-tokens=32",
             "--handoff-nic", "10.0.0.1,10.0.0.2"});
  ASSERT_FALSE(decode.exit_code.has_value());
  EXPECT_TRUE(decode.options.handoff.fetches());
  EXPECT_THAT(*FixedPrefillNodes(decode.options.handoff), ElementsAre("a:1", "[::1]:2"));
  EXPECT_THAT(FabricHosts(decode.options.handoff), ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_THAT(FabricHosts(prefill.options.handoff), ElementsAre("127.0.0.1"));
  EXPECT_FALSE(Parse({"serve"}).options.handoff.any());
  EXPECT_FALSE(Parse({"serve", "--prefill", "127.0.0.1:1", "--handoff-listen", "127.0.0.1:0"})
                   .exit_code.has_value())
      << "a node of both roles may do both";
}

TEST(HandoffFlags, AreRefusedByNameWhereTheyDoNotGoTogether) {
  struct Case {
    std::vector<const char*> flags;
    const char* said;
  };
  const Case cases[] = {
      {{"--role", "prefil"}, "did you mean prefill?"},
      {{"--role", "prefill"}, "--role prefill needs --handoff-listen"},
      {{"--role", "prefill", "--handoff-listen", "h:1", "--prefill", "a:1"},
       "--prefill does not go with --role prefill"},
      {{"--role", "decode"}, "--role decode needs prefill nodes"},
      {{"--role", "decode", "--prefill", "a:1", "--handoff-listen", "h:1"},
       "--handoff-listen does not go with --role decode"},
      {{"--role", "decode", "--prefill", "a:1,b"}, "--prefill: 'b' has no port"},
      {{"--role", "decode", "--prefill", "a:1,"}, "--prefill: ''"},
      {{"--role", "decode", "--etcd", "https://e:1"}, "--etcd: https://e:1: etcd is asked over"},
      {{"--etcd", "http://e:1"}, "--etcd needs --role prefill"},
      {{"--role", "prefill", "--handoff-listen", "0.0.0.0:1", "--etcd", "http://e:1"},
       "say which with --handoff-advertise"},
      {{"--role", "prefill", "--handoff-listen", "9100"}, "--handoff-listen: '9100' has no port"},
      {{"--handoff-key-file", "k"}, "--handoff-key-file needs other nodes"},
      {{"--handoff-timeout", "5"}, "--handoff-timeout needs other nodes"},
      {{"--handoff-advertise", "a:1"}, "it needs --etcd"},
      {{"--prefill", "a:1", "--handoff-trace", "t"}, "it needs --handoff-listen"},
      {{"--prefill", "a:1"}, "say which with --handoff-nic"},
      {{"--prefill", "127.0.0.1:1", "--handoff-nic", "10.0.0.1,"}, "an address is empty"},
      {{"--handoff-listen", "0.0.0.0:1"}, "with --handoff-nic"},
      {{"--prefill", "a:1", "--tensor-parallel", "2"}, "--tensor-parallel 2 and hand-off"},
      {{"--prefil", "a:1"}, "did you mean --prefill?"},
      {{"--handoff-listn", "a:1"}, "did you mean --handoff-listen?"},
  };
  for (Case c : cases) {
    c.flags.insert(c.flags.begin(), "serve");
    EXPECT_THAT(Refusal(c.flags), HasSubstr(c.said));
  }
  EXPECT_THAT(Refusal({"run", "--role", "decode"}), HasSubstr("unknown flag --role"));
}

}  // namespace
}  // namespace tandem
