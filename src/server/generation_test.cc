#include "server/generation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "server/test_engine.h"
#include "text/unicode.h"

namespace tandem {
namespace {

struct Outcome {
  std::string text;
  std::optional<FinishReason> finish;
  Usage usage;
  bool operator==(const Outcome&) const = default;
};

// Runs posted tasks when the test says so.
class TaskList {
 public:
  TextGeneration::Post post() {
    return [this](std::function<void()> task) {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    };
  }
  void RunAll() {
    for (;;) {
      std::function<void()> task;
      {
        std::lock_guard lock(mutex_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  size_t size() {
    std::lock_guard lock(mutex_);
    return tasks_.size();
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
};

Request OneTokenPrompt() {
  Request request;
  request.prompt = BytesAsTokens("p");
  return request;
}

// The engine's outputs for `tokens`, cut at `borders`; the end comes with the last tokens or alone
// after them.
Outcome Assemble(const Tokenizer& tokenizer, const std::vector<std::string>& stop,
                 const std::vector<TokenId>& tokens, const std::vector<size_t>& borders,
                 FinishReason reason, bool end_alone) {
  TextAssembler assembler = TextAssembler::Create(tokenizer, {.stop = stop}).value();
  Outcome outcome;
  size_t from = 0;
  std::vector<size_t> cuts = borders;
  cuts.push_back(tokens.size());
  if (end_alone) cuts.push_back(tokens.size());
  for (size_t i = 0; i < cuts.size() && !assembler.finished(); ++i) {
    RequestOutput output;
    output.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(from),
                         tokens.begin() + static_cast<std::ptrdiff_t>(cuts[i]));
    output.prompt_tokens = 3;
    from = cuts[i];
    if (i + 1 == cuts.size()) output.finish = reason;
    const TextOutput text = assembler.Append(output);
    EXPECT_TRUE(IsValidUtf8(text.delta));
    outcome.text += text.delta;
    outcome.finish = text.finish;
    outcome.usage = text.usage;
  }
  return outcome;
}

class TextAssemblerTest : public testing::Test {
 protected:
  // Every way to cut up to 12 tokens, or 500 random ones, gives the same.
  void ExpectSame(std::string_view bytes, const std::vector<std::string>& stop, FinishReason reason,
                  const Outcome& expected) {
    const std::vector<TokenId> tokens = BytesAsTokens(bytes);
    const size_t gaps = tokens.empty() ? 0 : tokens.size() - 1;
    const bool all = gaps <= 11;
    std::mt19937 random(1);
    for (uint32_t i = 0; i < (all ? 1u << gaps : 500u); ++i) {
      const uint64_t mask = all ? i : (uint64_t{random()} << 32 | random());
      std::vector<size_t> borders;
      for (size_t gap = 0; gap < gaps; ++gap) {
        if (mask >> (gap % 64) & 1) borders.push_back(gap + 1);
      }
      for (const bool end_alone : {false, true}) {
        ASSERT_EQ(Assemble(*tokenizer_, stop, tokens, borders, reason, end_alone), expected)
            << bytes << " cut by mask " << mask;
      }
    }
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = MakeByteTokenizer();
};

TEST_F(TextAssemblerTest, EveryCutGivesTheSameText) {
  ExpectSame("plain words", {}, FinishReason::kStop, {"plain words", FinishReason::kStop, {3, 11}});
  ExpectSame("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", {}, FinishReason::kLength,
             {"a\u00e9\u20ac\U0001F600z", FinishReason::kLength, {3, 11}});
}

TEST_F(TextAssemblerTest, BrokenCharactersAreReplacedOnce) {
  ExpectSame("a\xE2\x82", {}, FinishReason::kLength, {"a\uFFFD", FinishReason::kLength, {3, 3}});
  ExpectSame("a\xFF\xE2\x82z", {}, FinishReason::kStop,
             {"a\uFFFD\uFFFDz", FinishReason::kStop, {3, 5}});
}

TEST_F(TextAssemblerTest, StopStringsAreCutExactlyAndTheirTokensCount) {
  ExpectSame("one STOP two", {"STOP"}, FinishReason::kLength,
             {"one ", FinishReason::kStop, {3, 8}});
  ExpectSame("ab\ncd\n\nef", {"\n\n", "zz"}, FinishReason::kStop,
             {"ab\ncd", FinishReason::kStop, {3, 7}});
  ExpectSame("x\xE2\x82\xACy", {"\u20ac"}, FinishReason::kStop, {"x", FinishReason::kStop, {3, 4}});
}

TEST_F(TextAssemblerTest, BeginningsOfStopStringsAreGivenBackAtTheEnd) {
  ExpectSame("one STO", {"STOP"}, FinishReason::kLength,
             {"one STO", FinishReason::kLength, {3, 7}});
  ExpectSame("ST STO STOQ", {"STOP"}, FinishReason::kStop,
             {"ST STO STOQ", FinishReason::kStop, {3, 11}});
}

TEST_F(TextAssemblerTest, LongTextsWithManyStops) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "na\xC3\xAFve ##";
  ExpectSame(text + "###END tail", {"###E", "never"}, FinishReason::kLength,
             {text + "", FinishReason::kStop, {3, static_cast<int32_t>(text.size()) + 4}});
}

TEST_F(TextAssemblerTest, ReasoningIsCountedAtTheBeginningOnly) {
  constexpr int kBegin = 256;
  constexpr int kEnd = 257;
  const auto count = [&](bool begun, const std::vector<int>& ids) {
    TextOptions options;
    options.reasoning = {TokenId(kBegin), TokenId(kEnd), begun};
    TextAssembler assembler = TextAssembler::Create(*tokenizer_, options).value();
    RequestOutput output;
    for (const int id : ids) output.tokens.emplace_back(id);
    return assembler.Append(output).usage.reasoning_tokens;
  };
  EXPECT_EQ(count(false, {kBegin, 'a', 'b', kEnd, 'c'}), 4);
  EXPECT_EQ(count(false, {'\n', kBegin, 'a'}), 2) << "blanks before it are neither";
  EXPECT_EQ(count(false, {'a', kBegin, 'b', kEnd}), 0) << "not at the beginning";
  EXPECT_EQ(count(false, {kBegin, 'a', kEnd, kBegin, 'b'}), 3);
  EXPECT_EQ(count(true, {'a', kEnd, 'b'}), 2);
  EXPECT_EQ(count(true, {kBegin, 'a', kEnd, 'b'}), 3);
}

TEST_F(TextAssemblerTest, ControlTokensAreNotText) {
  TextAssembler assembler = TextAssembler::Create(*tokenizer_, {}).value();
  RequestOutput output;
  output.tokens = {TokenId('a'), TokenId(256), TokenId('b')};
  output.finish = FinishReason::kLength;
  const TextOutput text = assembler.Append(output);
  EXPECT_EQ(text.delta, "ab");
  EXPECT_EQ(text.usage.completion_tokens, 3);
}

// Text, tokens with their place and whether they are in the text, of one cut.
struct Reported {
  std::string text;
  std::vector<std::string> tokens;
  bool operator==(const Reported&) const = default;
};

Reported Report(const Tokenizer& tokenizer, TextOptions options, const std::vector<TokenId>& tokens,
                std::mt19937* random) {
  options.report_tokens = true;
  options.logprobs_per_token = 2;
  TextAssembler assembler = TextAssembler::Create(tokenizer, std::move(options)).value();
  Reported out;
  size_t from = 0;
  while (!assembler.finished()) {
    RequestOutput output;
    const size_t count =
        random ? std::min<size_t>((*random)() % 4, tokens.size() - from) : tokens.size();
    for (size_t i = 0; i < count; ++i) {
      output.tokens.push_back(tokens[from++]);
      AppendLogprobs(output.tokens.back(), 1, output.logprobs);
    }
    if (from == tokens.size()) output.finish = FinishReason::kLength;
    const TextOutput text = assembler.Append(output);
    out.text += text.delta;
    for (const TextToken& token : text.tokens) {
      EXPECT_EQ(token.logprobs.size(), 2u);
      EXPECT_EQ(token.logprobs[0].token, token.token);
      out.tokens.push_back(fmt::format("{}@{}{}{}", token.token.value(), token.text_begin,
                                       token.in_text ? "" : "-", token.hidden ? "h" : ""));
    }
  }
  return out;
}

TEST_F(TextAssemblerTest, TokensAreReportedWithTheirPlaceForEveryCut) {
  // é is two tokens, 256 has no text, "ST" is the beginning of a stop string that comes later.
  std::vector<TokenId> tokens = BytesAsTokens("a\xC3\xA9");
  tokens.emplace_back(256);
  for (const TokenId token : BytesAsTokens("STSTOPz")) tokens.push_back(token);
  const Reported whole = Report(*tokenizer_, {.stop = {"STOP"}}, tokens, nullptr);
  EXPECT_EQ(whole.text, "a\u00e9ST");
  EXPECT_EQ(whole.tokens, (std::vector<std::string>{"97@0", "195@1", "169@1", "256@2h", "83@2",
                                                    "84@3", "83@4-", "84@5-", "79@6-", "80@7-"}));
  const TextOptions with_stop{.stop = {"STOP"}, .include_stop = true};
  const Reported included = Report(*tokenizer_, with_stop, tokens, nullptr);
  EXPECT_EQ(included.text, "a\u00e9STSTOP");
  EXPECT_EQ(included.tokens.back(), "80@7");
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(Report(*tokenizer_, {.stop = {"STOP"}}, tokens, &random), whole);
    EXPECT_EQ(Report(*tokenizer_, with_stop, tokens, &random), included);
  }
}

TEST_F(TextAssemblerTest, FirstTokensMayBeKeptFromStopping) {
  const std::vector<TokenId> tokens = BytesAsTokens("xxaxx");
  EXPECT_EQ(Report(*tokenizer_, {.stop = {"x"}}, tokens, nullptr).text, "");
  EXPECT_EQ(Report(*tokenizer_, {.stop = {"x"}, .min_tokens = 2}, tokens, nullptr).text, "xxa");
  EXPECT_EQ(Report(*tokenizer_, {.stop = {"x"}, .min_tokens = 9}, tokens, nullptr).text, "xxaxx");
}

TEST_F(TextAssemblerTest, ControlTokensAreTextWhereWanted) {
  const std::vector<TokenId> tokens = {TokenId('a'), TokenId(256), TokenId(257)};
  EXPECT_EQ(Report(*tokenizer_, {}, tokens, nullptr).text, "a");
  EXPECT_EQ(Report(*tokenizer_, {.hide_special = false}, tokens, nullptr).text,
            "a<|im_start|><|im_end|>");
  EXPECT_EQ(Report(*tokenizer_, {.shown_special = {TokenId(256)}}, tokens, nullptr).text,
            "a<|im_start|>");
}

TEST_F(TextAssemblerTest, TheOnlyCallEndsTheAnswer) {
  const std::string call = "<tool_call>{\"name\": \"f\"}</tool_call>";
  const auto assemble = [&](std::string_view text, size_t per_output, int32_t min_tokens) {
    TextOptions options{.stop = {">>"}, .min_tokens = min_tokens};
    options.one_call = AnswerParser::Options{
        .format = {ToolFormat::kHermes}, .tools = true, .prompt_end = {}, .forced_begin = {}};
    TextAssembler assembler = TextAssembler::Create(*tokenizer_, std::move(options)).value();
    Outcome outcome;
    for (size_t pos = 0; pos < text.size() && !assembler.finished(); pos += per_output) {
      RequestOutput output;
      output.tokens = BytesAsTokens(text.substr(pos, per_output));
      if (pos + per_output >= text.size()) output.finish = FinishReason::kLength;
      const TextOutput made = assembler.Append(output);
      outcome.text += made.delta;
      outcome.finish = made.finish;
      outcome.usage = made.usage;
      EXPECT_EQ(made.stop_reason, StopReason());
    }
    return outcome;
  };
  const auto size = static_cast<int32_t>(call.size());
  for (const size_t per_output : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    // The closing bracket may begin a stop string: what follows it decides.
    EXPECT_EQ(assemble("A " + call + "\n" + call, per_output, 0),
              (Outcome{"A " + call + "\n", FinishReason::kStop, {0, size + 3}}));
    EXPECT_EQ(assemble(call + "\n" + call + "..", per_output, size + 4),
              (Outcome{call + "\n" + call.substr(0, 4), FinishReason::kStop, {0, size + 5}}));
    EXPECT_EQ(assemble("no call", per_output, 0),
              (Outcome{"no call", FinishReason::kLength, {0, 7}}));
  }
}

TEST_F(TextAssemblerTest, SaysWhatStoppedIt) {
  const auto reason = [&](std::string_view text, FinishReason finish, std::optional<int> token) {
    TextOptions options{.stop = {"never", "STOP"}, .named_stop_tokens = {TokenId(7)}};
    TextAssembler assembler = TextAssembler::Create(*tokenizer_, std::move(options)).value();
    RequestOutput output;
    output.tokens = BytesAsTokens(text);
    output.finish = finish;
    if (token) output.stop_token = TokenId(*token);
    return assembler.Append(output).stop_reason;
  };
  EXPECT_EQ(reason("a STOP", FinishReason::kLength, std::nullopt), StopReason("STOP"));
  EXPECT_EQ(reason("a STOP", FinishReason::kStop, 7), StopReason("STOP"));
  EXPECT_EQ(reason("a", FinishReason::kStop, 7), StopReason(TokenId(7)));
  EXPECT_EQ(reason("a", FinishReason::kStop, 257), StopReason());
  EXPECT_EQ(reason("a", FinishReason::kStop, std::nullopt), StopReason());
  EXPECT_EQ(reason("a", FinishReason::kLength, std::nullopt), StopReason());
}

class CountingObserver final : public GenerationObserver {
 public:
  void OnPrompt(int32_t prompt_tokens, int32_t cached_tokens) override {
    prompts.emplace_back(prompt_tokens, cached_tokens);
  }
  void OnEnd(FinishReason reason) override { ends.push_back(reason); }

  std::vector<std::pair<int32_t, int32_t>> prompts;
  std::vector<FinishReason> ends;
};

class TextGenerationTest : public testing::Test {
 protected:
  Result<std::shared_ptr<TextGeneration>> Start(std::vector<std::string> stop = {}) {
    return TextGeneration::Start(engine_, *tokenizer_,
                                 {OneTokenPrompt(), {.stop = std::move(stop)}, observer_},
                                 tasks_.post(), [this](TextOutput output) {
                                   outcome_.text += output.delta;
                                   outcome_.usage = output.usage;
                                   if (output.finish) {
                                     ++finishes_;
                                     outcome_.finish = output.finish;
                                     status_ = output.status;
                                   }
                                 });
  }

  std::shared_ptr<const Tokenizer> tokenizer_ = MakeByteTokenizer();
  std::shared_ptr<CountingObserver> observer_ = std::make_shared<CountingObserver>();
  FakeEngine engine_;
  TaskList tasks_;
  Outcome outcome_;
  Status status_;
  int finishes_ = 0;
};

TEST_F(TextGenerationTest, DeliversWhereItIsPosted) {
  const auto generation = Start();
  ASSERT_TRUE(generation.ok());
  engine_.Emit((*generation)->id(), "hel");
  EXPECT_EQ(outcome_.text, "") << "nothing happens on the engine's thread";
  tasks_.RunAll();
  EXPECT_EQ(outcome_.text, "hel");
  engine_.Emit((*generation)->id(), "lo");
  engine_.Finish((*generation)->id(), FinishReason::kStop);
  tasks_.RunAll();
  EXPECT_EQ(outcome_, (Outcome{"hello", FinishReason::kStop, {1, 5}}));
  EXPECT_EQ(finishes_, 1);
}

TEST_F(TextGenerationTest, AStopStringCancelsTheEngineAndNothingLeaks) {
  const auto generation = Start({"STOP"});
  ASSERT_TRUE(generation.ok());
  engine_.Emit((*generation)->id(), "a ST");
  engine_.Emit((*generation)->id(), "OP secret");
  engine_.Emit((*generation)->id(), "more");  // the engine runs ahead
  tasks_.RunAll();
  EXPECT_EQ(engine_.cancelled(), 1);
  tasks_.RunAll();
  EXPECT_EQ(outcome_, (Outcome{"a ", FinishReason::kStop, {1, 6}}));
  EXPECT_EQ(finishes_, 1);
}

TEST_F(TextGenerationTest, AStopStringInTheLastOutputCancelsNothing) {
  const auto generation = Start({"lo"});
  ASSERT_TRUE(generation.ok());
  engine_.Emit((*generation)->id(), "hel");
  engine_.Emit((*generation)->id(), "");
  engine_.Finish((*generation)->id(), FinishReason::kLength);
  tasks_.RunAll();
  EXPECT_EQ(outcome_.text, "hel");
  EXPECT_EQ(outcome_.finish, FinishReason::kLength);
  EXPECT_EQ(engine_.cancelled(), 0);
}

TEST_F(TextGenerationTest, CancelDeliversACancelledEnd) {
  const auto generation = Start();
  ASSERT_TRUE(generation.ok());
  engine_.Emit((*generation)->id(), "par");
  (*generation)->Cancel();
  (*generation)->Cancel();
  tasks_.RunAll();
  EXPECT_EQ(outcome_, (Outcome{"par", FinishReason::kCancelled, {1, 3}}));
  EXPECT_EQ(finishes_, 1);
}

TEST_F(TextGenerationTest, ACompleteTextIsNoCancelledRequest) {
  using Ends = std::vector<FinishReason>;
  const auto stopped = Start({"STOP"});
  engine_.Emit((*stopped)->id(), "");
  EXPECT_TRUE(observer_->prompts.empty());
  engine_.Emit((*stopped)->id(), "STOP");
  EXPECT_EQ(observer_->prompts.size(), 1u);
  tasks_.RunAll();
  EXPECT_EQ(observer_->ends, Ends{FinishReason::kStop});
  const auto cancelled = Start({"STOP"});
  (*cancelled)->Cancel();
  EXPECT_EQ(observer_->ends.back(), FinishReason::kCancelled);
  EXPECT_EQ(observer_->prompts.size(), 1u) << "it never ran";
  const auto ended = Start();
  engine_.Finish((*ended)->id(), FinishReason::kStop);  // its first token was the end
  EXPECT_EQ(observer_->prompts.size(), 2u);
  EXPECT_EQ(observer_->ends.back(), FinishReason::kStop);
  EXPECT_EQ(observer_->ends.size(), 3u);
  tasks_.RunAll();
}

TEST_F(TextGenerationTest, FailureCarriesItsStatus) {
  const auto generation = Start();
  ASSERT_TRUE(generation.ok());
  engine_.Finish((*generation)->id(), FinishReason::kFailed, InternalError("device lost"));
  tasks_.RunAll();
  EXPECT_EQ(outcome_.finish, FinishReason::kFailed);
  EXPECT_EQ(status_.message(), "device lost");
}

TEST_F(TextGenerationTest, RefusalsAreReturnedAndNothingIsDelivered) {
  engine_.set_refuse(ResourceExhaustedError("the queue is full"));
  const auto refused = Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tasks_.size(), 0u);
  EXPECT_FALSE(Start({""}).ok());
}

}  // namespace
}  // namespace tandem
