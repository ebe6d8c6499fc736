#include "model/weights_plan.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/packed_matrix.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

// Source bytes per read: large enough for a disk, small enough to stay in a cache on the way to the
// packer.
constexpr int64_t kReadBytes = 1 << 20;

int64_t AlignUp(int64_t value) {
  return (value + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
}

// The shard's part of `whole` units.
Status Divide(const TensorSpec& tensor, int64_t whole, int64_t unit, Shard shard, int64_t* first,
              int64_t* count) {
  if (whole % (unit * shard.world) != 0) {
    return InvalidArgumentError(
        "tensor '{}' cannot be split over {} ranks: {} is not a multiple of {}", tensor.name,
        shard.world, whole, unit * shard.world);
  }
  *count = whole / shard.world;
  *first = *count * shard.rank;
  return OkStatus();
}

Result<WeightEntry> PlanTensor(const ModelSource& source, const TensorSpec& tensor, Shard shard) {
  WeightEntry entry;
  entry.name = tensor.name;
  entry.kind = tensor.kind;
  entry.source = source.FindTensor(tensor.name);
  TANDEM_CHECK(entry.source != nullptr);
  const DType dtype = entry.source->dtype;
  int64_t rows = tensor.rows;
  int64_t cols = tensor.cols;
  if (tensor.split == TensorSplit::kRows) {
    TANDEM_RETURN_IF_ERROR(Divide(tensor, tensor.rows, 1, shard, &entry.first_row, &rows));
  } else if (tensor.split == TensorSplit::kColumns) {
    // A vector is decoded before it is split.
    const bool vector = tensor.kind == TensorKind::kVector;
    const int64_t unit = vector ? 1 : InfoOf(dtype).block_elements;
    TANDEM_RETURN_IF_ERROR(Divide(tensor, tensor.cols, unit, shard, &entry.first_col, &cols));
  }
  entry.rows = static_cast<int32_t>(rows);
  entry.cols = static_cast<int32_t>(cols);
  if (tensor.kind == TensorKind::kVector) {
    entry.bytes = BytesOf(DType::kF32, cols);
    return entry;
  }
  const Status can_pack = CanPack(dtype, rows, cols);
  if (!can_pack.ok()) return can_pack.WithContext(fmt::format("tensor '{}'", tensor.name));
  entry.dtype = dtype;
  entry.bytes = PackedBytes(dtype, rows, cols);
  return entry;
}

class Writer {
 public:
  Writer(const ModelSource& source, const WeightSink& sink) : source_(source), sink_(sink) {}

  Status Write(const WeightEntry& entry) {
    TANDEM_RETURN_IF_ERROR(PadTo(entry.offset));
    TANDEM_RETURN_IF_ERROR(entry.kind == TensorKind::kVector ? WriteVector(entry)
                                                             : WriteMatrix(entry));
    TANDEM_CHECK_EQ(written_, entry.offset + entry.bytes);
    return OkStatus();
  }

  Status PadTo(int64_t offset) {
    constexpr std::byte kZeros[kWeightAlignment] = {};
    TANDEM_CHECK_LT(offset - written_, kWeightAlignment);
    return Put(std::span(kZeros).first(static_cast<size_t>(offset - written_)));
  }

 private:
  Status Put(std::span<const std::byte> bytes) {
    if (bytes.empty()) return OkStatus();
    TANDEM_RETURN_IF_ERROR(sink_(bytes));
    written_ += static_cast<int64_t>(bytes.size());
    return OkStatus();
  }

  Status WriteVector(const WeightEntry& entry) {
    const SourceTensor& tensor = *entry.source;
    rows_.resize(static_cast<size_t>(tensor.bytes));
    TANDEM_RETURN_IF_ERROR(source_.ReadTensor(tensor, 0, rows_));
    std::vector<float> values(static_cast<size_t>(tensor.cols));
    DequantizeRow(tensor.dtype, rows_.data(), tensor.cols, values.data());
    return Put(std::as_bytes(std::span(values).subspan(static_cast<size_t>(entry.first_col),
                                                       static_cast<size_t>(entry.cols))));
  }

  // Some groups of rows at a time: read whole rows, keep the shard's columns, pack.
  Status WriteMatrix(const WeightEntry& entry) {
    const int64_t source_row_bytes = BytesOf(entry.dtype, entry.source->cols);
    const int64_t group_bytes = source_row_bytes * kPackRows;
    const int64_t step = std::max<int64_t>(1, kReadBytes / group_bytes) * kPackRows;
    const int64_t packed_bytes = PackedBytes(entry.dtype, kPackRows, entry.cols);
    for (int64_t row = 0; row < entry.rows; row += step) {
      const int64_t count = std::min<int64_t>(step, entry.rows - row);
      rows_.resize(static_cast<size_t>(count * source_row_bytes));
      TANDEM_RETURN_IF_ERROR(
          source_.ReadTensor(*entry.source, (entry.first_row + row) * source_row_bytes, rows_));
      KeepColumns(entry, count, source_row_bytes);
      const TensorView view = {rows_.data(), entry.dtype, Shape::Of(count, entry.cols)};
      const int64_t groups = (count + kPackRows - 1) / kPackRows;
      packed_.resize(static_cast<size_t>(groups * packed_bytes));
      for (int64_t group = 0; group < groups; ++group) {
        PackGroup(view, static_cast<int32_t>(group),
                  std::span(packed_).subspan(static_cast<size_t>(group * packed_bytes),
                                             static_cast<size_t>(packed_bytes)));
      }
      TANDEM_RETURN_IF_ERROR(Put(packed_));
    }
    return OkStatus();
  }

  // Moves the shard's part of each row in rows_ to the front.
  void KeepColumns(const WeightEntry& entry, int64_t count, int64_t source_row_bytes) {
    const int64_t kept_bytes = BytesOf(entry.dtype, entry.cols);
    if (kept_bytes == source_row_bytes) return;
    const int64_t begin = BytesOf(entry.dtype, entry.first_col);
    for (int64_t r = 0; r < count; ++r) {
      std::memmove(rows_.data() + r * kept_bytes, rows_.data() + r * source_row_bytes + begin,
                   static_cast<size_t>(kept_bytes));
    }
  }

  const ModelSource& source_;
  const WeightSink& sink_;
  int64_t written_ = 0;
  std::vector<std::byte> rows_;    // as in the file
  std::vector<std::byte> packed_;  // the groups of those rows
};

}  // namespace

Result<WeightPlan> PlanWeights(const ModelSource& source, Shard shard) {
  TANDEM_CHECK(shard.world >= 1 && shard.rank >= 0 && shard.rank < shard.world);
  WeightPlan plan;
  for (const TensorSpec& tensor : TensorsOf(source.spec())) {
    TANDEM_ASSIGN_OR_RETURN(WeightEntry entry, PlanTensor(source, tensor, shard));
    entry.offset = plan.total_bytes;
    plan.total_bytes = AlignUp(entry.offset + entry.bytes);
    plan.entries.push_back(std::move(entry));
  }
  return plan;
}

Status WriteWeights(const ModelSource& source, const WeightPlan& plan, const WeightSink& sink) {
  Writer writer(source, sink);
  for (const WeightEntry& entry : plan.entries) TANDEM_RETURN_IF_ERROR(writer.Write(entry));
  return writer.PadTo(plan.total_bytes);
}

}  // namespace tandem
