#include "model/inspect.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "model/bounded_json.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr size_t kValueBytes = 120;  // of a value in a report: about one line of a terminal
constexpr size_t kNameBytes = 100;
constexpr size_t kPathBytes = 1000;
constexpr JsonLimits kConfigLimits = {.max_depth = 32, .max_values = 100'000};

struct FileLine {
  std::string path;
  int64_t bytes = 0;
};

struct MetadataLine {
  std::string key;
  std::string type;
  std::string value;  // short and harmless
};

struct TensorLine {
  std::string name;
  std::string type;
  std::vector<int64_t> shape;
  size_t file = 0;
  int64_t offset = 0;
  std::optional<int64_t> bytes;  // none: of unknown type
};

struct TypeLine {
  int64_t tensors = 0;
  std::optional<int64_t> bytes;  // none: the type is unknown
  int64_t elements = 0;
};

// What both reports say, whatever the format.
struct Report {
  std::string path;
  std::string format;
  std::string summary;  // what the format adds, for people
  std::optional<int64_t> version;
  std::optional<int64_t> alignment;
  std::vector<FileLine> files;
  std::vector<MetadataLine> metadata;
  std::vector<TensorLine> tensors;
  std::map<std::string, TypeLine> types;  // by name
  ByteAccount account;
};

void AddTensor(Report* report, TensorLine tensor, int64_t elements) {
  TypeLine& type = report->types[tensor.type];
  ++type.tensors;
  type.elements += elements;
  type.bytes = tensor.bytes ? std::optional(type.bytes.value_or(0) + *tensor.bytes) : std::nullopt;
  report->tensors.push_back(std::move(tensor));
}

std::string TypeText(const GgufEntry& entry) {
  if (entry.type != GgufValueType::kArray) return std::string(NameOf(entry.type));
  return fmt::format("{}[{}]", NameOf(entry.element_type), entry.count);
}

Report ReportOn(const GgufFile& file) {
  Report report;
  report.path = file.path();
  report.format = "gguf";
  report.version = file.version();
  report.alignment = file.alignment();
  for (size_t i = 0; i < file.num_parts(); ++i) {
    report.files.push_back({file.part(i).path(), file.part(i).file_bytes()});
  }
  for (const GgufEntry& entry : file.entries()) {
    report.metadata.push_back(
        {std::string(entry.key), TypeText(entry), file.ValueText(entry, kValueBytes)});
  }
  for (const GgufTensor& tensor : file.tensors()) {
    TensorLine line = {std::string(tensor.name),
                       tensor.TypeName(),
                       {tensor.dims, tensor.dims + tensor.num_dims},
                       tensor.part,
                       tensor.offset,
                       {}};
    if (tensor.type != nullptr) line.bytes = tensor.bytes;
    AddTensor(&report, std::move(line), tensor.num_elements());
  }
  report.account = AccountBytes(file);
  report.summary = fmt::format("GGUF version {}, {} bytes, alignment {}", file.version(),
                               report.account.total(), file.alignment());
  return report;
}

void AddFields(std::string_view prefix, std::string_view text, Report* report) {
  const Result<nlohmann::json> object = ParseJsonObject(text, kConfigLimits);
  if (!object.ok()) {
    report->metadata.push_back(
        {fmt::format("{}.json", prefix), "invalid", object.status().message()});
    return;
  }
  for (const auto& [key, value] : object->items()) {
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    report->metadata.push_back(
        {fmt::format("{}.{}", prefix, key), value.type_name(), EscapeText(shown, kValueBytes)});
  }
}

Report ReportOn(const HfFolder& folder) {
  Report report;
  report.path = folder.directory();
  report.format = "safetensors";
  AddFields("config", folder.config(), &report);
  if (!folder.generation_config().empty()) {
    AddFields("generation_config", folder.generation_config(), &report);
  }
  for (size_t i = 0; i < folder.files().size(); ++i) {
    const SafetensorsFile& file = folder.files()[i];
    report.files.push_back({file.path(), file.file_bytes()});
    for (const auto& [key, value] : file.metadata()) {
      report.metadata.push_back(
          {fmt::format("__metadata__.{}", key), "string", EscapeText(value, kValueBytes)});
    }
    for (const SafetensorsTensor& tensor : file.tensors()) {
      AddTensor(&report,
                {tensor.name, std::string(tensor.type->name), tensor.shape, i, tensor.offset,
                 tensor.bytes},
                tensor.num_elements());
    }
  }
  report.account = AccountBytes(folder);
  report.summary = fmt::format("safetensors, {} bytes", report.account.total());
  return report;
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

std::string BytesText(std::optional<int64_t> bytes) {
  return bytes ? fmt::format("{}", *bytes) : "?";
}

std::string TextOf(const Report& report) {
  std::string text = fmt::format("{}\n{}\n", EscapeText(report.path, kPathBytes), report.summary);
  if (report.files.size() > 1) {
    text += fmt::format("\nfiles ({})\n", report.files.size());
    for (const FileLine& file : report.files) {
      text += fmt::format("  {:<66} {:>16}\n", EscapeText(file.path, kPathBytes), file.bytes);
    }
  }
  text += fmt::format("\nmetadata ({})\n", report.metadata.size());
  for (const MetadataLine& line : report.metadata) {
    text += fmt::format("  {:<44} {:<14} {}\n", EscapeText(line.key, kNameBytes), line.type,
                        line.value);
  }
  text += fmt::format("\ntensors ({})\n", report.tensors.size());
  for (const TensorLine& tensor : report.tensors) {
    text += fmt::format("  {:<44} {:<8} {:<20} {:>14}\n", EscapeText(tensor.name, kNameBytes),
                        tensor.type, fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                        BytesText(tensor.bytes));
  }
  text += "\ntypes\n";
  for (const auto& [name, type] : report.types) {
    const bool known = type.bytes && type.elements > 0;
    const double bits =
        known ? 8.0 * static_cast<double>(*type.bytes) / static_cast<double>(type.elements) : 0;
    text += fmt::format("  {:<8} {:>6} tensors {:>16} bytes  {}\n", name, type.tensors,
                        BytesText(type.bytes),
                        known ? fmt::format("{:.4f} bits per weight", bits) : "");
  }
  return text + AccountText(report.account);
}

using Json = nlohmann::ordered_json;

Json BytesJson(std::optional<int64_t> bytes) { return bytes ? Json(*bytes) : Json(nullptr); }

std::string JsonOf(const Report& report) {
  const ByteAccount& account = report.account;
  Json out;
  out["path"] = report.path;
  out["format"] = report.format;
  if (report.version) out["version"] = *report.version;
  if (report.alignment) out["alignment"] = *report.alignment;
  out["file_bytes"] = account.total();
  out["files"] = Json::array();
  for (const FileLine& file : report.files) {
    out["files"].push_back({{"path", file.path}, {"bytes", file.bytes}});
  }
  out["bytes"] = {{"codes", account.codes},
                  {"scales", account.scales},
                  {"unquantised", account.unquantised},
                  {"unknown", account.unknown},
                  {"header", account.header},
                  {"padding", account.padding}};
  out["metadata"] = Json::array();
  for (const MetadataLine& line : report.metadata) {
    out["metadata"].push_back({{"key", line.key}, {"type", line.type}, {"value", line.value}});
  }
  out["types"] = Json::array();
  for (const auto& [name, type] : report.types) {
    out["types"].push_back(
        {{"type", name}, {"tensors", type.tensors}, {"bytes", BytesJson(type.bytes)}});
  }
  out["tensors"] = Json::array();
  for (const TensorLine& tensor : report.tensors) {
    out["tensors"].push_back({{"name", tensor.name},
                              {"type", tensor.type},
                              {"shape", tensor.shape},
                              {"file", tensor.file},
                              {"offset", tensor.offset},
                              {"bytes", BytesJson(tensor.bytes)}});
  }
  // Names that are not UTF-8 get replacement characters.
  return out.dump(2, ' ', false, Json::error_handler_t::replace);
}

// Adds the tensors of one part, sorted by offset, and what lies around them.
void AccountPart(const GgufFile& part, const std::vector<const GgufTensor*>& order,
                 ByteAccount* account) {
  const int64_t before = account->total();
  account->header += part.header_bytes();
  for (size_t i = 0; i < order.size(); ++i) {
    const GgufTensor& tensor = *order[i];
    if (tensor.type == nullptr) {
      const int64_t end = i + 1 < order.size() ? order[i + 1]->offset : part.file_bytes();
      account->unknown += end - tensor.offset;
    } else if (tensor.type->quantised()) {
      const int64_t blocks = tensor.bytes / tensor.type->block_bytes;
      account->scales += blocks * tensor.type->scale_bytes;
      account->codes += blocks * (tensor.type->block_bytes - tensor.type->scale_bytes);
    } else {
      account->unquantised += tensor.bytes;
    }
  }
  account->padding += part.file_bytes() - (account->total() - before);
}

}  // namespace

ByteAccount AccountBytes(const GgufFile& file) {
  std::vector<std::vector<const GgufTensor*>> parts(file.num_parts());
  for (const GgufTensor& tensor : file.tensors()) parts[tensor.part].push_back(&tensor);
  ByteAccount account;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::sort(parts[i].begin(), parts[i].end(),
              [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
    AccountPart(file.part(i), parts[i], &account);
  }
  return account;
}

ByteAccount AccountBytes(const HfFolder& folder) {
  ByteAccount account;
  for (const SafetensorsFile& file : folder.files()) {
    account.header += file.header_bytes();
    account.unquantised += file.file_bytes() - file.header_bytes();
  }
  return account;
}

std::string InspectText(const GgufFile& file) { return TextOf(ReportOn(file)); }
std::string InspectText(const HfFolder& folder) { return TextOf(ReportOn(folder)); }
std::string InspectJson(const GgufFile& file) { return JsonOf(ReportOn(file)); }
std::string InspectJson(const HfFolder& folder) { return JsonOf(ReportOn(folder)); }

}  // namespace tandem
