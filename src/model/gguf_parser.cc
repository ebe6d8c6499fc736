#include "model/gguf_parser.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr uint32_t kMagic = 0x46554747;         // "GGUF" as little-endian bytes
constexpr uint32_t kMagicSwapped = 0x47475546;  // a big-endian writer that swaps the magic too
constexpr uint64_t kMaxKeyBytes = 65535;        // the specification's
constexpr uint64_t kMaxTensorNameBytes = 64;    // the specification's
constexpr int kMaxArrayDepth = 4;               // deeper nesting than any real file's
constexpr int64_t kMaxAlignment = 1 << 20;      // real ones are 32 to 4096
constexpr uint64_t kMaxHeaderBytes = uint64_t{1} << 30;  // vocabularies of millions fit in a tenth
constexpr uint64_t kReadBytes = 256 << 10;
// The shortest entries that the format allows: they bound counts before anything is allocated.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kMinArrayBytes = 4 + 8;
constexpr uint64_t kMinStringBytes = 8;

// Bytes of a value of fixed size, 0 for strings and arrays.
uint64_t FixedBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool: return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16: return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32: return 4;
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64: return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray: return 0;
  }
  return 0;
}

bool KnownValueType(uint32_t type) { return type <= static_cast<uint32_t>(GgufValueType::kF64); }

}  // namespace

Status GgufParser::Run() {
  TANDEM_RETURN_IF_ERROR(ReadPreamble());
  keys_.reserve(num_entries_);
  out_.entries_.reserve(num_entries_);
  for (uint64_t i = 0; i < num_entries_; ++i) TANDEM_RETURN_IF_ERROR(ReadEntry(i));
  TANDEM_RETURN_IF_ERROR(CheckCount(num_tensors_, kMinTensorBytes, "tensor count"));
  tensor_names_.reserve(num_tensors_);
  out_.tensors_.reserve(num_tensors_);
  for (uint64_t i = 0; i < num_tensors_; ++i) TANDEM_RETURN_IF_ERROR(ReadTensorInfo(i));
  out_.header_.resize(position_);
  out_.header_.shrink_to_fit();
  out_.header_bytes_ = static_cast<int64_t>(position_);
  BindNames();
  TANDEM_RETURN_IF_ERROR(SortEntries());
  TANDEM_RETURN_IF_ERROR(SortTensors());
  TANDEM_RETURN_IF_ERROR(ReadAlignment());
  TANDEM_RETURN_IF_ERROR(PlaceTensors());
  return CheckOverlap();
}

uint64_t GgufParser::remaining() const {
  return static_cast<uint64_t>(out_.file_->size()) - position_;
}

Status GgufParser::Need(uint64_t bytes, std::string_view what) {
  if (bytes > remaining()) {
    return DataLossError("the file ends inside {}: {} bytes needed at byte {}, {} left", what,
                         bytes, position_, remaining());
  }
  const uint64_t end = position_ + bytes;
  if (end > kMaxHeaderBytes) {
    return OutOfRangeError("the header is longer than {} bytes (at {})", kMaxHeaderBytes, what);
  }
  std::vector<std::byte>& header = out_.header_;
  const uint64_t have = header.size();
  if (end <= have) return OkStatus();
  const uint64_t piece =
      std::min(std::max(end - have, kReadBytes), static_cast<uint64_t>(out_.file_->size()) - have);
  header.resize(have + piece);
  return out_.file_->ReadAt(static_cast<int64_t>(have), std::span(header).subspan(have));
}

template <typename T>
T GgufParser::Take() {
  T value;
  std::memcpy(&value, out_.header_.data() + position_, sizeof value);
  position_ += sizeof value;
  return value;
}

