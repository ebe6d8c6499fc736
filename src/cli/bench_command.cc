// The command `bench`: limits, fabric, decode, prefill.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/bench_fabric.h"
#include "cli/bench_limits.h"
#include "cli/bench_model.h"
#include "cli/commands.h"
#include "cli/progress_bar.h"
#include "cli/runtime.h"

namespace tandem {
namespace {

// Plain types take 16 bits a weight or more, block-quantised ones of today at most 8.5.
constexpr int64_t kQuantisedBitsMax = 12;

ComputeKind ComputeOf(const ModelCost& cost, Numerics numerics) {
  const bool quantised = 8 * cost.layer_weight_bytes < kQuantisedBitsMax * cost.macs_per_token;
  return quantised && numerics.arithmetic == Arithmetic::kFast ? ComputeKind::kInt8
                                                               : ComputeKind::kFp32;
}

// A team of its own, as large as the model's, that measures while the model rests.
class LimitProbe {
 public:
  static Result<std::unique_ptr<LimitProbe>> Create(int32_t threads, const ModelCost& cost,
                                                    ComputeKind compute) {
    std::unique_ptr<LimitProbe> probe(new LimitProbe);
    probe->device_ = MakeCpuDevice({threads, {}});
    TANDEM_ASSIGN_OR_RETURN(probe->stream_, probe->device_->NewStream());
    TANDEM_ASSIGN_OR_RETURN(probe->buffer_,
                            MakeProbeBuffer(*probe->device_, AsCpu(*probe->stream_)));
    probe->weight_bytes_ = cost.layer_weight_bytes + cost.output_weight_bytes;
    probe->compute_ = compute;
    return probe;
  }

  BenchLimits Measure() {
    CpuStream& stream = AsCpu(*stream_);
    const std::span<const std::byte> all(buffer_.data(), buffer_.size());
    const auto size = static_cast<int64_t>(all.size());
    BenchLimits limits;
    limits.memory_read_gb_s = MeasureReadGbS(stream, all);
    limits.weights_read_gb_s = limits.memory_read_gb_s;
    if (weight_bytes_ < size) {
      const int64_t bytes = std::max(weight_bytes_, kMinReadBytes);
      limits.weights_read_gb_s = MeasureReadGbS(stream, all.first(static_cast<size_t>(bytes)));
    }
    limits.compute_gop_s = MeasureGopS(stream, compute_).value_or(0);
    return limits;
  }

 private:
  LimitProbe() = default;

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Buffer buffer_;
  int64_t weight_bytes_ = 0;
  ComputeKind compute_ = ComputeKind::kFp32;
};

Result<std::string> BenchMachine(const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(const LimitsReport report, MeasureLimitsReport(options.model.threads));
  return options.bench.json ? LimitsJson(report) : LimitsText(report);
}

Result<std::string> BenchFabric(const Options& options) {
  TANDEM_ASSIGN_OR_RETURN(const std::vector<FabricRow> rows, MeasureFabric());
  return options.bench.json ? FabricJson(rows) : FabricText(rows);
}

Result<std::string> BenchModel(const Options& options) {
  ModelOptions model = options.model;
  model.max_seqs = std::max(model.max_seqs, options.bench.batch);
  model.prefix_cache = "off";  // every repeat computes its prompt
  std::unique_ptr<Runtime> runtime;
  {
    ProgressBar bar("packing weights");
    TANDEM_ASSIGN_OR_RETURN(runtime, Runtime::Create(model, [&bar](int64_t done, int64_t total) {
                              bar.Update(done, total);
                            }));
  }
  BenchSubject subject;
  subject.engine = &runtime->engine();
  subject.model_name = runtime->model_name();
  subject.vocab_size = runtime->spec().vocab_size;
  subject.cost = runtime->cost();
  subject.numerics = NameOf(runtime->numerics());
  subject.threads = runtime->num_threads();
  subject.compute = ComputeOf(subject.cost, runtime->numerics());
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<LimitProbe> probe,
                          LimitProbe::Create(subject.threads, subject.cost, subject.compute));
  TANDEM_ASSIGN_OR_RETURN(const BenchReport report,
                          RunModelBench(options.bench, subject, [&] { return probe->Measure(); }));
  return options.bench.json ? BenchJson(report) : BenchText(report);
}

}  // namespace

int RunBench(const Options& options) {
  const std::string& what = options.bench.what;
  const Result<std::string> text = what == "limits"   ? BenchMachine(options)
                                   : what == "fabric" ? BenchFabric(options)
                                                      : BenchModel(options);
  if (!text.ok()) return Fail(text.status());
  std::fwrite(text->data(), 1, text->size(), stdout);
  return 0;
}

}  // namespace tandem
