// What: a fake engine that does what a test tells it, and a tokenizer whose tokens are bytes.
// Not here: the tests.
// Threads: every method of FakeEngine from any thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/engine_client.h"
#include "server/test_client.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace tandem {

// Every byte is a token of the same number; 256 is <|im_start|>, 257 <|im_end|>, the end of a turn.
inline std::shared_ptr<const Tokenizer> MakeByteTokenizer() {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "smollm";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(EncodeByteLevel(std::string(1, static_cast<char>(byte))));
    vocabulary.types.push_back(TokenType::kNormal);
  }
  for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
    vocabulary.tokens.push_back(special);
    vocabulary.types.push_back(TokenType::kControl);
  }
  vocabulary.eos = TokenId(257);
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer).value());
}

inline std::vector<TokenId> BytesAsTokens(std::string_view bytes) {
  std::vector<TokenId> tokens;
  for (const char c : bytes) tokens.emplace_back(static_cast<uint8_t>(c));
  return tokens;
}

// What the fake says of a token: itself, then the `top` likeliest, of which it is the first.
inline void AppendLogprobs(TokenId token, int32_t top, std::vector<TokenLogprob>& out) {
  const auto probability = [&](int32_t rank) {
    return -0.125f * static_cast<float>(rank) - 0.01f * static_cast<float>(token.value() % 5);
  };
  out.push_back({token, probability(1), 1});
  for (int32_t i = 0; i < top; ++i) {
    out.push_back({TokenId((token.value() + i) % 256), probability(1 + i), 1 + i});
  }
}

// An engine that says what the test tells it: either each request by hand (Emit, Finish), or all of
// them a reply, some tokens at a time, from its own thread.
class FakeEngine final : public EngineClient {
 public:
  struct Options {
    int32_t max_context_tokens = 4096;
    std::optional<std::string> reply;  // one token per byte; neither this nor the next: by hand
    std::function<std::vector<TokenId>(const Request&)> reply_to;
    size_t tokens_per_output = 1;
    // Cuts replies and scored prompts at random, with outputs of no tokens among them.
    std::optional<uint32_t> cut_seed;
    std::chrono::microseconds step{0};
    Status refuse;  // what Submit answers when not ok
    // What else each output says.
    std::function<void(const Request&, RequestOutput&)> annotate;
  };

  FakeEngine() : FakeEngine(Options()) {}
  explicit FakeEngine(Options options) : options_(std::move(options)) {
    if (options_.cut_seed) random_.seed(*options_.cut_seed);
    if (Speaks()) thread_ = std::thread([this] { Run(); });
  }
  ~FakeEngine() override {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    std::lock_guard lock(mutex_);
    while (!active_.empty()) End(active_.begin()->first, FinishReason::kCancelled, {});
  }

  Result<RequestId> Submit(Request request, std::unique_ptr<RequestSink> sink) override {
    std::lock_guard lock(mutex_);
    if (!options_.refuse.ok()) return options_.refuse;
    const RequestId id(++last_id_);
    request.id = id;
    submitted_.push_back(request);
    Active active{std::move(request), std::move(sink), {}, 0, 1};
    if (options_.reply) active.reply = BytesAsTokens(*options_.reply);
    if (options_.reply_to) active.reply = options_.reply_to(active.request);
    active_[id.value()] = std::move(active);
    return id;
  }

  void Cancel(RequestId id) override {
    std::lock_guard lock(mutex_);
    const auto it = active_.find(id.value());
    if (it == active_.end()) return;
    ++cancelled_;
    End(id.value(), FinishReason::kCancelled, {});
  }