Status GgufParser::ReadPreamble() {
  TANDEM_RETURN_IF_ERROR(Need(4, "the magic number"));
  const auto magic = Take<uint32_t>();
  if (magic == kMagicSwapped) return UnimplementedError("a big-endian GGUF file is not supported");
  if (magic != kMagic) {
    return DataLossError("not a GGUF file: it begins with 0x{:08x} instead of \"GGUF\"", magic);
  }
  TANDEM_RETURN_IF_ERROR(Need(4, "the version"));
  const auto version = Take<uint32_t>();
  if (version != 0 && (version & 0xFFFF) == 0) {
    return UnimplementedError("a big-endian GGUF file is not supported (version field 0x{:08x})",
                              version);
  }
  if (version < 2 || version > 3) {
    return UnimplementedError("GGUF version {} is not supported: Tandem reads 2 and 3", version);
  }
  out_.version_ = version;
  TANDEM_RETURN_IF_ERROR(Need(16, "the counts of tensors and metadata"));
  num_tensors_ = Take<uint64_t>();
  num_entries_ = Take<uint64_t>();
  TANDEM_RETURN_IF_ERROR(CheckCount(num_tensors_, kMinTensorBytes, "tensor count"));
  return CheckCount(num_entries_, kMinEntryBytes, "metadata count");
}

Status GgufParser::CheckCount(uint64_t count, uint64_t min_bytes, std::string_view what) const {
  if (count <= remaining() / min_bytes) return OkStatus();
  return DataLossError("{} {} cannot be right: only {} bytes follow byte {}", what, count,
                       remaining(), position_);
}

Status GgufParser::ReadString(std::string_view what, uint64_t max_bytes, uint64_t* position,
                              uint64_t* length) {
  TANDEM_RETURN_IF_ERROR(Need(8, what));
  *length = Take<uint64_t>();
  if (*length > max_bytes) {
    return DataLossError("{} at byte {} is {} bytes long; at most {} are allowed", what,
                         position_ - 8, *length, max_bytes);
  }
  TANDEM_RETURN_IF_ERROR(Need(*length, what));
  *position = position_;
  position_ += *length;
  return OkStatus();
}

Status GgufParser::ReadEntry(uint64_t index) {
  Name name;
  TANDEM_RETURN_IF_ERROR(ReadString(fmt::format("the name of metadata entry {}", index),
                                    kMaxKeyBytes, &name.position, &name.length));
  if (name.length == 0) return DataLossError("metadata entry {} has an empty name", index);
  const std::string key = EscapeText(
      {reinterpret_cast<const char*>(out_.header_.data()) + name.position, name.length}, 100);
  const std::string what = fmt::format("the value of '{}'", key);
  TANDEM_RETURN_IF_ERROR(Need(4, what));
  const auto type = Take<uint32_t>();
  if (!KnownValueType(type)) {
    return DataLossError("metadata '{}' has unknown value type {} at byte {}", key, type,
                         position_ - 4);
  }
  GgufEntry entry;
  entry.type = entry.element_type = static_cast<GgufValueType>(type);
  if (entry.type == GgufValueType::kArray) {
    TANDEM_RETURN_IF_ERROR(ReadArrayHeader(0, what, &entry.element_type, &entry.count));
  }
  entry.position = position_;
  TANDEM_RETURN_IF_ERROR(SkipElements(entry.element_type, entry.count, 0, what));
  entry.bytes = position_ - entry.position;
  keys_.push_back(name);
  out_.entries_.push_back(entry);
  return OkStatus();
}

Status GgufParser::ReadArrayHeader(int depth, std::string_view what, GgufValueType* type,
                                   uint64_t* count) {
  if (depth >= kMaxArrayDepth) {
    return DataLossError("{} nests arrays more than {} deep", what, kMaxArrayDepth);
  }
  TANDEM_RETURN_IF_ERROR(Need(kMinArrayBytes, what));
  const auto raw_type = Take<uint32_t>();
  *count = Take<uint64_t>();
  if (!KnownValueType(raw_type)) {
    return DataLossError("{} is an array of unknown type {}", what, raw_type);
  }
  *type = static_cast<GgufValueType>(raw_type);
  return OkStatus();
}

