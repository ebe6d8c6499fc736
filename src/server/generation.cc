#include "server/generation.h"

#include <utility>

#include "base/check.h"

namespace tandem {

TextOutput TextAssembler::Append(const RequestOutput& output) {
  TANDEM_CHECK(!finished_);
  TextOutput text;
  text.status = output.status;
  text.times = output.times;
  usage_.prompt_tokens = output.prompt_tokens;
  for (const TokenId token : output.tokens) {
    ++text.new_tokens;
    text.delta += stop_.Append(detokenizer_.Append(token, /*skip_special=*/true));
    if (stop_.stopped()) break;
  }
  usage_.completion_tokens += text.new_tokens;
  if (stop_.stopped()) {
    text.finish = FinishReason::kStop;
    text.status = OkStatus();
  } else if (output.finish) {
    text.finish = output.finish;
    // What was held back may itself complete a stop string only if a broken character is part of
    // one; the matcher decides that like any other text.
    text.delta += stop_.Append(detokenizer_.Flush());
    if (stop_.stopped()) {
      text.finish = FinishReason::kStop;
    } else {
      text.delta += stop_.Flush();
    }
  }
  text.usage = usage_;
  finished_ = text.finish.has_value();
  return text;
}

// Lives in posted tasks only.
struct TextGeneration::Stream {
  EngineClient& engine;
  TextAssembler assembler;
  Deliver deliver;

  void OnOutput(const RequestOutput& output) {
    if (assembler.finished())
      return;  // what the engine made between the stop string and its cancel
    TextOutput text = assembler.Append(output);
    if (text.finish && !output.finish) engine.Cancel(output.id);
    deliver(std::move(text));
    if (assembler.finished()) deliver = nullptr;
  }
};

class TextGeneration::Sink final : public RequestSink {
 public:
  Sink(std::shared_ptr<Stream> stream, Post post)
      : stream_(std::move(stream)), post_(std::move(post)) {}

  void OnOutput(const RequestOutput& output) override {
    post_([stream = stream_, output] { stream->OnOutput(output); });
  }

 private:
  const std::shared_ptr<Stream> stream_;
  const Post post_;
};

Result<std::shared_ptr<TextGeneration>> TextGeneration::Start(EngineClient& engine,
                                                              const Tokenizer& tokenizer,
                                                              Options options, Post post,
                                                              Deliver deliver) {
  TANDEM_ASSIGN_OR_RETURN(StopMatcher stop, StopMatcher::Create(std::move(options.stop)));
  auto stream = std::shared_ptr<Stream>(
      new Stream{engine, TextAssembler(tokenizer, std::move(stop)), std::move(deliver)});
  TANDEM_ASSIGN_OR_RETURN(
      const RequestId id,
      engine.Submit(std::move(options.request),
                    std::make_unique<Sink>(std::move(stream), std::move(post))));
  return std::shared_ptr<TextGeneration>(new TextGeneration(engine, id));
}

void TextGeneration::Cancel() { engine_.Cancel(id_); }

}  // namespace tandem
