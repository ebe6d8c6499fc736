#include "model/quantize_mix.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/check.h"
#include "base/edit_distance.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

struct TypeNames {
  uint32_t ggml_id;
  uint32_t file_type;       // of "general.file_type"
  std::string_view narrow;  // what rows get that the block does not divide
};

// By GGML number. File types without a variant in their name ("Q4_K") are the small ones.
constexpr TypeNames kTypes[] = {
    {0, 0, ""},       {1, 1, ""},         {2, 2, "F16"},    {3, 3, "F16"},
    {6, 8, "F16"},    {7, 9, "F16"},      {8, 7, "F16"},    {10, 10, "Q4_0"},
    {11, 11, "Q4_0"}, {12, 14, "Q5_0"},   {13, 16, "Q5_1"}, {14, 18, "Q8_0"},
    {20, 25, "F16"},  {23, 30, "IQ4_NL"}, {30, 32, ""},     {39, 38, "F16"},
};

const TypeNames* FindNames(const GgmlTypeInfo& type) {
  for (const TypeNames& names : kTypes) {
    if (names.ggml_id == type.id) return &names;
  }
  return nullptr;
}

std::string Upper(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

bool IsWritable(DType dtype) {
  for (const GgmlTypeInfo* type : WritableTypes()) {
    if (type->dtype == dtype) return true;
  }
  return false;
}

bool Divides(DType dtype, int64_t cols) { return cols % InfoOf(dtype).block_elements == 0; }

DType TypeForRows(DType wanted, int64_t cols) {
  if (Divides(wanted, cols)) return wanted;
  const TypeNames* names = FindNames(GgmlInfoOf(wanted));
  if (names != nullptr) {
    const std::optional<DType> narrow = DTypeFromName(names->narrow);
    if (narrow && IsWritable(*narrow) && Divides(*narrow, cols)) return *narrow;
  }
  return Divides(DType::kQ8_0, cols) ? DType::kQ8_0 : DType::kF16;
}

bool IsBlockType(DType dtype) { return InfoOf(dtype).block_elements > 1; }

// What llama.cpp stores the matrix of the logits in.
DType OutputType(DType type, int64_t cols) {
  if (!IsBlockType(type)) return type;
  const std::optional<DType> q6 = DTypeFromName("Q6_K");
  if (type != DType::kQ8_0 && q6 && IsWritable(*q6) && Divides(*q6, cols)) return *q6;
  return DType::kQ8_0;
}

DType WantedType(const TypeMix& mix, const ModelSpec& spec, const TensorSpec& tensor) {
  if (tensor.kind == TensorKind::kVector) return DType::kF32;
  const bool embedding = tensor.name == "token_embd.weight";
  const bool logits = tensor.name == "output.weight" || (embedding && spec.tied_embeddings);
  if ((embedding || logits) && mix.embedding) return *mix.embedding;
  return logits ? OutputType(mix.type, tensor.cols) : mix.type;
}

}  // namespace

std::vector<const GgmlTypeInfo*> WritableTypes() {
  std::vector<const GgmlTypeInfo*> types;
  for (const GgmlTypeInfo& type : AllGgmlTypes()) {
    if (type.dtype && FindNames(type) != nullptr) types.push_back(&type);
  }
  return types;
}

Result<DType> WritableTypeFromName(std::string_view name) {
  const std::string wanted = Upper(name.substr(0, 32));  // no type's name is longer
  std::string all;
  std::vector<std::string_view> names;
  for (const GgmlTypeInfo* type : WritableTypes()) {
    if (type->name == wanted && wanted.size() == name.size()) return *type->dtype;
    if (!all.empty()) all += ", ";
    all += type->name;
    names.push_back(type->name);
  }
  const auto nearest = NearestWord(wanted, names);
  return InvalidArgumentError("there is no type '{}' to write{}; there are {}", wanted,
                              nearest ? fmt::format("; did you mean {}?", *nearest) : "", all);
}

const GgmlTypeInfo& GgmlInfoOf(DType dtype) {
  for (const GgmlTypeInfo& type : AllGgmlTypes()) {
    if (type.dtype == dtype) return type;
  }
  internal::CheckFailed(__FILE__, __LINE__, "a type that GGUF files know",
                        std::string(NameOf(dtype)));
}

ChosenType ChooseType(const TypeMix& mix, const ModelSpec& spec, const TensorSpec& tensor) {
  const DType wanted = WantedType(mix, spec, tensor);
  const DType type = TypeForRows(wanted, tensor.cols);
  return {type, wanted};
}

uint32_t FileTypeOf(DType dtype) {
  const TypeNames* names = FindNames(GgmlInfoOf(dtype));
  TANDEM_CHECK(names != nullptr);
  return names->file_type;
}

void TypeCounts::Add(const TensorSpec& tensor, ChosenType chosen) {
  auto it = std::find_if(counts_.begin(), counts_.end(),
                         [&](const Count& count) { return count.chosen == chosen; });
  if (it == counts_.end()) it = counts_.insert(counts_.end(), Count{chosen});
  ++it->tensors;
  if (tensor.name == "token_embd.weight" || tensor.name == "output.weight") {
    outside_layers_ += fmt::format("; {} is {}", tensor.name, NameOf(chosen.type));
  }
}

std::string TypeCounts::ToText() const {
  std::map<DType, int64_t> tensors;
  for (const Count& count : counts_) tensors[count.chosen.type] += count.tensors;
  std::string text;
  for (const auto& [type, n] : tensors) {
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", n, NameOf(type));
  }
  return text + outside_layers_;
}

std::string TypeCounts::FallbackText() const {
  std::string text;
  for (const Count& count : counts_) {
    if (count.chosen.type == count.chosen.wanted) continue;
    text += fmt::format("{}{} x {} instead of {}", text.empty() ? "" : ", ", count.tensors,
                        NameOf(count.chosen.type), NameOf(count.chosen.wanted));
  }
  return text;
}

}  // namespace tandem
