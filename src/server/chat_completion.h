// What: one POST /v1/chat/completions from its bytes to its last byte, streamed or not.
// Not here: the schema (openai_request.h, openai_response.h), routing (api.h).
// Threads: made on an I/O thread; Prepare runs on a worker; everything else on the exchange's I/O
//   thread.
// Invariants: exactly one answer, or none if the client goes first; then the engine's request is
//   cancelled. Text, usage and finish reason are the same streamed and not. A stream's status line
//   is sent with its first output, so that what fails before it is an HTTP error and not a broken
//   stream.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/generation.h"
#include "server/http_server.h"
#include "server/openai_request.h"
#include "server/openai_response.h"
#include "server/server_state.h"

namespace tandem {

class ChatCompletion : public std::enable_shared_from_this<ChatCompletion> {
 public:
  // Takes over `exchange`. Returns at once; `workers` does what takes long.
  static void Run(std::shared_ptr<ServerState> state, WorkerPool& workers, std::string body,
                  std::shared_ptr<HttpExchange> exchange);

  ChatCompletion(std::shared_ptr<ServerState> state, std::string body,
                 std::shared_ptr<HttpExchange> exchange);
  ~ChatCompletion();

 private:
  void Prepare();
  std::optional<ApiError> BuildRequest();
  ApiResult<std::vector<TokenId>> BuildPrompt(const ChatRequest& chat) const;
  SamplingParams BuildSampling(const ChatRequest& chat);

  void Launch();
  void OnAbort();
  void OnText(const TextOutput& output);
  void Observe(const TextOutput& output);
  void RespondWhole(const TextOutput& output);
  void Stream(const TextOutput& output);
  // Ends with an error: a response, or the last event of a stream that has begun.
  void Fail(const ApiError& error);
  void End(AnswerEnd how);

  const std::shared_ptr<ServerState> state_;
  const std::shared_ptr<HttpExchange> exchange_;
  const TimeNs arrival_;
  std::atomic<bool> aborted_{false};

  // Written by Prepare, read by Launch and after.
  std::string body_;
  ChatRequest chat_;
  TextGeneration::Options options_;
  std::optional<ApiError> error_;

  // On the I/O thread.
  std::shared_ptr<TextGeneration> generation_;
  AnswerIdentity identity_;
  std::optional<ChatChunks> chunks_;
  std::string text_;
  bool ended_ = false;
  bool stream_started_ = false;
  bool first_token_seen_ = false;
  TimeNs last_token_ = 0;
};

}  // namespace tandem
