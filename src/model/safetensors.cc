#include "model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "model/bounded_json.h"
#include "model/text_escape.h"

namespace tandem {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;     // the format's
constexpr size_t kMaxDims = 8;                        // real tensors have at most 5
constexpr size_t kMaxNameBytes = 1000;                // the longest real names have some hundred
constexpr size_t kLabelBytes = 100;                   // of a name in a message
constexpr uint64_t kMaxElements = uint64_t{1} << 56;  // so that their bits are below 2^63

constexpr SafetensorsType kTypes[] = {
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"F32", 32, DType::kF32},
    {"C64", 64, {}},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
};

// Reads the header's text into tensors with offsets from the end of the header, unchecked against
// the file.
class HeaderHandler final : public JsonHandler {
 public:
  HeaderHandler(std::vector<SafetensorsTensor>* tensors,
                std::vector<std::pair<std::string, std::string>>* metadata)
      : JsonHandler({.max_depth = 3, .max_values = std::numeric_limits<size_t>::max()}),
        tensors_(*tensors),
        metadata_(*metadata) {}

 private:
  enum class Field { kNone, kType, kShape, kOffsets };

  Status OnBegin(bool is_object) override {
    const bool in_place = depth() == 3 ? !is_object && !in_metadata_ && ExpectsList() : is_object;
    return in_place ? OkStatus() : Misplaced(is_object ? "an object" : "a list");
  }

  Status OnKey(std::string_view key) override {
    if (depth() == 1) return BeginEntry(key);
    if (in_metadata_) {
      metadata_.emplace_back(key, "");
      return OkStatus();
    }
    field_ = key == "dtype"          ? Field::kType
             : key == "shape"        ? Field::kShape
             : key == "data_offsets" ? Field::kOffsets
                                     : Field::kNone;
    if (field_ != Field::kNone) return OkStatus();
    return DataLossError("{} has an unknown field '{}'", where_, EscapeText(key, kLabelBytes));
  }

  Status OnScalar(const JsonScalar& scalar) override {
    const auto* text = std::get_if<std::string_view>(&scalar);
    if (depth() == 2 && in_metadata_ && text != nullptr) {
      metadata_.back().second = *text;
      return OkStatus();
    }
    if (depth() == 2 && !in_metadata_ && field_ == Field::kType && text != nullptr) {
      tensors_.back().type = FindSafetensorsType(*text);
      if (tensors_.back().type != nullptr) return OkStatus();
      return DataLossError("{} has unknown dtype '{}'", where_, EscapeText(*text, kLabelBytes));
    }
    const auto* number = std::get_if<uint64_t>(&scalar);
    if (depth() == 3 && number != nullptr) return AddNumber(*number);
    return Misplaced(NameOf(scalar));
  }

  Status OnEnd() override {
    if (depth() == 0) return OkStatus();
    if (depth() == 2) {
      if (field_ == Field::kShape) has_shape_ = true;
      return OkStatus();
    }
    if (in_metadata_) {
      in_metadata_ = false;
      return OkStatus();
    }
    if (tensors_.back().type == nullptr) return DataLossError("{} has no dtype", where_);
    if (!has_shape_) return DataLossError("{} has no shape", where_);
    if (num_offsets_ != 2) {
      return DataLossError("{} has {} data_offsets; 2 are needed", where_, num_offsets_);
    }
    return OkStatus();
  }

  bool ExpectsList() const { return field_ == Field::kShape || field_ == Field::kOffsets; }

  Status BeginEntry(std::string_view key) {
    const std::string label = EscapeText(key, kLabelBytes);
    in_metadata_ = key == "__metadata__";
    where_ = in_metadata_ ? "'__metadata__'" : fmt::format("tensor '{}'", label);
    field_ = Field::kNone;
    has_shape_ = false;
    num_offsets_ = 0;
    if (in_metadata_) return OkStatus();
    if (key.empty()) return DataLossError("a tensor has an empty name");
    if (key.size() > kMaxNameBytes) {
      return OutOfRangeError("{} has a name of {} bytes; at most {} are allowed", where_,
                             key.size(), kMaxNameBytes);
    }
    tensors_.emplace_back().name = key;
    return OkStatus();
  }

  Status AddNumber(uint64_t number) {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return DataLossError("{} has a number beyond 63 bits: {}", where_, number);
    }
    const auto value = static_cast<int64_t>(number);
    SafetensorsTensor& tensor = tensors_.back();
    if (field_ == Field::kShape) {
      if (tensor.shape.size() == kMaxDims) {
        return OutOfRangeError("{} has more than {} dimensions", where_, kMaxDims);
      }
      tensor.shape.push_back(value);
      return OkStatus();
    }
    if (num_offsets_ == 2) return DataLossError("{} has more than 2 data_offsets", where_);
    if (num_offsets_++ == 0) {
      tensor.offset = value;
      return OkStatus();
    }
    if (value < tensor.offset) {
      return DataLossError("{} ends at {}, before it begins at {}", where_, value, tensor.offset);
    }
    tensor.bytes = value - tensor.offset;
    return OkStatus();
  }

  Status Misplaced(std::string_view what) const {
    const std::string_view field = field_ == Field::kType      ? " as its dtype"
                                   : field_ == Field::kShape   ? " in its shape"
                                   : field_ == Field::kOffsets ? " in its data_offsets"
                                                               : "";
    return DataLossError("{} has {} where it does not belong{}", where_, what, field);
  }

  std::vector<SafetensorsTensor>& tensors_;
  std::vector<std::pair<std::string, std::string>>& metadata_;
  std::string where_ = "the header";  // the entry being read, for messages
  bool in_metadata_ = false;
  Field field_ = Field::kNone;
  bool has_shape_ = false;
  int num_offsets_ = 0;
};

