#include "model/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/gguf.h"
#include "model/gguf_writer.h"
#include "model/hf_folder.h"
#include "model/spec_from_gguf.h"
#include "model/tensor_layout.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kQuantizationVersion = "general.quantization_version";
constexpr uint32_t kVersionOfBlocks = 2;  // of the layouts that block_quant.h writes
// Values converted at a time: a multiple of every block.
constexpr int64_t kPieceElements = int64_t{1} << 18;
constexpr float kLargestHalf = 65504;

class Quantizer {
 public:
  Quantizer(FileSystem& fs, const GgufFile& file, const QuantizeOptions& options)
      : fs_(fs), file_(file), options_(options) {}
  Result<QuantizeReport> Run(const std::string& out);

 private:
  struct Step {
    const GgufTensor* tensor;
    DType type;  // of the output
  };
  void Plan(const ModelSpec& spec);
  GgufHeader MakeHeader() const;
  Status WriteTensor(const Step& step, GgufWriter& writer);
  Status CheckValues(const Step& step, int64_t n) const;
  Status CheckUnchanged() const;

  FileSystem& fs_;
  const GgufFile& file_;
  const QuantizeOptions& options_;
  QuantizeReport report_;
  std::vector<Step> steps_;
  int64_t done_ = 0;  // bytes of the input
  std::vector<std::byte> in_;
  std::vector<float> values_;
  std::vector<std::byte> out_;
};

void Quantizer::Plan(const ModelSpec& spec) {
  std::map<std::string, TensorSpec, std::less<>> known;
  for (TensorSpec& tensor : TensorsOf(spec)) {
    std::string name = tensor.name;
    known.emplace(std::move(name), std::move(tensor));
  }
  for (const GgufTensor& tensor : file_.tensors()) {
    const auto it = known.find(tensor.name);
    // What the spec has no tensor for is the rope's divisors, a vector.
    const TensorSpec& expected = it != known.end()
                                     ? it->second
                                     : TensorSpec{std::string(tensor.name), TensorKind::kVector, 1,
                                                  tensor.dims[0], TensorSplit::kWhole};
    const ChosenType chosen = ChooseType(options_.mix, spec, expected);
    steps_.push_back({&tensor, chosen.type});
    report_.counts.Add(expected, chosen);
    report_.bytes_in += tensor.bytes;
    if (tensor.type->quantised() && tensor.type->dtype != chosen.type) ++report_.requantised;
  }
}

GgufHeader Quantizer::MakeHeader() const {
  GgufHeader header(file_.alignment());
  for (const GgufEntry& entry : file_.entries()) {
    if (entry.key == kFileType || entry.key == kQuantizationVersion) continue;
    if (entry.key.starts_with("split.")) continue;  // the output is one file
    header.AddEntry(file_, entry);
  }
  header.AddU32(kFileType, FileTypeOf(options_.mix.type));
  header.AddU32(kQuantizationVersion, kVersionOfBlocks);
  for (const Step& step : steps_) {
    const GgufTensor& tensor = *step.tensor;
    header.AddTensor(tensor.name, std::span(tensor.dims, static_cast<size_t>(tensor.num_dims)),
                     GgmlInfoOf(step.type));
  }
  return header;
}

Status Quantizer::CheckValues(const Step& step, int64_t n) const {
  const bool as_wide_as_f32 = step.type == DType::kF32 || step.type == DType::kBF16;
  const float limit = as_wide_as_f32 ? std::numeric_limits<float>::max() : kLargestHalf;
  for (int64_t i = 0; i < n; ++i) {
    const float value = values_[static_cast<size_t>(i)];
    if (std::fabs(value) <= limit) continue;
    return DataLossError("tensor '{}' has the value {}, which {} cannot hold", step.tensor->name,
                         value, NameOf(step.type));
  }
  return OkStatus();
}

Status Quantizer::WriteTensor(const Step& step, GgufWriter& writer) {
  const GgufTensor& tensor = *step.tensor;
  const DType from = *tensor.type->dtype;
  const int64_t total = tensor.num_elements();
  for (int64_t begin = 0; begin < total; begin += kPieceElements) {
    if (options_.cancelled && options_.cancelled()) return CancelledError("interrupted");
    const int64_t n = std::min(kPieceElements, total - begin);
    in_.resize(static_cast<size_t>(BytesOf(from, n)));
    TANDEM_RETURN_IF_ERROR(file_.ReadTensor(tensor, BytesOf(from, begin), in_));
    if (from == step.type) {
      TANDEM_RETURN_IF_ERROR(writer.Write(in_));
    } else {
      values_.resize(static_cast<size_t>(n));
      DequantizeRow(from, in_.data(), n, values_.data());
      TANDEM_RETURN_IF_ERROR(CheckValues(step, n));
      out_.resize(static_cast<size_t>(BytesOf(step.type, n)));
      QuantizeRow(step.type, values_.data(), n, out_.data());
      TANDEM_RETURN_IF_ERROR(writer.Write(out_));
    }
    done_ += static_cast<int64_t>(in_.size());
    if (options_.progress) options_.progress(done_, report_.bytes_in);
  }
  return OkStatus();
}

Status Quantizer::CheckUnchanged() const {
  for (size_t i = 0; i < file_.num_parts(); ++i) {
    const GgufFile& part = file_.part(i);
    TANDEM_ASSIGN_OR_RETURN(const FileStamp now, part.file().Stamp());
    if (!(now == part.stamp())) {
      return UnavailableError("{} was changed while it was read", part.path());
    }
  }
  return OkStatus();
}

Status CheckOutput(FileSystem& fs, const GgufFile& file, const std::string& out) {
  const Result<std::string> there = fs.Canonical(out);
  if (!there.ok()) return OkStatus();  // a new file; or what is wrong shows when it is created
  if (IsDirectory(fs, out)) return InvalidArgumentError("{} is a folder: name a file", out);
  for (size_t i = 0; i < file.num_parts(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(const std::string part, fs.Canonical(file.part(i).path()));
    if (part == *there) {
      return InvalidArgumentError("{} is the input too: name another file to write", out);
    }
  }
  return OkStatus();
}

Result<QuantizeReport> Quantizer::Run(const std::string& out) {
  TANDEM_RETURN_IF_ERROR(CheckOutput(fs_, file_, out));
  TANDEM_ASSIGN_OR_RETURN(const ModelSpec spec, SpecFromGguf(file_));
  Plan(spec);
  const GgufHeader header = MakeHeader();
  report_.bytes_out = header.file_bytes();
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<GgufWriter> writer,
                          GgufWriter::Create(fs_, out, header));
  for (const Step& step : steps_) TANDEM_RETURN_IF_ERROR(WriteTensor(step, *writer));
  TANDEM_RETURN_IF_ERROR(CheckUnchanged());
  TANDEM_RETURN_IF_ERROR(writer->Commit());
  return report_;
}

}  // namespace

Result<QuantizeReport> QuantizeGguf(FileSystem& fs, const std::string& in, const std::string& out,
                                    const QuantizeOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(fs, in));
  return Quantizer(fs, file, options).Run(out);
}

}  // namespace tandem
