#include "text/bounded_json.h"

#include <vector>

namespace tandem {

Result<nlohmann::json> ParseBoundedJson(std::string_view name, std::string_view text,
                                        size_t max_bytes, int max_depth) {
  using Event = nlohmann::json::parse_event_t;
  if (text.size() > max_bytes) {
    return OutOfRangeError("{}: {} bytes; the limit is {}", name, text.size(), max_bytes);
  }
  bool too_deep = false;
  bool duplicate = false;
  std::vector<size_t> key_counts;  // of the objects that are open
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > max_depth) too_deep = true;
    if (too_deep) return false;
    if (event == Event::object_start) key_counts.push_back(0);
    if (event == Event::key) ++key_counts.back();
    if (event == Event::object_end) {
      duplicate = duplicate || value.size() != key_counts.back();
      key_counts.pop_back();
    }
    return true;
  };
  nlohmann::json parsed = nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep) return OutOfRangeError("{}: nests deeper than {} levels", name, max_depth);
  if (parsed.is_discarded()) return DataLossError("{}: is not valid JSON", name);
  if (duplicate) return DataLossError("{}: an object has a key twice", name);
  if (!parsed.is_object()) {
    return InvalidArgumentError("{}: must be an object, is {}", name, parsed.type_name());
  }
  return parsed;
}

}  // namespace tandem