Status GgufParser::SkipElements(GgufValueType type, uint64_t count, int depth,
                                std::string_view what) {
  const uint64_t fixed = FixedBytes(type);
  const uint64_t min_bytes =
      fixed != 0 ? fixed : (type == GgufValueType::kString ? kMinStringBytes : kMinArrayBytes);
  if (count > remaining() / min_bytes) {
    return DataLossError(
        "the file ends inside {}: {} elements of type {} at byte {}, {} bytes left", what, count,
        NameOf(type), position_, remaining());
  }
  if (type == GgufValueType::kBool) return SkipBools(count, what);
  if (fixed != 0) {
    TANDEM_RETURN_IF_ERROR(Need(count * fixed, what));
    position_ += count * fixed;
    return OkStatus();
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (type == GgufValueType::kString) {
      uint64_t position, length;
      TANDEM_RETURN_IF_ERROR(ReadString(what, kMaxHeaderBytes, &position, &length));
    } else {
      GgufValueType element;
      uint64_t elements;
      TANDEM_RETURN_IF_ERROR(ReadArrayHeader(depth + 1, what, &element, &elements));
      TANDEM_RETURN_IF_ERROR(SkipElements(element, elements, depth + 1, what));
    }
  }
  return OkStatus();
}

Status GgufParser::SkipBools(uint64_t count, std::string_view what) {
  TANDEM_RETURN_IF_ERROR(Need(count, what));
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = Take<uint8_t>();
    if (value > 1) {
      return DataLossError("{} is a bool with value {} at byte {}", what, value, position_ - 1);
    }
  }
  return OkStatus();
}

Status GgufParser::ReadTensorInfo(uint64_t index) {
  Name name;
  TANDEM_RETURN_IF_ERROR(ReadString(fmt::format("the name of tensor {}", index),
                                    kMaxTensorNameBytes, &name.position, &name.length));
  if (name.length == 0) return DataLossError("tensor {} has an empty name", index);
  const std::string label = EscapeText(
      {reinterpret_cast<const char*>(out_.header_.data()) + name.position, name.length}, 100);
  const std::string what = fmt::format("the description of tensor '{}'", label);
  TANDEM_RETURN_IF_ERROR(Need(4, what));
  const auto num_dims = Take<uint32_t>();
  if (num_dims < 1 || num_dims > 4) {
    return DataLossError("tensor '{}' has {} dimensions; 1 to 4 are allowed", label, num_dims);
  }
  TANDEM_RETURN_IF_ERROR(Need(num_dims * 8 + 12, what));
  GgufTensor tensor;
  tensor.num_dims = static_cast<int32_t>(num_dims);
  constexpr uint64_t kMaxElements = uint64_t{1} << 62;
  uint64_t elements = 1;
  for (uint32_t d = 0; d < num_dims; ++d) {
    const auto dim = Take<uint64_t>();
    if (dim == 0) return DataLossError("dimension {} of tensor '{}' is 0", d, label);
    if (dim > kMaxElements / elements) {
      return DataLossError("the size of tensor '{}' overflows: dimension {} is {}", label, d, dim);
    }
    elements *= dim;
    tensor.dims[d] = static_cast<int64_t>(dim);
  }
  tensor.type_id = Take<uint32_t>();
  tensor.type = FindGgmlType(tensor.type_id);
  const auto offset = Take<uint64_t>();
  if (offset > static_cast<uint64_t>(out_.file_->size())) {
    return DataLossError("tensor '{}' begins at offset {}, beyond the end of the file", label,
                         offset);
  }
  tensor.offset = static_cast<int64_t>(offset);  // made absolute by PlaceTensors
  tensor_names_.push_back(name);
  out_.tensors_.push_back(tensor);
  return OkStatus();
}