// The bytes that shape and type need.
Result<int64_t> BytesNeeded(const SafetensorsTensor& tensor) {
  uint64_t elements = 1;
  for (const int64_t dim : tensor.shape) {
    const auto d = static_cast<uint64_t>(dim);
    if (d != 0 && elements > kMaxElements / d) {
      return DataLossError("the size of tensor '{}' of shape {} overflows",
                           EscapeText(tensor.name, kLabelBytes), tensor.ShapeText());
    }
    elements *= d;
  }
  const uint64_t bits = elements * static_cast<uint64_t>(tensor.type->bits);
  if (bits % 8 != 0) {
    return DataLossError("tensor '{}' of {} {} does not fill whole bytes",
                         EscapeText(tensor.name, kLabelBytes), tensor.type->name,
                         tensor.ShapeText());
  }
  return static_cast<int64_t>(bits / 8);
}

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const SafetensorsType& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

int64_t SafetensorsTensor::num_elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::string SafetensorsTensor::ShapeText() const {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<SafetensorsFile> SafetensorsFile::Open(FileSystem& fs, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, fs.Open(path));
  return Read(std::move(file));
}

Result<SafetensorsFile> SafetensorsFile::Read(std::unique_ptr<ReadableFile> file) {
  SafetensorsFile out;
  out.file_ = std::move(file);
  const auto read = [&out]() -> Status {
    TANDEM_ASSIGN_OR_RETURN(out.stamp_, out.file_->Stamp());
    TANDEM_RETURN_IF_ERROR(out.ReadHeader());
    return out.PlaceTensors();
  };
  const Status status = read();
  if (!status.ok()) return status.WithContext(out.path());
  return out;
}

Status SafetensorsFile::ReadHeader() {
  const int64_t size = file_->size();
  if (size < kLengthBytes) {
    return DataLossError("the file has {} bytes, too few for the header's length", size);
  }
  uint64_t length = 0;
  TANDEM_RETURN_IF_ERROR(file_->ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxHeaderBytes) {
    return OutOfRangeError("the header is {} bytes long; at most {} are allowed", length,
                           kMaxHeaderBytes);
  }
  if (static_cast<int64_t>(length) > size - kLengthBytes) {
    return DataLossError("the file ends inside the header: it is {} bytes long, {} are left",
                         length, size - kLengthBytes);
  }
  std::string text(length, '\0');
  TANDEM_RETURN_IF_ERROR(file_->ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text))));
  if (!text.starts_with('{')) return DataLossError("the header does not begin with '{{'");
  header_bytes_ = kLengthBytes + static_cast<int64_t>(length);
  HeaderHandler handler(&tensors_, &metadata_);
  return handler.Run(text).WithContext("the header");
}

Status SafetensorsFile::PlaceTensors() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
            });
  int64_t end = 0;  // of the tensors so far, from the end of the header
  for (SafetensorsTensor& tensor : tensors_) {
    const std::string label = EscapeText(tensor.name, kLabelBytes);
    TANDEM_ASSIGN_OR_RETURN(const int64_t needed, BytesNeeded(tensor));
    if (needed != tensor.bytes) {
      return DataLossError("tensor '{}' of {} {} needs {} bytes; its data_offsets give it {}",
                           label, tensor.type->name, tensor.ShapeText(), needed, tensor.bytes);
    }
    if (tensor.offset < end) {
      return DataLossError("tensor '{}' begins at {}, inside the one before it, which ends at {}",
                           label, tensor.offset, end);
    }
    if (tensor.offset > end) {
      return DataLossError("no tensor covers the bytes {} to {}, before '{}'", end, tensor.offset,
                           label);
    }
    end = tensor.offset + tensor.bytes;
    if (end > file_->size() - header_bytes_) {
      return DataLossError("tensor '{}' ends at {}, the file's data at {}", label, end,
                           file_->size() - header_bytes_);
    }
    tensor.offset += header_bytes_;
  }
  if (end != file_->size() - header_bytes_) {
    return DataLossError("no tensor covers the last {} bytes", file_->size() - header_bytes_ - end);
  }
  order_.resize(tensors_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::sort(order_.begin(), order_.end(),
            [this](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  return OkStatus();
}

const SafetensorsTensor* SafetensorsFile::FindTensor(std::string_view name) const {
  const auto it =
      std::lower_bound(order_.begin(), order_.end(), name,
                       [this](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  if (it == order_.end() || tensors_[*it].name != name) return nullptr;
  return &tensors_[*it];
}

}  // namespace tandem
