#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "model/gguf_parser.h"
#include "model/text_escape.h"

namespace tandem {

static_assert(std::endian::native == std::endian::little,
              "values are read as they lie in the file");

namespace {

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

bool IsInteger(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kU16:
    case GgufValueType::kI16:
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kU64:
    case GgufValueType::kI64: return true;
    default: return false;
  }
}

bool IsNumber(GgufValueType type) {
  return IsInteger(type) || type == GgufValueType::kF32 || type == GgufValueType::kF64;
}

size_t NumberBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU16:
    case GgufValueType::kI16: return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32: return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64: return 8;
    default: return 1;
  }
}

// Requires IsInteger(type). A u64 beyond i64 has no value here.
std::optional<int64_t> LoadInteger(GgufValueType type, const std::byte* p) {
  switch (type) {
    case GgufValueType::kU8: return Load<uint8_t>(p);
    case GgufValueType::kI8: return Load<int8_t>(p);
    case GgufValueType::kU16: return Load<uint16_t>(p);
    case GgufValueType::kI16: return Load<int16_t>(p);
    case GgufValueType::kU32: return Load<uint32_t>(p);
    case GgufValueType::kI32: return Load<int32_t>(p);
    case GgufValueType::kI64: return Load<int64_t>(p);
    default: {
      const auto value = Load<uint64_t>(p);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
  }
}

// Requires IsNumber(type).
double LoadNumber(GgufValueType type, const std::byte* p) {
  if (type == GgufValueType::kF32) return Load<float>(p);
  if (type == GgufValueType::kF64) return Load<double>(p);
  if (type == GgufValueType::kU64) return static_cast<double>(Load<uint64_t>(p));
  return static_cast<double>(*LoadInteger(type, p));
}

std::string TypeText(const GgufEntry& entry) {
  if (entry.type != GgufValueType::kArray) return std::string(NameOf(entry.type));
  return fmt::format("array of {} {}", entry.count, NameOf(entry.element_type));
}

Status WrongType(const GgufEntry& entry, std::string_view expected) {
  return InvalidArgumentError("metadata '{}' must be {}; it is {}", EscapeText(entry.key, 100),
                              expected, TypeText(entry));
}

Status TooLarge(const GgufEntry& entry) {
  return InvalidArgumentError("metadata '{}' has a value beyond 63 bits",
                              EscapeText(entry.key, 100));
}

template <typename T>
Result<T> Or(Result<T> value, T fallback) {
  if (!value.ok() && value.status().code() == StatusCode::kNotFound) return fallback;
  return value;
}

std::string ScalarText(GgufValueType type, const std::byte* p) {
  if (type == GgufValueType::kBool) return Load<uint8_t>(p) != 0 ? "true" : "false";
  if (type == GgufValueType::kU64) return fmt::format("{}", Load<uint64_t>(p));
  if (IsInteger(type)) return fmt::format("{}", *LoadInteger(type, p));
  if (type == GgufValueType::kF32) return fmt::format("{}", Load<float>(p));
  return fmt::format("{}", Load<double>(p));
}

}  // namespace

std::string_view NameOf(GgufValueType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  const auto i = static_cast<size_t>(type);
  TANDEM_CHECK_LT(i, std::size(kNames));
  return kNames[i];
}

std::string GgufTensor::TypeName() const {
  return type != nullptr ? std::string(type->name) : fmt::format("type {}", type_id);
}

std::string GgufTensor::ShapeText() const {
  std::string text = "[";
  for (int32_t d = 0; d < num_dims; ++d) text += fmt::format("{}{}", d == 0 ? "" : ", ", dims[d]);
  return text + "]";
}

Result<GgufFile> GgufFile::Open(FileSystem& fs, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs.Open(path));
  TANDEM_ASSIGN_OR_RETURN(GgufFile out, Read(std::move(file)));
  TANDEM_RETURN_IF_ERROR(out.OpenOtherParts(fs));
  return out;
}

Result<GgufFile> GgufFile::Read(std::unique_ptr<ReadableFile> file) {
  GgufFile out;
  out.file_ = std::move(file);
  TANDEM_ASSIGN_OR_RETURN(out.stamp_, out.file_->Stamp());
  const Status status = GgufParser(out).Run();
  if (!status.ok()) return status.WithContext(out.path());
  return out;
}

const GgufEntry* GgufFile::FindEntry(std::string_view key) const {
  const auto it =
      std::lower_bound(entry_order_.begin(), entry_order_.end(), key,
                       [this](uint32_t i, std::string_view k) { return entries_[i].key < k; });
  if (it == entry_order_.end() || entries_[*it].key != key) return nullptr;
  return &entries_[*it];
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it =
      std::lower_bound(tensor_order_.begin(), tensor_order_.end(), name,
                       [this](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == tensor_order_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

Status GgufFile::ReadTensor(const GgufTensor& tensor, int64_t offset,
                            std::span<std::byte> out) const {
  TANDEM_CHECK_GE(offset, 0);
  TANDEM_CHECK_LE(offset + static_cast<int64_t>(out.size()), tensor.bytes);
  const Status status = part(tensor.part).file_->ReadAt(tensor.offset + offset, out);
  if (status.ok()) return status;
  return status.WithContext(fmt::format("reading tensor '{}'", EscapeText(tensor.name, 100)));
}

Result<const GgufEntry*> GgufFile::Require(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) return NotFoundError("metadata '{}' is missing", key);
  return entry;
}

Result<const GgufEntry*> GgufFile::RequireArray(std::string_view key,
                                                std::string_view expected) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->type != GgufValueType::kArray) return WrongType(*entry, expected);
  return entry;
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->type != GgufValueType::kString) return WrongType(*entry, "a string");
  const char* p = reinterpret_cast<const char*>(header_.data() + entry->position);
  return std::string_view(p + 8, entry->bytes - 8);
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->type != GgufValueType::kBool) return WrongType(*entry, "a bool");
  return Load<uint8_t>(header_.data() + entry->position) != 0;
}

