// How an event log looks to people.
#include <fmt/format.h>

#include <iterator>

#include "plan/event_log.h"

namespace tandem {
namespace {

std::string_view NameOfCode(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kOutOfRange: return "out of range";
    case StatusCode::kResourceExhausted: return "resource exhausted";
    case StatusCode::kUnavailable: return "unavailable";
    case StatusCode::kInternal: return "internal error";
    default: return "error";
  }
}

std::string Outcome(StatusCode code) {
  return code == StatusCode::kOk ? "" : fmt::format("  refused: {}", NameOfCode(code));
}

std::string Join(const std::vector<TokenId>& tokens, size_t most) {
  std::string out;
  for (size_t i = 0; i < tokens.size() && i < most; ++i) {
    fmt::format_to(std::back_inserter(out), "{}{}", i > 0 ? "," : "", tokens[i]);
  }
  return tokens.size() > most ? out + ",..." : out;
}

// Text of a foreign file, without what a terminal obeys.
std::string Printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c == 0x7f) c = '?';
  }
  return text;
}

double Ms(TimeNs time) { return static_cast<double>(time) / kNsPerMs; }

std::string RequestText(const Request& r) {
  constexpr size_t kShownTokens = 8;
  std::string out = fmt::format("arrival request={} prompt={} tokens=", r.id, r.prompt.size());
  out += Join(r.prompt, kShownTokens);
  auto to = std::back_inserter(out);
  if (r.max_output_tokens) fmt::format_to(to, " limit={}", *r.max_output_tokens);
  if (!r.stop_tokens.empty()) fmt::format_to(to, " stops={}", Join(r.stop_tokens, kShownTokens));
  if (r.sampling.wants_logprobs()) fmt::format_to(to, " logprobs={}", r.sampling.top_logprobs);
  if (r.prompt_logprobs) out += " prompt_logprobs";
  if (!r.cache_salt.empty()) fmt::format_to(to, " salt={}", Printable(r.cache_salt));
  if (r.deadline) fmt::format_to(to, " deadline={:.3f}ms", Ms(*r.deadline));
  if (r.ttft_target) fmt::format_to(to, " ttft_target={:.3f}ms", Ms(*r.ttft_target));
  if (r.send) fmt::format_to(to, " send={}", *r.send);
  return out;
}

std::string ResultText(const StepResult& result) {
  std::string out = fmt::format("result step={} took={:.3f}ms", result.step,
                                Ms(result.finished - result.started));
  auto to = std::back_inserter(out);
  if (!result.status.ok()) fmt::format_to(to, " failed: {}", NameOfCode(result.status.code()));
  for (const StepResult::Row& row : result.rows) {
    if (row.sampled) fmt::format_to(to, " {}:{}", row.slot, row.token);
  }
  return out;
}

std::string HandoffText(const HandoffEvent& event) {
  const std::string status =
      event.status.ok() ? "" : fmt::format(" {}", NameOfCode(event.status.code()));
  switch (event.kind) {
    case HandoffEvent::Kind::kFetchArrived: return fmt::format("fetch {} arrived", event.fetch);
    case HandoffEvent::Kind::kFetchFailed:
      return fmt::format("fetch {} failed:{}", event.fetch, status);
    case HandoffEvent::Kind::kFetchDrained: return fmt::format("fetch {} drained", event.fetch);
    case HandoffEvent::Kind::kSendDrained:
      return fmt::format("send {} drained{}{}", event.send, status.empty() ? "" : ":", status);
    case HandoffEvent::Kind::kPeers: return fmt::format("{} prefill nodes", event.ready_peers);
  }
  return "hand-off";
}

std::string EventText(const LoggedEvent& logged) {
  std::string text;
  if (const auto* arrival = std::get_if<ArrivalEvent>(&logged.event.body)) {
    text = RequestText(arrival->request);
  } else if (const auto* cancel = std::get_if<CancelEvent>(&logged.event.body)) {
    text = fmt::format("cancel request={}", cancel->request);
  } else if (const auto* handoff = std::get_if<HandoffEvent>(&logged.event.body)) {
    text = HandoffText(*handoff);
  } else {
    text = ResultText(std::get<ResultEvent>(logged.event.body).result);
  }
  return text + Outcome(logged.outcome);
}

}  // namespace

std::string PlanText(const StepPlan& plan) {
  std::string out = plan.ToText();
  for (const SlotJoin& j : plan.joins) {
    if (j.num_restored == 0) continue;
    fmt::format_to(std::back_inserter(out), "restore slot={} n={}\n", j.slot, j.num_restored);
  }
  return out;
}

std::string RecordLine(const LogRecord& record, TimeNs start) {
  const auto timed = [start](TimeNs at, std::string_view text) {
    return fmt::format("{:>14.3f}  {}\n", Ms(at - start), text);
  };
  if (const auto* event = std::get_if<LoggedEvent>(&record)) {
    return timed(event->event.at, EventText(*event));
  }
  if (const auto* advance = std::get_if<LoggedAdvance>(&record)) {
    return timed(advance->at, "advance");
  }
  std::string text;
  if (const auto* logged = std::get_if<LoggedPlan>(&record)) {
    text = PlanText(logged->plan);
    text.pop_back();  // the last line's end
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3) {
      text.replace(at, 1, " | ");
    }
    text = "plan " + text + Outcome(logged->outcome);
  } else if (const auto* loss = std::get_if<LoggedLoss>(&record)) {
    text = fmt::format("{} records are missing: they came faster than they could be written",
                       loss->records);
  } else if (std::holds_alternative<LoggedEnd>(record)) {
    text = "end";
  } else {
    text = "header";
  }
  return fmt::format("{:>14}  {}\n", "", text);
}

std::string HeaderText(const LogHeader& h) {
  const SchedulerConfig& c = h.config;
  std::string out = fmt::format(
      "model {} ({}), numerics {}, recorded by tandem {}, tokens {}\n"
      "policy {}, {} places, budget {}, chunks of {}, context {}, depth {}, reservation {}, "
      "preemption {}, ITL target {:.3f} ms, prefix cache {}\n",
      Printable(h.model), h.model_identity.ToHex(), Printable(h.numerics), Printable(h.version),
      h.true_tokens ? "as they are" : "renamed", NameOf(c.policy), c.max_running, c.token_budget,
      c.chunk_tokens, c.context_length, c.pipeline_depth, NameOf(c.reservation),
      NameOf(c.preemption), Ms(c.itl_target),
      !c.prefix_cache                                    ? "off"
      : c.prefix_cache->retention == RetentionKind::kLru ? "lru"
                                                         : "value");
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const StateGroup& group = c.groups[i].group;
    fmt::format_to(std::back_inserter(out), "state group {}: {} blocks of {} tokens{}\n", i,
                   c.groups[i].num_blocks, group.tokens_per_block,
                   group.kind == StateKind::kWindow
                       ? fmt::format(", window of {} tokens", group.window_tokens)
                       : "");
  }
  return out;
}

}  // namespace tandem
