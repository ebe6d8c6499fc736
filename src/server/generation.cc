#include "server/generation.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace tandem {

int64_t CountChars(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

Result<TextAssembler> TextAssembler::Create(const Tokenizer& tokenizer, TextOptions options) {
  TANDEM_ASSIGN_OR_RETURN(StopMatcher stop, StopMatcher::Create(std::move(options.stop)));
  return TextAssembler(tokenizer, std::move(options), std::move(stop));
}

TextOutput TextAssembler::Append(const RequestOutput& output) {
  TANDEM_CHECK(!finished_);
  TextOutput text;
  text.status = output.status;
  text.times = output.times;
  text.prompt_logprobs = output.prompt_logprobs;
  text.recomputed_tokens = output.recomputed_tokens;
  text.refusal = output.refusal;
  usage_.prompt_tokens = output.prompt_tokens;
  usage_.cached_tokens = output.cached_tokens;
  const auto per_token = static_cast<size_t>(options_.logprobs_per_token);
  for (size_t i = 0; i < output.tokens.size() && !cut(); ++i) {
    ++text.new_tokens;
    ++usage_.completion_tokens;
    CountReasoning(output.tokens[i]);
    std::span<const TokenLogprob> logprobs;
    if ((i + 1) * per_token <= output.logprobs.size()) {
      logprobs = std::span(output.logprobs).subspan(i * per_token, per_token);
    }
    const std::string piece = AppendToken(output.tokens[i], logprobs);
    text.delta += piece;
    FindCall(piece);
  }
  if (!cut() && output.finish) text.delta += AppendEnd();
  if (cut()) {
    text.finish = FinishReason::kStop;
    text.status = OkStatus();
    if (stop_.stopped() && options_.include_stop) text.delta += stop_.matched();
  } else {
    text.finish = output.finish;
  }
  text.stop_reason = ReasonOf(output);
  finished_ = text.finish.has_value();
  delivered_bytes_ += static_cast<int64_t>(text.delta.size());
  if (options_.report_tokens) Release(text);
  text.usage = usage_;
  return text;
}

std::string TextAssembler::AppendToken(TokenId token, std::span<const TokenLogprob> logprobs) {
  const bool hidden = options_.hide_special && tokenizer_->IsControl(token) &&
                      std::find(options_.shown_special.begin(), options_.shown_special.end(),
                                token) == options_.shown_special.end();
  if (options_.report_tokens) Report(token, hidden, logprobs);
  if (hidden) return {};
  std::string piece = detokenizer_.Append(token, /*skip_special=*/false);
  made_bytes_ += static_cast<int64_t>(piece.size());
  made_chars_ += CountChars(piece);
  if (usage_.completion_tokens <= options_.min_tokens) return piece;
  return stop_.Append(piece);
}

void TextAssembler::FindCall(std::string_view piece) {
  if (!calls_ || stop_.stopped()) return;
  calls_->Append(piece);
  called_ = calls_->num_calls() > 0 && usage_.completion_tokens > options_.min_tokens;
}

StopReason TextAssembler::ReasonOf(const RequestOutput& output) const {
  if (stop_.stopped()) return stop_.matched();
  if (called_ || output.finish != FinishReason::kStop || !output.stop_token) return {};
  const std::vector<TokenId>& named = options_.named_stop_tokens;
  if (std::find(named.begin(), named.end(), *output.stop_token) == named.end()) return {};
  return *output.stop_token;
}

// AnswerParser's rule, for tokens.
void TextAssembler::CountReasoning(TokenId token) {
  if (thinking_ == Thinking::kOver) return;
  if (thinking_ == Thinking::kAtBegin) {
    if (token != options_.reasoning->begin) {
      const std::string_view bytes = tokenizer_->TokenBytes(token);
      const bool blank = bytes.find_first_not_of(" \n\r\t") == std::string_view::npos;
      if (!blank) thinking_ = Thinking::kOver;
      return;
    }
    thinking_ = Thinking::kInside;
  }
  ++usage_.reasoning_tokens;
  if (token == options_.reasoning->end) thinking_ = Thinking::kOver;
}

void TextAssembler::Report(TokenId token, bool hidden, std::span<const TokenLogprob> logprobs) {
  Waiting& waiting = waiting_.emplace_back();
  waiting.begin_bytes = made_bytes_;
  waiting.token.token = token;
  waiting.token.hidden = hidden;
  waiting.token.text_begin = made_chars_;
  waiting.token.logprobs.assign(logprobs.begin(), logprobs.end());
  if (hidden || tokenizer_->TokenBytes(token).empty()) return;
  waiting.token.at_start = std::exchange(at_start_, false);
}

// What was held back may itself complete a stop string only if a broken character is part of one;
// the matcher decides that like any other text.
std::string TextAssembler::AppendEnd() {
  const std::string piece = detokenizer_.Flush();
  made_bytes_ += static_cast<int64_t>(piece.size());
  if (usage_.completion_tokens <= options_.min_tokens) return piece;
  std::string text = stop_.Append(piece);
  if (!stop_.stopped()) text += stop_.Flush();
  return text;
}

void TextAssembler::Release(TextOutput& text) {
  while (!waiting_.empty()) {
    Waiting& front = waiting_.front();
    const bool begun = front.begin_bytes < delivered_bytes_;
    if (!begun && !finished_) return;
    front.token.in_text = begun || !cut();
    text.tokens.push_back(std::move(front.token));
    waiting_.pop_front();
  }
}

// Lives in posted tasks only, but for `complete`.
struct TextGeneration::Stream {
  EngineClient& engine;
  TextAssembler assembler;
  Deliver deliver;
  std::atomic<bool> complete{false};  // the text is, and the engine has been told

  Stream(EngineClient& engine_client, TextAssembler made, Deliver to)
      : engine(engine_client), assembler(std::move(made)), deliver(std::move(to)) {}

  void OnOutput(const RequestOutput& output) {
    if (assembler.finished())
      return;  // what the engine made between the stop string and its cancel
    TextOutput text = assembler.Append(output);
    if (text.finish && !output.finish) {
      complete.store(true);
      engine.Cancel(output.id);
    }
    deliver(std::move(text));
    if (assembler.finished()) deliver = nullptr;
  }
};

class TextGeneration::Sink final : public RequestSink {
 public:
  Sink(std::shared_ptr<Stream> stream, Post post, std::shared_ptr<GenerationObserver> observer)
      : stream_(std::move(stream)), post_(std::move(post)), observer_(std::move(observer)) {}

  void OnOutput(const RequestOutput& output) override {
    if (observer_) Observe(output);
    post_([stream = stream_, output] { stream->OnOutput(output); });
  }

 private:
  void Observe(const RequestOutput& output) {
    const bool ended = output.finish == FinishReason::kStop;
    if (!prompt_seen_ && (!output.tokens.empty() || ended)) {
      prompt_seen_ = true;
      observer_->OnPrompt(output.prompt_tokens, output.cached_tokens);
    }
    if (!output.finish) return;
    const bool complete = *output.finish == FinishReason::kCancelled && stream_->complete.load();
    observer_->OnEnd(complete ? FinishReason::kStop : *output.finish);
  }

  const std::shared_ptr<Stream> stream_;
  const Post post_;
  const std::shared_ptr<GenerationObserver> observer_;
  bool prompt_seen_ = false;
};

Result<std::shared_ptr<TextGeneration>> TextGeneration::Start(EngineClient& engine,
                                                              const Tokenizer& tokenizer,
                                                              Options options, Post post,
                                                              Deliver deliver) {
  TANDEM_ASSIGN_OR_RETURN(TextAssembler assembler,
                          TextAssembler::Create(tokenizer, std::move(options.text)));
  auto stream = std::make_shared<Stream>(engine, std::move(assembler), std::move(deliver));
  TANDEM_ASSIGN_OR_RETURN(const RequestId id,
                          engine.Submit(std::move(options.request),
                                        std::make_unique<Sink>(std::move(stream), std::move(post),
                                                               std::move(options.observer))));
  return std::shared_ptr<TextGeneration>(new TextGeneration(engine, id));
}

void TextGeneration::Cancel() { engine_.Cancel(id_); }

}  // namespace tandem