Result<int64_t> GgufFile::GetInt(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!IsInteger(entry->type)) return WrongType(*entry, "an integer");
  const std::optional<int64_t> value = LoadInteger(entry->type, header_.data() + entry->position);
  if (!value) return TooLarge(*entry);
  return *value;
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (!IsNumber(entry->type)) return WrongType(*entry, "a number");
  return LoadNumber(entry->type, header_.data() + entry->position);
}

Result<std::vector<std::string_view>> GgufFile::GetStrings(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, RequireArray(key, "an array of strings"));
  if (entry->element_type != GgufValueType::kString)
    return WrongType(*entry, "an array of strings");
  std::vector<std::string_view> out;
  out.reserve(entry->count);
  const std::byte* p = header_.data() + entry->position;
  for (uint64_t i = 0; i < entry->count; ++i) {
    const auto length = Load<uint64_t>(p);
    out.emplace_back(reinterpret_cast<const char*>(p + 8), length);
    p += 8 + length;
  }
  return out;
}

Result<std::vector<int64_t>> GgufFile::GetInts(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, RequireArray(key, "an array of integers"));
  if (!IsInteger(entry->element_type)) return WrongType(*entry, "an array of integers");
  std::vector<int64_t> out;
  out.reserve(entry->count);
  const size_t step = NumberBytes(entry->element_type);
  const std::byte* p = header_.data() + entry->position;
  for (uint64_t i = 0; i < entry->count; ++i, p += step) {
    const std::optional<int64_t> value = LoadInteger(entry->element_type, p);
    if (!value) return TooLarge(*entry);
    out.push_back(*value);
  }
  return out;
}

Result<std::vector<float>> GgufFile::GetFloats(std::string_view key) const {
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, RequireArray(key, "an array of numbers"));
  if (!IsNumber(entry->element_type)) return WrongType(*entry, "an array of numbers");
  std::vector<float> out;
  out.reserve(entry->count);
  const size_t step = NumberBytes(entry->element_type);
  const std::byte* p = header_.data() + entry->position;
  for (uint64_t i = 0; i < entry->count; ++i, p += step) {
    out.push_back(static_cast<float>(LoadNumber(entry->element_type, p)));
  }
  return out;
}

Result<std::vector<int64_t>> GgufFile::GetIntPerLayer(std::string_view key, int64_t count) const {
  TANDEM_CHECK_GE(count, 0);
  TANDEM_ASSIGN_OR_RETURN(const GgufEntry* entry, Require(key));
  if (entry->type != GgufValueType::kArray) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t value, GetInt(key));
    return std::vector<int64_t>(static_cast<size_t>(count), value);
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<int64_t> values, GetInts(key));
  if (static_cast<int64_t>(values.size()) != count) {
    return InvalidArgumentError("metadata '{}' has {} values for {} layers", key, values.size(),
                                count);
  }
  return values;
}

Result<std::string_view> GgufFile::GetStringOr(std::string_view key,
                                               std::string_view fallback) const {
  return Or(GetString(key), fallback);
}
Result<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  return Or(GetBool(key), fallback);
}
Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t fallback) const {
  return Or(GetInt(key), fallback);
}
Result<double> GgufFile::GetFloatOr(std::string_view key, double fallback) const {
  return Or(GetFloat(key), fallback);
}

std::string GgufFile::ValueText(const GgufEntry& entry, size_t max_chars) const {
  const std::byte* p = header_.data() + entry.position;
  if (entry.type == GgufValueType::kString) {
    const std::string_view text(reinterpret_cast<const char*>(p + 8), entry.bytes - 8);
    if (text.size() <= max_chars) return EscapeText(text, max_chars);
    return fmt::format("{} ({} bytes)", EscapeText(text, max_chars), text.size());
  }
  if (entry.type != GgufValueType::kArray) return ScalarText(entry.type, p);
  if (entry.element_type == GgufValueType::kArray) return TypeText(entry);
  std::string text = "[";
  for (uint64_t i = 0; i < entry.count; ++i) {
    std::string piece;
    if (entry.element_type == GgufValueType::kString) {
      const auto length = Load<uint64_t>(p);
      piece = '"' + EscapeText({reinterpret_cast<const char*>(p + 8), length}, max_chars) + '"';
      p += 8 + length;
    } else {
      piece = ScalarText(entry.element_type, p);
      p += NumberBytes(entry.element_type);
    }
    if (text.size() + piece.size() > max_chars) {
      return fmt::format("{}{}... {} in all]", text, i == 0 ? "" : ", ", entry.count);
    }
    text += (i == 0 ? "" : ", ") + piece;
  }
  return text + "]";
}

}  // namespace tandem
