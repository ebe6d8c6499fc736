// What: Answer: one request for text from its bytes to its last byte, streamed or not, with one
//   engine request for each choice.
// Not here: the endpoints' fields and checks (chat_endpoint.h, completion_endpoint.h), the JSON
//   (answer_body.h), routing (api.h).
// Threads: made on an I/O thread; Prepare runs on a worker; everything else on the exchange's I/O
//   thread.
// Invariants: exactly one answer, or none if the client goes first; then all the engine's requests
//   are cancelled, as they are when one of them fails. Text, usage and finish reasons are the same
//   streamed and not. A stream's status line is sent with its first output, so that what fails
//   before it is an HTTP error and not a broken stream.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_plan.h"
#include "server/generation.h"
#include "server/http_server.h"
#include "server/server_state.h"

namespace tandem {

struct FinalUsage;

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  // Takes over `exchange`. Returns at once; `workers` does what takes long.
  static void Run(std::shared_ptr<ServerState> state, WorkerPool& workers, AnswerPlanner planner,
                  RequestContext context, std::string body, std::shared_ptr<HttpExchange> exchange);

  Answer(std::shared_ptr<ServerState> state, AnswerPlanner planner, RequestContext context,
         std::string body, std::shared_ptr<HttpExchange> exchange);
  ~Answer();

 private:
  struct Choice {
    std::shared_ptr<TextGeneration> generation;
    Usage usage;
    RequestTimes times;
    int32_t recomputed_tokens = 0;
    bool finished = false;
    std::optional<TimeNs> last_token;  // when it was delivered
  };

  void Prepare();
  void Launch();
  Status StartChoices();
  void OnAbort();
  void OnText(size_t index, const TextOutput& output);
  void Observe(Choice& choice, const TextOutput& output);
  Usage UsageSoFar() const;
  FinalUsage UsageAtEnd() const;
  void Send(std::string events);
  // Ends with an error: a response, or the last event of a stream that has begun.
  void Fail(const ApiError& error);
  void CancelAll();
  // Counts the choices that have not finished as ended in this way.
  void End(AnswerEnd how);

  const std::shared_ptr<ServerState> state_;
  const AnswerPlanner planner_;
  const std::shared_ptr<HttpExchange> exchange_;
  const RequestContext context_;
  std::atomic<bool> aborted_{false};

  // Written by Prepare, read by Launch and after.
  std::string body_;
  AnswerPlan plan_;
  std::optional<ApiError> error_;

  // On the I/O thread.
  std::vector<Choice> choices_;
  size_t unfinished_ = 0;
  bool working_ = false;  // between BeginWork and EndWork
  bool ended_ = false;
  bool stream_started_ = false;
};

}  // namespace tandem
