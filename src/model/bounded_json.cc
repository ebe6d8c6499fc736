#include "model/bounded_json.h"

#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr size_t kKeyBytes = 100;  // of a key in a message

// Takes anything: what is left are the checks of the base.
class CheckOnly final : public JsonHandler {
 public:
  using JsonHandler::JsonHandler;

 private:
  Status OnBegin(bool is_object) override {
    if (depth() == 1 && !is_object) return InvalidArgumentError("a list, not a JSON object");
    return OkStatus();
  }
  Status OnEnd() override { return OkStatus(); }
  Status OnKey(std::string_view) override { return OkStatus(); }
  Status OnScalar(const JsonScalar& scalar) override {
    if (depth() == 0) return InvalidArgumentError("{}, not a JSON object", NameOf(scalar));
    return OkStatus();
  }
};

}  // namespace

std::string_view NameOf(const JsonScalar& scalar) {
  constexpr std::string_view kNames[] = {"null",       "a boolean", "an integer",
                                         "an integer", "a number",  "a string"};
  return kNames[scalar.index()];
}

Status JsonHandler::Run(std::string_view text) {
  nlohmann::json_sax<nlohmann::json>* sax = this;
  const bool done = nlohmann::json::sax_parse(text.begin(), text.end(), sax);
  if (!status_.ok()) return status_;
  return done ? OkStatus() : DataLossError("not valid JSON");
}

bool JsonHandler::Take(Status status) {
  status_ = std::move(status);
  return status_.ok();
}

bool JsonHandler::Count() {
  if (++num_values_ <= limits_.max_values) return true;
  return Take(OutOfRangeError("the JSON has more than {} values", limits_.max_values));
}

bool JsonHandler::Begin(bool is_object) {
  if (!Count()) return false;
  if (keys_.size() >= limits_.max_depth) {
    return Take(OutOfRangeError("the JSON is nested deeper than {} levels", limits_.max_depth));
  }
  keys_.emplace_back();
  return Take(OnBegin(is_object));
}

bool JsonHandler::End() {
  keys_.pop_back();
  return Take(OnEnd());
}

bool JsonHandler::key(string_t& value) {
  if (!keys_.back().insert(value).second) {
    return Take(DataLossError("the key '{}' occurs twice", EscapeText(value, kKeyBytes)));
  }
  return Take(OnKey(value));
}

bool JsonHandler::parse_error(size_t position, const std::string&,
                              const nlohmann::json::exception& error) {
  constexpr int kNumberOutOfRange = 406;  // nlohmann's id
  if (error.id == kNumberOutOfRange) {
    return Take(DataLossError("a number near byte {} is too large", position));
  }
  return Take(DataLossError("not valid JSON near byte {}", position));
}

Result<nlohmann::json> ParseJsonObject(std::string_view text, JsonLimits limits) {
  CheckOnly check(limits);
  TANDEM_RETURN_IF_ERROR(check.Run(text));
  nlohmann::json value = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (!value.is_object()) return DataLossError("not valid JSON");
  return value;
}

}  // namespace tandem
