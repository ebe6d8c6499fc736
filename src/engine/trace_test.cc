// Runs every tests/trace/*.trace: a script of commands, each followed by the lines that it must
// print ("> ..."). With TANDEM_UPDATE_TRACES=1 in the environment the expected lines are rewritten;
// read the difference. tests/trace/README.md lists the commands.

#include <gtest/gtest.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/testing/driver.h"

namespace tandem::testing {
namespace {

// Large, so that answers hold no token twice and stop where the script says.
constexpr int32_t kVocab = 1 << 24;

class TraceRunner {
 public:
  // The script with the lines that the engine really printed.
  std::string Run(const std::string& script) {
    std::istringstream in(script);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("> ")) continue;
      out_ += line + "\n";
      if (line.empty() || line.starts_with("#")) continue;
      Parse(line);
      Execute();
      PrintOutputs();
      if (driver_ && !driver_->fault().ok()) {
        Print("fault: " + driver_->fault().ToString());
        break;
      }
    }
    return out_;
  }

 private:
  void Parse(const std::string& line) {
    std::istringstream in(line);
    in >> command_;
    argument_ = 0;
    options_.clear();
    names_.clear();
    for (std::string word; in >> word;) {
      const size_t equals = word.find('=');
      const std::string number = equals == std::string::npos ? word : word.substr(equals + 1);
      if (equals != std::string::npos && !number.empty() && std::isalpha(number[0])) {
        names_[word.substr(0, equals)] = number;
        continue;
      }
      int32_t value = -1;
      const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
      if (parsed.ec != std::errc()) Print("error: not a number: " + word);
      if (equals == std::string::npos) {
        argument_ = value;
      } else {
        options_[word.substr(0, equals)] = value;
      }
    }
  }

  int32_t Option(const std::string& name, int32_t otherwise) const {
    const auto it = options_.find(name);
    return it == options_.end() ? otherwise : it->second;
  }

  // The value that an option names, as FromName reads it.
  template <typename T>
  T NamedOption(const std::string& name, T otherwise, Result<T> (*from_name)(std::string_view)) {
    const auto it = names_.find(name);
    if (it == names_.end()) return otherwise;
    const Result<T> value = from_name(it->second);
    if (!value.ok()) Print("error: " + value.status().ToString());
    return value.ok() ? *value : otherwise;
  }

  void Execute() {
    if (command_ == "group") {
      const int32_t tokens = Option("tokens", 4);
      const int32_t blocks = Option("blocks", 16);
      const int32_t window = Option("window", 0);
      config_.groups.push_back(window > 0 ? WindowGroup(tokens, blocks, window)
                                          : PagedGroup(tokens, blocks));
    } else if (command_ == "engine") {
      StartEngine();
    } else if (command_ == "arrive") {
      Arrive();
    } else if (command_ == "cancel") {
      driver_->Cancel(RequestId(static_cast<uint64_t>(argument_)));
    } else if (command_ == "advance") {
      driver_->Advance();
    } else if (command_ == "finish") {
      if (!driver_->FinishStep()) Print("nothing runs");
    } else if (command_ == "at") {
      driver_->SetNow(argument_);
    } else if (command_ == "run") {
      for (int32_t i = 0; i < argument_ && driver_->FinishStep(); ++i) {
        PrintOutputs();
        driver_->Advance();
      }
    } else if (command_ == "fail") {
      driver_->executor().FailNext();
    } else if (command_ == "refuse") {
      driver_->executor().RefuseNext();
    } else if (command_ == "stop-admission") {
      driver_->engine().StopAdmission();
    } else if (command_ == "show") {
      Show();
    } else {
      ExecuteHandoff();
    }
  }

  // What other nodes do.
  void ExecuteHandoff() {
    FakeHandoffPort& port = driver_->port();
    const FetchId fetch(static_cast<uint64_t>(argument_));
    const SendId send(static_cast<uint64_t>(argument_));
    if (command_ == "peers") {
      driver_->Handoff(FakeHandoffPort::Peers(argument_));
    } else if (command_ == "fetch-arrived" && port.fetches().contains(fetch)) {
      driver_->Handoff(port.Arrive(fetch));
    } else if (command_ == "fetch-failed" && port.fetches().contains(fetch)) {
      driver_->Handoff(port.Fail(fetch));
    } else if (command_ == "fetch-drained" && port.fetches().contains(fetch)) {
      port.Scribble(1);
      driver_->Handoff(port.Drain(fetch));
    } else if (command_ == "send-drained" && port.sends().contains(send)) {
      driver_->Handoff(port.DrainSend(send, Option("failed", 0) == 0));
    } else {
      Print("error: unknown command, fetch or send");
    }
  }

