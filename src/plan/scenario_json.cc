// ParseScenario: the JSON side of scenario.h.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "plan/scenario.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 8;
constexpr int64_t kMaxTimeNs = int64_t{1} << 60;  // 36 years
constexpr int64_t kMaxTokens = int64_t{1} << 22;  // of one request's prompt or answer
constexpr int64_t kMaxCount = int64_t{1} << 24;   // as SchedulerConfig
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr int64_t kMaxUnitNs = 10 * kNsPerS;  // base, or per token
constexpr int64_t kMaxPairNs = 1'000'000;
constexpr int64_t kMaxFlops = int64_t{1} << 44;
// Prompts of requests that wait are held in memory: 4 GiB if all wait at once.
constexpr int64_t kMaxPromptTokens = int64_t{1} << 30;
constexpr int32_t kMaxSequences = 1 << 16;
constexpr size_t kMaxIdBytes = 256;
constexpr size_t kMaxNamed = 40;  // of a foreign key in a message

std::string Shown(const std::string& key) {
  std::string out;
  for (char c : key.substr(0, kMaxNamed)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}

// One object's members; the first error stays. Every member must be asked for once.
class Reader {
 public:
  Reader(const Json& object, std::string path, Status* status)
      : object_(object), path_(std::move(path)), status_(status) {
    if (!object.is_object()) Fail(path_.empty() ? "the scenario" : path_, "must be an object");
  }

  bool Has(const char* key) {
    if (!object_.is_object()) return false;
    asked_.insert(key);
    const auto it = object_.find(key);
    return it != object_.end() && !it->is_null();
  }
  const Json& at(const char* key) const { return object_.at(key); }

  template <typename T>
  void Integer(const char* key, int64_t least, int64_t most, bool required, T* value) {
    if (!Has(key)) {
      if (required) Fail(Path(key), "is missing");
      return;
    }
    const std::optional<int64_t> number = ReadInteger(at(key), Path(key), least, most);
    if (number) *value = static_cast<T>(*number);
  }
  template <typename T>
  void Integer(const char* key, int64_t least, int64_t most, std::optional<T>* value) {
    if (!Has(key)) return;
    T number = 0;
    Integer(key, least, most, true, &number);
    *value = number;
  }
  void Number(const char* key, double least, double most, bool required, double* value) {
    if (!Has(key)) {
      if (required) Fail(Path(key), "is missing");
      return;
    }
    const Json& json = at(key);
    if (!json.is_number() || !(json.get<double>() >= least && json.get<double>() <= most)) {
      return Fail(Path(key), fmt::format("must be a number from {} to {}", least, most));
    }
    *value = json.get<double>();
  }
  void Boolean(const char* key, bool* value) {
    if (!Has(key)) return;
    if (!at(key).is_boolean()) return Fail(Path(key), "must be true or false");
    *value = at(key).get<bool>();
  }
  void String(const char* key, std::string* value) {
    if (!Has(key)) return;
    if (!at(key).is_string() || at(key).get_ref<const std::string&>().size() > kMaxIdBytes) {
      return Fail(Path(key), fmt::format("must be a string of at most {} bytes", kMaxIdBytes));
    }
    *value = at(key).get<std::string>();
  }
  template <typename T>
  void Name(const char* key, Result<T> (*from_name)(std::string_view), T* value) {
    std::string name;
    if (!Has(key)) return;
    String(key, &name);
    const Result<T> named = from_name(Shown(name));
    if (!named.ok()) return Fail(Path(key), named.status().message());
    *value = *named;
  }
  // A list of two: the least and the most.
  void Range(const char* key, int32_t* least, int32_t* most) {
    const Json* list = Has(key) ? &at(key) : nullptr;
    if (list == nullptr || !list->is_array() || list->size() != 2) {
      return Fail(Path(key), "must be a list of the least and the most tokens");
    }
    const auto a = ReadInteger((*list)[0], Path(key), 1, kMaxTokens);
    const auto b = ReadInteger((*list)[1], Path(key), a.value_or(1), kMaxTokens);
    if (!a || !b) return;
    *least = static_cast<int32_t>(*a);
    *most = static_cast<int32_t>(*b);
  }

  std::optional<int64_t> ReadInteger(const Json& json, const std::string& path, int64_t least,
                                     int64_t most) {
    const bool small = json.is_number_unsigned() ? json.get<uint64_t>() <= INT64_MAX : true;
    if (!json.is_number_integer() || !small || json.get<int64_t>() < least ||
        json.get<int64_t>() > most) {
      Fail(path, fmt::format("must be an integer from {} to {}", least, most));
      return std::nullopt;
    }
    return json.get<int64_t>();
  }

  // Call it last: a key that nobody asked for is a misspelt one.
  void Finish() {
    if (!object_.is_object()) return;
    for (const auto& [key, value] : object_.items()) {
      if (!asked_.contains(key)) Fail(Path(Shown(key).c_str()), "is no key of this object");
    }
  }
  void Fail(const std::string& path, std::string_view what) {
    if (status_->ok()) *status_ = InvalidArgumentError("{} {}", path, what);
  }
  std::string Path(const char* key) const { return path_.empty() ? key : path_ + "." + key; }

 private:
  const Json& object_;
  const std::string path_;
  Status* status_;
  std::set<std::string, std::less<>> asked_;
};

void ReadModel(Reader* parent, Status* status, ModelFigures* model) {
  if (!parent->Has("model")) return;
  Reader in(parent->at("model"), "model", status);
  in.String("name", &model->name);
  in.Integer("kv_bytes_per_token", 1, int64_t{1} << 30, true, &model->kv_bytes_per_token);
  in.Integer("matrix_flops_per_token", 0, kMaxFlops, false, &model->flops_per_token);
  in.Integer("matrix_flops_per_causal_pair", 0, kMaxFlops, false, &model->flops_per_pair);
  in.Integer("matrix_flops_per_logit_row", 0, kMaxFlops, false, &model->flops_per_logit_row);
  in.Finish();
}

ScenarioRequest ReadRequest(const Json& json, size_t number, Status* status) {
  Reader in(json, fmt::format("requests[{}]", number), status);
  ScenarioRequest r;
  r.id = fmt::format("r{}", number);
  in.String("id", &r.id);
  in.Integer("arrival_ns", 0, kMaxTimeNs, true, &r.arrival);
  in.Integer("prompt_tokens", 1, kMaxTokens, true, &r.prompt_tokens);
  in.Integer("output_tokens", 1, kMaxTokens, true, &r.output_tokens);
  r.max_tokens = r.output_tokens;
  if (json.is_object() && json.contains("max_tokens") && json["max_tokens"].is_null()) {
    r.max_tokens.reset();
  }
  in.Integer("max_tokens", 1, kMaxTokens, &r.max_tokens);
  in.Integer("deadline_ns", 1, kMaxTimeNs, &r.deadline);
  in.Integer("ttft_target_ns", 1, kMaxTimeNs, &r.ttft_target);
  in.Integer("cancel_ns", 0, kMaxTimeNs, &r.cancel_at);
  in.Integer("cancel_after_outputs", 1, kMaxTokens, &r.cancel_after_outputs);
  in.Finish();
  return r;
}

void ReadRequests(Reader* parent, Status* status, Scenario* s) {
  if (!parent->Has("requests")) return;
  const Json& list = parent->at("requests");
  if (!list.is_array() || list.size() > static_cast<size_t>(kMaxScenarioRequests)) {
    return parent->Fail("requests",
                        fmt::format("must be a list of at most {} requests", kMaxScenarioRequests));
  }
  std::set<std::string_view> ids;
  s->requests.reserve(list.size());
  for (size_t i = 0; i < list.size() && status->ok(); ++i) {
    s->requests.push_back(ReadRequest(list[i], i, status));
    if (!ids.insert(s->requests.back().id).second) {
      parent->Fail(fmt::format("requests[{}].id", i), "occurs twice");
    }
  }
}

void ReadWorkload(Reader* parent, Status* status, Scenario* s) {
  if (!parent->Has("workload")) return;
  Reader in(parent->at("workload"), "workload", status);
  Workload w;
  in.Integer("count", 1, kMaxScenarioRequests, true, &w.count);
  in.Number("rate_per_s", 1e-6, 1e9, true, &w.rate_per_s);
  in.Range("prompt_tokens", &w.prompt_tokens_min, &w.prompt_tokens_max);
  in.Range("output_tokens", &w.output_tokens_min, &w.output_tokens_max);
  in.Number("deadline_factor", 0, 1e6, false, &w.deadline_factor);
  in.Integer("seed", 0, INT64_MAX, false, &w.seed);
  in.Finish();
  if (!status->ok()) return;
  if (s->requests.size() + static_cast<size_t>(w.count) >
      static_cast<size_t>(kMaxScenarioRequests)) {
    return in.Fail("workload.count", "makes too many requests");
  }
  AddWorkload(w, s);
}

void ReadPrepared(Reader* parent, Scenario* s) {
  if (!parent->Has("prepared_tokens")) return;
  const Json& list = parent->at("prepared_tokens");
  if (!list.is_array() || list.size() > 256) {
    return parent->Fail("prepared_tokens", "must be a list of at most 256 integers");
  }
  for (const Json& item : list) {
    const int64_t least = s->prepared_tokens.empty() ? 1 : s->prepared_tokens.back() + 1;
    const auto value = parent->ReadInteger(item, "prepared_tokens", least, kMaxCount);
    if (!value) return;
    s->prepared_tokens.push_back(static_cast<int32_t>(*value));
  }
}

void ReadSettings(Reader* in, Scenario* s) {
  in->Name("policy", PolicyFromName, &s->policy);
  in->Integer("max_sequences", 1, kMaxSequences, true, &s->max_sequences);
  in->Integer("token_budget", 1, kMaxCount, true, &s->token_budget);
  in->Integer("chunk_tokens", 1, kMaxCount, true, &s->chunk_tokens);
  in->Integer("step_base_ns", 0, kMaxUnitNs, true, &s->step.base_ns);
  in->Integer("per_new_token_ns", 0, kMaxUnitNs, true, &s->step.token_ns);
  in->Integer("per_causal_pair_ns", 0, kMaxPairNs, true, &s->step.pair_ns);
  in->Integer("kv_capacity_bytes", 1, kMaxBytes, &s->kv_capacity_bytes);
  in->Integer("block_tokens", 1, 1024, false, &s->block_tokens);
  in->Integer("reserved_blocks", 0, kMaxCount, false, &s->reserved_blocks);
  in->Name("reservation", ReservationFromName, &s->reservation);
  in->Integer("reserve_tokens", 0, kMaxCount, false, &s->reserve_tokens);
  in->Name("preemption", PreemptionRuleFromName, &s->preemption);
  in->Integer("itl_target_ns", 0, 3600 * kNsPerS, false, &s->itl_target);
  ReadPrepared(in, s);
  in->Boolean("heed_deadlines", &s->heed_deadlines);
  in->Boolean("learn_cost", &s->learn_cost);
  in->Integer("max_queue", 1, kMaxCount, false, &s->max_queue);
  in->Integer("pipeline_depth", 0, 8, false, &s->pipeline_depth);
}

// Parses JSON of at most kMaxDepth levels in which no object has a key twice: who writes one means
// something else than what a reader would take it for.
Result<Json> ParseJson(std::string_view text) {
  bool deep = false;
  std::string twice;
  std::vector<std::set<std::string, std::less<>>> keys(kMaxDepth + 1);
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    deep |= depth > kMaxDepth;
    if (deep || !twice.empty()) return false;
    auto& of_object = keys[static_cast<size_t>(depth)];
    if (event == Json::parse_event_t::object_start) {
      if (depth < kMaxDepth) keys[static_cast<size_t>(depth) + 1].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!of_object.insert(key).second) twice = Shown(key);
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), check, false);
  if (deep) return InvalidArgumentError("the scenario is nested deeper than {} levels", kMaxDepth);
  if (!twice.empty()) return InvalidArgumentError("the scenario has {} twice in one object", twice);
  // A zero byte would count as the end.
  if (json.is_discarded() || text.find('\0') != std::string_view::npos) {
    return DataLossError("the scenario is not valid JSON");
  }
  return json;
}

}  // namespace

Result<Scenario> ParseScenario(std::string_view text) {
  if (text.size() > kMaxScenarioBytes) {
    return OutOfRangeError("the scenario has {} bytes, at most {} are read", text.size(),
                           kMaxScenarioBytes);
  }
  TANDEM_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  Status status;
  Scenario s;
  Reader in(json, "", &status);
  ReadSettings(&in, &s);
  ReadModel(&in, &status, &s.model);
  ReadRequests(&in, &status, &s);
  ReadWorkload(&in, &status, &s);
  in.Finish();
  if (status.ok() && s.requests.empty()) {
    status = InvalidArgumentError("the scenario has no requests; give requests or a workload");
  }
  if (!status.ok()) return status;
  int64_t prompts = 0;
  for (const ScenarioRequest& r : s.requests) prompts += r.prompt_tokens;
  if (prompts > kMaxPromptTokens) {
    return OutOfRangeError("the prompts have {} tokens together, at most {} are simulated", prompts,
                           kMaxPromptTokens);
  }
  std::stable_sort(s.requests.begin(), s.requests.end(),
                   [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
  return s;
}

}  // namespace tandem