  int32_t max_context_tokens() const override { return options_.max_context_tokens; }

  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.requests_running = static_cast<int32_t>(active_.size());
    stats.requests_finished = finished_;
    stats.requests_cancelled = cancelled_;
    return stats;
  }

  // The n-th request submitted (from 1), once it is there.
  Request WaitFor(size_t n) {
    EXPECT_TRUE(Eventually([&] {
      std::lock_guard lock(mutex_);
      return submitted_.size() >= n;
    }));
    std::lock_guard lock(mutex_);
    return submitted_.size() >= n ? submitted_[n - 1] : Request();
  }
  void Emit(RequestId id, std::string_view bytes) {
    std::lock_guard lock(mutex_);
    Output(id.value(), BytesAsTokens(bytes));
  }
  void Finish(RequestId id, FinishReason reason, Status status = {}) {
    std::lock_guard lock(mutex_);
    if (active_.count(id.value())) End(id.value(), reason, std::move(status));
  }
  void RefuseLate(RequestId id, const DeadlineRefusal& refusal) {
    std::lock_guard lock(mutex_);
    if (!active_.count(id.value())) return;
    End(id.value(), FinishReason::kFailed, ResourceExhaustedError("too late"), refusal);
  }
  void set_stats(EngineStats stats) {
    std::lock_guard lock(mutex_);
    stats_ = stats;
  }
  void set_refuse(Status status) {
    std::lock_guard lock(mutex_);
    options_.refuse = std::move(status);
  }
  int64_t cancelled() const { return stats().requests_cancelled; }
  size_t active() const { return static_cast<size_t>(stats().requests_running); }

 private:
  struct Active {
    Request request;
    std::unique_ptr<RequestSink> sink;
    std::vector<TokenId> reply;
    size_t made = 0;
    size_t scored = 0;  // tokens of the prompt whose log probabilities need no more saying
  };

  bool Speaks() const { return options_.reply || options_.reply_to; }

  void Output(uint64_t id, std::vector<TokenId> tokens) {
    const auto it = active_.find(id);
    if (it == active_.end()) return;
    Active& active = it->second;
    active.made += tokens.size();
    RequestOutput output;
    output.id = RequestId(id);
    output.tokens = std::move(tokens);
    if (active.request.sampling.wants_logprobs()) {
      for (const TokenId token : output.tokens) {
        AppendLogprobs(token, active.request.sampling.top_logprobs, output.logprobs);
      }
    }
    output.prompt_tokens = static_cast<int32_t>(active.request.prompt.size());
    output.output_tokens = static_cast<int32_t>(active.made);
    if (options_.annotate) options_.annotate(active.request, output);
    active.sink->OnOutput(output);
  }

  void End(uint64_t id, FinishReason reason, Status status,
           std::optional<DeadlineRefusal> refusal = std::nullopt) {
    const auto it = active_.find(id);
    RequestOutput output;
    output.id = RequestId(id);
    output.prompt_tokens = static_cast<int32_t>(it->second.request.prompt.size());
    output.output_tokens = static_cast<int32_t>(it->second.made);
    output.finish = reason;
    output.status = std::move(status);
    output.refusal = refusal;
    if (options_.annotate) options_.annotate(it->second.request, output);
    it->second.sink->OnOutput(output);
    active_.erase(it);
    if (reason == FinishReason::kStop || reason == FinishReason::kLength) ++finished_;
  }

  // A part of what is left: none of it, all of it, or something between.
  size_t Cut(size_t left) {
    if (!options_.cut_seed) return std::min(options_.tokens_per_output, left);
    return std::min<size_t>(left, random_() % 7);
  }

  void ScorePrompt(Active& active) {
    RequestOutput output;
    output.id = active.request.id;
    output.prompt_tokens = static_cast<int32_t>(active.request.prompt.size());
    const size_t count = options_.cut_seed ? Cut(active.request.prompt.size() - active.scored)
                                           : active.request.prompt.size() - active.scored;
    for (size_t i = 0; i < count; ++i) {
      AppendLogprobs(active.request.prompt[active.scored++], active.request.sampling.top_logprobs,
                     output.prompt_logprobs);
    }
    active.sink->OnOutput(output);
  }

  void Step(uint64_t id) {
    Active& active = active_.at(id);
    if (active.request.prompt_logprobs && active.scored < active.request.prompt.size()) {
      return ScorePrompt(active);
    }
    const size_t limit =
        std::min(active.reply.size(),
                 static_cast<size_t>(active.request.max_output_tokens.value_or(INT32_MAX)));
    if (active.made < limit) {
      const auto from = active.reply.begin() + static_cast<std::ptrdiff_t>(active.made);
      Output(id, {from, from + static_cast<std::ptrdiff_t>(Cut(limit - active.made))});
    } else {
      End(id, limit < active.reply.size() ? FinishReason::kLength : FinishReason::kStop, {});
    }
  }

  void Run() {
    while (!stop_.load()) {
      bool idle = false;
      {
        std::lock_guard lock(mutex_);
        std::vector<uint64_t> ids;
        for (const auto& [id, active] : active_) ids.push_back(id);
        for (const uint64_t id : ids) Step(id);
        idle = ids.empty();
      }
      if (idle || options_.step.count() > 0) {
        std::this_thread::sleep_for(std::max(options_.step, std::chrono::microseconds(100)));
      }
    }
  }

  mutable std::mutex mutex_;
  Options options_;
  std::map<uint64_t, Active> active_;
  std::deque<Request> submitted_;
  uint64_t last_id_ = 0;
  int64_t cancelled_ = 0;
  int64_t finished_ = 0;
  EngineStats stats_;
  std::mt19937 random_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tandem