  void StartEngine() {
    config_.vocab_size = kVocab;
    config_.policy = NamedOption("policy", config_.policy, PolicyFromName);
    config_.reservation = NamedOption("reservation", config_.reservation, ReservationFromName);
    config_.preemption = NamedOption("preemption", config_.preemption, PreemptionRuleFromName);
    config_.itl_target = Option("itl-target", 0);
    if (options_.contains("token-ns") || options_.contains("base-ns")) {
      config_.cost = LinearCost{static_cast<double>(Option("base-ns", 0)),
                                static_cast<double>(Option("token-ns", 0)),
                                static_cast<double>(Option("pair-ns", 0))};
    }
    config_.pipeline_depth = Option("depth", 0);
    config_.max_running = Option("running", 4);
    config_.token_budget = Option("budget", 16);
    config_.chunk_tokens = Option("chunk", 8);
    config_.reserve_tokens = Option("reserve", 4);
    config_.max_queue = Option("queue", 8);
    config_.context_length = Option("context", 64);
    config_.fetch.max_fetches = Option("fetches", 0);
    config_.fetch.min_tokens = Option("fetch-least", 1);
    config_.fetch.max_attempts = Option("fetch-attempts", 2);
    if (Option("cache", 0) != 0) config_.prefix_cache = PrefixCaching{.key = {1, 2}};
    driver_ = std::make_unique<EngineDriver>(config_);
    driver_->executor().SetOnPlan([this](const StepPlan& plan) {
      std::istringstream in(plan.ToText());
      for (std::string line; std::getline(in, line);) Print(line);
    });
    driver_->port().SetOnCall([this](const std::string& line) { Print(line); });
  }

  void Arrive() {
    Request request;
    request.id = RequestId(static_cast<uint64_t>(argument_));
    for (int32_t i = 0; i < Option("prompt", 1); ++i) {
      request.prompt.push_back(TokenId(Option("like", argument_) * 1000 + i));
    }
    if (options_.contains("send")) {
      request.send = SendId(static_cast<uint64_t>(Option("send", 0)));
    }
    if (options_.contains("deadline")) request.deadline = Option("deadline", 0);
    if (options_.contains("ttft-target")) request.ttft_target = Option("ttft-target", 0);
    if (options_.contains("max")) request.max_output_tokens = Option("max", 0);
    if (options_.contains("stop-after")) {
      Request endless = request;
      endless.max_output_tokens = Option("stop-after", 0) + 1;
      request.stop_tokens = {ExpectedAnswer(endless, config_.context_length, kVocab).back()};
    }
    const Status status = driver_->Arrive(std::move(request));
    if (!status.ok()) Print(status.ToString());
  }

  void Show() {
    const Scheduler& scheduler = driver_->engine().scheduler();
    Print(fmt::format("running={} waiting={}", scheduler.running(), scheduler.waiting()));
    const HandoffStats handoff = scheduler.handoff_stats();
    if (handoff.fetches + handoff.sends + handoff.sends_failed + handoff.open > 0) {
      Print(fmt::format("awaiting-kv={} sending={} open={}", handoff.requests_awaiting_kv,
                        handoff.requests_sending, handoff.open));
    }
    for (int32_t g = 0; g < scheduler.pools().num_groups(); ++g) {
      const BlockPool& pool = scheduler.pools().pool(GroupId(g));
      std::string line = fmt::format("group={} free={} reserved={} in-use={} fenced={}", g,
                                     pool.free(), pool.reserved(), pool.in_use(), pool.fenced());
      if (pool.held() > 0) line += fmt::format(" held={}", pool.held());
      if (pool.evictable() > 0) line += fmt::format(" cached={}", pool.evictable());
      Print(line);
    }
  }

  void PrintOutputs() {
    if (!driver_) return;
    for (const RequestOutput& output : driver_->outputs()) {
      Print(fmt::format("output request={} new={} total={}{}", output.id, output.tokens.size(),
                        output.output_tokens,
                        output.finish ? fmt::format(" finish={}", NameOf(*output.finish)) : ""));
      if (!output.status.ok()) Print(output.status.ToString());
      if (output.finish) driver_->CheckAnswer(driver_->records().at(output.id));
    }
    driver_->outputs().clear();
  }

  void Print(const std::string& line) { out_ += "> " + line + "\n"; }

  EngineConfig config_;
  std::unique_ptr<EngineDriver> driver_;
  std::string command_;
  int32_t argument_ = 0;
  std::map<std::string, int32_t> options_;
  std::map<std::string, std::string> names_;  // options whose value is a word
  std::string out_;
};

std::vector<std::string> TraceNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_SOURCE_DIR "/tests/trace")) {
    if (entry.path().extension() == ".trace") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Trace : public ::testing::TestWithParam<std::string> {};

TEST_P(Trace, PrintsWhatTheScriptExpects) {
  const std::string path = TANDEM_SOURCE_DIR "/tests/trace/" + GetParam() + ".trace";
  std::ifstream in(path);
  std::stringstream script;
  script << in.rdbuf();
  ASSERT_FALSE(script.str().empty());
  const std::string actual = TraceRunner().Run(script.str());
  if (const char* update = std::getenv("TANDEM_UPDATE_TRACES"); update && *update == '1') {
    std::ofstream(path) << actual;
  } else {
    EXPECT_EQ(actual, script.str());
  }
  EXPECT_EQ(actual.find("\n> fault"), std::string::npos);
  EXPECT_EQ(actual.find("\n> error"), std::string::npos);
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Files, Trace, ::testing::ValuesIn(TraceNames()), TestName);

}  // namespace
}  // namespace tandem::testing