void GgufParser::BindNames() {
  const char* base = reinterpret_cast<const char*>(out_.header_.data());
  for (size_t i = 0; i < keys_.size(); ++i) {
    out_.entries_[i].key = {base + keys_[i].position, keys_[i].length};
  }
  for (size_t i = 0; i < tensor_names_.size(); ++i) {
    out_.tensors_[i].name = {base + tensor_names_[i].position, tensor_names_[i].length};
  }
}

namespace {

// Indices of `items` sorted by what `name` returns, and the first name that occurs twice (or
// empty).
template <typename Item, typename NameFunction>
std::vector<uint32_t> SortByName(const std::vector<Item>& items, NameFunction name,
                                 std::string_view* duplicate) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name(items[a]) < name(items[b]); });
  for (size_t i = 1; i < order.size(); ++i) {
    if (name(items[order[i - 1]]) == name(items[order[i]])) {
      *duplicate = name(items[order[i]]);
      break;
    }
  }
  return order;
}

}  // namespace

Status GgufParser::SortEntries() {
  std::string_view duplicate;
  out_.entry_order_ = SortByName(
      out_.entries_, [](const GgufEntry& e) { return e.key; }, &duplicate);
  if (duplicate.empty()) return OkStatus();
  return DataLossError("metadata '{}' occurs twice", EscapeText(duplicate, 100));
}

Status GgufParser::SortTensors() {
  std::string_view duplicate;
  out_.tensor_order_ = SortByName(
      out_.tensors_, [](const GgufTensor& t) { return t.name; }, &duplicate);
  if (duplicate.empty()) return OkStatus();
  return DataLossError("tensor '{}' occurs twice", EscapeText(duplicate, 100));
}

Status GgufParser::ReadAlignment() {
  TANDEM_ASSIGN_OR_RETURN(out_.alignment_, out_.GetIntOr("general.alignment", 32));
  const int64_t a = out_.alignment_;
  if (a < 8 || a > kMaxAlignment || (a & (a - 1)) != 0) {
    return DataLossError("general.alignment is {}; a power of two from 8 to {} is allowed", a,
                         kMaxAlignment);
  }
  out_.data_start_ = (out_.header_bytes_ + a - 1) / a * a;
  return OkStatus();
}

Status GgufParser::PlaceTensors() {
  const int64_t size = out_.file_->size();
  for (GgufTensor& tensor : out_.tensors_) {
    const std::string label = EscapeText(tensor.name, 100);
    if (tensor.offset % out_.alignment_ != 0) {
      return DataLossError("tensor '{}' begins at offset {}, not a multiple of the alignment {}",
                           label, tensor.offset, out_.alignment_);
    }
    if (tensor.type != nullptr) {
      const GgmlTypeInfo& type = *tensor.type;
      if (tensor.dims[0] % type.block_elements != 0) {
        return DataLossError(
            "rows of tensor '{}' have {} values, not a multiple of {}'s block of {}", label,
            tensor.dims[0], type.name, type.block_elements);
      }
      const int64_t blocks = tensor.num_elements() / type.block_elements;
      if (blocks > size / type.block_bytes) {
        return DataLossError("tensor '{}' of {} {} is larger than the file", label, type.name,
                             tensor.ShapeText());
      }
      tensor.bytes = blocks * type.block_bytes;
    }
    tensor.offset += out_.data_start_;
    if (tensor.offset > size || tensor.bytes > size - tensor.offset) {
      return DataLossError("tensor '{}' ends at byte {}, the file at {}", label,
                           tensor.offset + tensor.bytes, size);
    }
  }
  return OkStatus();
}

Status GgufParser::CheckOverlap() const {
  std::vector<const GgufTensor*> order;
  order.reserve(out_.tensors_.size());
  for (const GgufTensor& tensor : out_.tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = *order[i - 1];
    if (before.offset + before.bytes > order[i]->offset) {
      return DataLossError("tensors '{}' and '{}' overlap at byte {}", EscapeText(before.name, 100),
                           EscapeText(order[i]->name, 100), order[i]->offset);
    }
  }
  return OkStatus();
}

}  // namespace tandem
