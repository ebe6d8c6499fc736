#include "model/gguf_writer.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;

template <typename T>
void Append(std::string* out, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  out->append(raw, sizeof value);
}

void AppendString(std::string* out, std::string_view text) {
  Append(out, uint64_t{text.size()});
  out->append(text);
}

int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

GgufHeader::GgufHeader(int64_t alignment) : alignment_(alignment) {
  TANDEM_CHECK(alignment > 0 && (alignment & (alignment - 1)) == 0);
}

void GgufHeader::AddKey(std::string_view key, GgufValueType type) {
  AppendString(&entries_, key);
  Append(&entries_, static_cast<uint32_t>(type));
  ++num_entries_;
}

void GgufHeader::AddU32(std::string_view key, uint32_t value) {
  AddKey(key, GgufValueType::kU32);
  Append(&entries_, value);
}

void GgufHeader::AddF32(std::string_view key, float value) {
  AddKey(key, GgufValueType::kF32);
  Append(&entries_, value);
}

void GgufHeader::AddBool(std::string_view key, bool value) {
  AddKey(key, GgufValueType::kBool);
  Append(&entries_, static_cast<uint8_t>(value ? 1 : 0));
}

void GgufHeader::AddString(std::string_view key, std::string_view value) {
  AddKey(key, GgufValueType::kString);
  AppendString(&entries_, value);
}

void GgufHeader::AddStrings(std::string_view key, std::span<const std::string> values) {
  AddKey(key, GgufValueType::kArray);
  Append(&entries_, static_cast<uint32_t>(GgufValueType::kString));
  Append(&entries_, uint64_t{values.size()});
  for (const std::string& value : values) AppendString(&entries_, value);
}

void GgufHeader::AddI32s(std::string_view key, std::span<const int32_t> values) {
  AddKey(key, GgufValueType::kArray);
  Append(&entries_, static_cast<uint32_t>(GgufValueType::kI32));
  Append(&entries_, uint64_t{values.size()});
  for (const int32_t value : values) Append(&entries_, value);
}

void GgufHeader::AddEntry(const GgufFile& file, const GgufEntry& entry) {
  AddKey(entry.key, entry.type);
  if (entry.type == GgufValueType::kArray) {
    Append(&entries_, static_cast<uint32_t>(entry.element_type));
    Append(&entries_, entry.count);
  }
  const std::span<const std::byte> value = file.ValueBytes(entry);
  entries_.append(reinterpret_cast<const char*>(value.data()), value.size());
}

void GgufHeader::AddTensor(std::string_view name, std::span<const int64_t> dims,
                           const GgmlTypeInfo& type) {
  TANDEM_CHECK(!dims.empty());
  TANDEM_CHECK_EQ(dims[0] % type.block_elements, 0);
  int64_t blocks = 1;
  for (const int64_t dim : dims) blocks *= dim;
  blocks /= type.block_elements;
  AppendString(&tensors_, name);
  Append(&tensors_, static_cast<uint32_t>(dims.size()));
  for (const int64_t dim : dims) Append(&tensors_, static_cast<uint64_t>(dim));
  Append(&tensors_, type.id);
  Append(&tensors_, static_cast<uint64_t>(data_bytes_));
  tensor_bytes_.push_back(blocks * type.block_bytes);
  data_bytes_ += AlignUp(tensor_bytes_.back(), alignment_);
}

int64_t GgufHeader::file_bytes() const {
  constexpr int64_t kFixed = 4 + 4 + 8 + 8;
  const auto described = static_cast<int64_t>(entries_.size() + tensors_.size());
  return AlignUp(kFixed + described, alignment_) + data_bytes_;
}

std::string GgufHeader::Serialize() const {
  std::string out;
  Append(&out, kMagic);
  Append(&out, kVersion);
  Append(&out, uint64_t{num_tensors()});
  Append(&out, num_entries_);
  out += entries_;
  out += tensors_;
  out.resize(static_cast<size_t>(AlignUp(static_cast<int64_t>(out.size()), alignment_)));
  return out;
}

GgufWriter::GgufWriter(std::unique_ptr<AtomicFile> file, const GgufHeader& header)
    : file_(std::move(file)), alignment_(header.alignment()) {
  for (size_t i = 0; i < header.num_tensors(); ++i) {
    tensor_bytes_.push_back(header.tensor_bytes(i));
  }
  if (!tensor_bytes_.empty()) left_ = tensor_bytes_[0];
}

Result<std::unique_ptr<GgufWriter>> GgufWriter::Create(FileSystem& fs, const std::string& path,
                                                       const GgufHeader& header) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(fs, path));
  std::unique_ptr<GgufWriter> writer(new GgufWriter(std::move(file), header));
  const std::string text = header.Serialize();
  TANDEM_RETURN_IF_ERROR(writer->Put(AsBytes(text)));
  TANDEM_RETURN_IF_ERROR(writer->FinishTensors());
  return writer;
}

Status GgufWriter::Put(std::span<const std::byte> bytes) {
  TANDEM_RETURN_IF_ERROR(file_->Write(bytes));
  bytes_written_ += static_cast<int64_t>(bytes.size());
  return OkStatus();
}

// Pads behind the current tensor once it is whole, and goes on to the next that has bytes.
Status GgufWriter::FinishTensors() {
  while (tensor_ < tensor_bytes_.size() && left_ == 0) {
    const std::string padding(
        static_cast<size_t>(AlignUp(bytes_written_, alignment_) - bytes_written_), '\0');
    TANDEM_RETURN_IF_ERROR(Put(AsBytes(padding)));
    ++tensor_;
    if (tensor_ < tensor_bytes_.size()) left_ = tensor_bytes_[tensor_];
  }
  return OkStatus();
}

Status GgufWriter::Write(std::span<const std::byte> bytes) {
  TANDEM_CHECK_LE(static_cast<int64_t>(bytes.size()), left_);
  TANDEM_RETURN_IF_ERROR(Put(bytes));
  left_ -= static_cast<int64_t>(bytes.size());
  return FinishTensors();
}

Status GgufWriter::Commit() {
  TANDEM_CHECK_EQ(tensor_, tensor_bytes_.size());
  return file_->Commit();
}

}  // namespace tandem
