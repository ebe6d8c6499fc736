#include "model/inspect.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr size_t kValueBytes = 120;  // of a value in a report: about one line of a terminal
constexpr size_t kNameBytes = 100;

struct TypeSum {
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t elements = 0;
};

// By type, in order of the type numbers.
std::map<uint32_t, TypeSum> SumByType(const GgufFile& file) {
  std::map<uint32_t, TypeSum> sums;
  for (const GgufTensor& tensor : file.tensors()) {
    TypeSum& sum = sums[tensor.type_id];
    ++sum.tensors;
    sum.bytes += tensor.bytes;
    sum.elements += tensor.num_elements();
  }
  return sums;
}

std::string TypeText(const GgufEntry& entry) {
  if (entry.type != GgufValueType::kArray) return std::string(NameOf(entry.type));
  return fmt::format("{}[{}]", NameOf(entry.element_type), entry.count);
}

std::string TypeNameOf(uint32_t id) {
  const GgmlTypeInfo* type = FindGgmlType(id);
  return type != nullptr ? std::string(type->name) : fmt::format("type {}", id);
}

std::string AccountText(const ByteAccount& account) {
  const auto line = [&](std::string_view what, int64_t bytes) {
    return fmt::format("  {:<12} {:>16}  {:>6.2f} %\n", what, bytes,
                       100.0 * static_cast<double>(bytes) / static_cast<double>(account.total()));
  };
  std::string text = "\nbytes\n";
  text += line("codes", account.codes);
  text += line("scales", account.scales);
  text += line("unquantised", account.unquantised);
  if (account.unknown > 0) text += line("unknown", account.unknown);
  text += line("header", account.header);
  text += line("padding", account.padding);
  text += line("file", account.total());
  return text;
}

}  // namespace

ByteAccount AccountBytes(const GgufFile& file) {
  ByteAccount account;
  account.header = file.header_bytes();
  std::vector<const GgufTensor*> order;
  for (const GgufTensor& tensor : file.tensors()) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 0; i < order.size(); ++i) {
    const GgufTensor& tensor = *order[i];
    if (tensor.type == nullptr) {
      const int64_t end = i + 1 < order.size() ? order[i + 1]->offset : file.file_bytes();
      account.unknown += end - tensor.offset;
    } else if (tensor.type->quantised()) {
      const int64_t blocks = tensor.bytes / tensor.type->block_bytes;
      account.scales += blocks * tensor.type->scale_bytes;
      account.codes += blocks * (tensor.type->block_bytes - tensor.type->scale_bytes);
    } else {
      account.unquantised += tensor.bytes;
    }
  }
  account.padding = file.file_bytes() - account.total();
  return account;
}

std::string InspectText(const GgufFile& file) {
  std::string text =
      fmt::format("{}\nGGUF version {}, {} bytes, alignment {}\n", EscapeText(file.path(), 1000),
                  file.version(), file.file_bytes(), file.alignment());
  text += fmt::format("\nmetadata ({})\n", file.entries().size());
  for (const GgufEntry& entry : file.entries()) {
    text += fmt::format("  {:<44} {:<14} {}\n", EscapeText(entry.key, kNameBytes), TypeText(entry),
                        file.ValueText(entry, kValueBytes));
  }
  text += fmt::format("\ntensors ({})\n", file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    text += fmt::format("  {:<44} {:<8} {:<20} {:>14}\n", EscapeText(tensor.name, kNameBytes),
                        tensor.TypeName(), tensor.ShapeText(),
                        tensor.type != nullptr ? fmt::format("{}", tensor.bytes) : "?");
  }
  text += "\ntypes\n";
  for (const auto& [id, sum] : SumByType(file)) {
    const bool known = FindGgmlType(id) != nullptr;
    const double bits = 8.0 * static_cast<double>(sum.bytes) / static_cast<double>(sum.elements);
    text += fmt::format("  {:<8} {:>6} tensors {:>16} bytes  {}\n", TypeNameOf(id), sum.tensors,
                        known ? fmt::format("{}", sum.bytes) : "?",
                        known ? fmt::format("{:.4f} bits per weight", bits) : "");
  }
  return text + AccountText(AccountBytes(file));
}

std::string InspectJson(const GgufFile& file) {
  using Json = nlohmann::ordered_json;
  const ByteAccount account = AccountBytes(file);
  Json out;
  out["path"] = file.path();
  out["version"] = file.version();
  out["alignment"] = file.alignment();
  out["file_bytes"] = file.file_bytes();
  out["bytes"] = {{"codes", account.codes},
                  {"scales", account.scales},
                  {"unquantised", account.unquantised},
                  {"unknown", account.unknown},
                  {"header", account.header},
                  {"padding", account.padding}};
  out["metadata"] = Json::array();
  for (const GgufEntry& entry : file.entries()) {
    out["metadata"].push_back({{"key", std::string(entry.key)},
                               {"type", TypeText(entry)},
                               {"value", file.ValueText(entry, kValueBytes)}});
  }
  out["types"] = Json::array();
  for (const auto& [id, sum] : SumByType(file)) {
    out["types"].push_back(
        {{"type", TypeNameOf(id)}, {"tensors", sum.tensors}, {"bytes", sum.bytes}});
  }
  out["tensors"] = Json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    const Json bytes = tensor.type != nullptr ? Json(tensor.bytes) : Json(nullptr);
    out["tensors"].push_back(
        {{"name", std::string(tensor.name)},
         {"type", tensor.TypeName()},
         {"shape", std::vector<int64_t>(tensor.dims, tensor.dims + tensor.num_dims)},
         {"offset", tensor.offset},
         {"bytes", bytes}});
  }
  // Names that are not UTF-8 get replacement characters.
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem
