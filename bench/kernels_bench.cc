// Speed of single operations (kernels/ops.h) at the shapes of real models, in GB/s, GOP/s and per
// cent of what the machine's limits, measured when the program starts, would allow. See README.md.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "core/model_spec.h"
#include "device/cpu_device.h"
#include "kernels/ops.h"
#include "kernels/probe.h"
#include "kernels/ref/ops_ref.h"
#include "os/cpu.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

// Weights of one benchmark together: as many as a small model has, so that they come from where a
// model's weights come from and not from the second-level cache.
constexpr int64_t kWeightBytes = int64_t{96} << 20;
// Between two waits for the stream lie this many operations, as in a model's step, or as many as
// the limits allow in this time: a wait costs some 10 us.
constexpr int64_t kOpsPerWaitMax = 64;
constexpr double kWaitEveryS = 1e-3;

// Everything that the benchmarks share.
struct Machine {
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  MachineLimits limits;
};

// What one operation moves and computes.
struct Work {
  double bytes = 0;
  double ops = 0;
  ComputeKind compute = ComputeKind::kFp32;
};

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(2 * random.NextDouble() - 1);
  return values;
}

// Rows whose every fifth block of columns is large: about as many blocks are refined as in a model.
std::vector<float> ModelLikeRows(int32_t rows, int32_t cols, uint64_t seed) {
  std::vector<float> values = RandomFloats(int64_t{rows} * cols, seed);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = i % static_cast<size_t>(cols) / kActivationBlock;
    if (block % 5 == 0) values[i] *= 4;
  }
  return values;
}

std::string HashOf(const std::vector<float>& values) {
  return HashBytes(std::as_bytes(std::span(values))).ToHex().substr(0, 16);
}

// Runs `enqueue` (the i-th operation) until the time is up and reports rates of `work`.
void RunOps(benchmark::State& state, Machine& machine, const Work& work,
            const std::function<void(int64_t)>& enqueue) {
  const double memory_s = work.bytes / (1e9 * machine.limits.memory_read_gb_s);
  // An absent rate limits nothing.
  const double compute_s = work.ops / (1e9 * machine.limits.gop_s(work.compute).value_or(1e9));
  const double limit_s = std::max(memory_s, compute_s);
  const auto ops_per_wait = static_cast<int64_t>(
      std::clamp(kWaitEveryS / limit_s, 1.0, static_cast<double>(kOpsPerWaitMax)));
  const SteadyClock clock;
  const TimeNs start = clock.Now();
  int64_t op = 0;
  while (state.KeepRunningBatch(ops_per_wait)) {
    for (int64_t i = 0; i < ops_per_wait; ++i) enqueue(op++);
    machine.stream->Synchronize();
  }
  const double op_s = 1e-9 * static_cast<double>(clock.Now() - start) / static_cast<double>(op);
  state.counters["GB/s"] = 1e-9 * work.bytes / op_s;
  state.counters["GOP/s"] = 1e-9 * work.ops / op_s;
  state.counters["%limit"] = 100 * limit_s / op_s;
}

// Rows of activations in both forms, with their memory.
struct ActivationRows {
  ActivationRows(int32_t rows, int32_t cols)
      : f32(static_cast<size_t>(rows) * static_cast<size_t>(cols)),
        codes(f32.size()),
        scales(f32.size() / kActivationBlock),
        sums(scales.size()),
        fine_codes(f32.size()),
        fine_sums(scales.size()),
        refined(scales.size()) {
    activation.cols = cols;
    activation.f32 = f32.data();
    activation.q8 = {codes.data(),
                     scales.data(),
                     sums.data(),
                     {fine_codes.data(), fine_sums.data(), refined.data()}};
  }
  std::vector<float> f32;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  std::vector<int8_t> fine_codes;
  std::vector<int32_t> fine_sums;
  std::vector<uint8_t> refined;
  Activation activation;
};

void Normalise(Stream& stream, const std::vector<float>& x, int32_t rows, const Activation& out) {
  const std::vector<float> ones(static_cast<size_t>(out.cols), 1.0f);
  RmsNormArgs args;
  args.x = x.data();
  args.weight = ones.data();
  args.epsilon = 1e-5f;
  args.rows = rows;
  args.out = out;
  RmsNorm(stream, args);
  stream.Synchronize();
}

// Copies of one matrix whose groups of rows are all the same: speed does not depend on values.
std::vector<Buffer> PackedCopies(Device& device, DType dtype, int32_t rows, int32_t cols) {
  const std::vector<float> values = RandomFloats(int64_t{kPackRows} * cols, 1);
  std::vector<std::byte> source(static_cast<size_t>(BytesOf(dtype, int64_t{kPackRows} * cols)));
  QuantizeRow(dtype, values.data(), int64_t{kPackRows} * cols, source.data());
  std::vector<std::byte> group(static_cast<size_t>(PackedBytes(dtype, kPackRows, cols)));
  PackGroup({source.data(), dtype, Shape::Of(kPackRows, cols)}, 0, group);
  const int64_t bytes = PackedBytes(dtype, rows, cols);
  std::vector<Buffer> copies;
  for (int64_t total = 0; total == 0 || total + bytes <= kWeightBytes; total += bytes) {
    copies.push_back(device.Allocate(static_cast<size_t>(bytes), MemoryTerm::kWeights).value());
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(group.size())) {
      std::memcpy(copies.back().data() + at, group.data(), group.size());
    }
  }
  return copies;
}

struct MatMulCase {
  const char* name;
  int32_t outputs;
  int32_t inputs;
};
constexpr MatMulCase kMatMulCases[] = {
    {"smollm2_qo", 576, 576},       {"smollm2_up", 1536, 576}, {"smollm2_down", 576, 1536},
    {"smollm2_logits", 49152, 576}, {"0.6b_up", 3072, 1024},
};

// In which every type of weights is measured.
constexpr MatMulCase kTypesCase = {"types_2048", 2048, 2048};
constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                               DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                               DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                               DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

void BenchMatMul(benchmark::State& state, Machine& machine, DType dtype, const MatMulCase& shape) {
  const auto rows = static_cast<int32_t>(state.range(0));
  const bool integer = InfoOf(dtype).block_elements > 1;
  const std::vector<Buffer> weights =
      PackedCopies(*machine.device, dtype, shape.outputs, shape.inputs);
  ActivationRows x(rows, shape.inputs);
  Normalise(*machine.stream, ModelLikeRows(rows, shape.inputs, 2), rows, x.activation);
  std::vector<float> out(static_cast<size_t>(rows) * static_cast<size_t>(shape.outputs));
  MatMulArgs args;
  args.x = x.activation;
  if (!integer) args.x.q8 = {};
  args.rows = rows;
  args.num_parts = 1;
  args.parts[0].out = out.data();
  args.parts[0].out_stride = shape.outputs;
  Work work;
  work.bytes = static_cast<double>(PackedBytes(dtype, shape.outputs, shape.inputs)) +
               4.0 * rows * (double{1} * shape.inputs + shape.outputs);
  work.ops = 2.0 * rows * shape.inputs * shape.outputs;
  work.compute = integer ? ComputeKind::kInt8 : ComputeKind::kFp32;
  RunOps(state, machine, work, [&](int64_t op) {
    const Buffer& weight = weights[static_cast<size_t>(op) % weights.size()];
    args.parts[0].weight = {weight.data(), dtype, shape.outputs, shape.inputs};
    MatMul(*machine.stream, args);
  });
  state.SetLabel(HashOf(out));
}

// The KV state of `rows` sequences of equal depth, in the `fast` formats.
class AttentionState {
 public:
  static constexpr int32_t kLayers = 8;  // visited in turn, as a model does
  static constexpr int32_t kHeads = 9;
  static constexpr int32_t kKvHeads = 3;
  static constexpr int32_t kHeadDim = 64;

  AttentionState(Device& device, DType kv, int32_t rows, int32_t depth, int32_t new_tokens) {
    ModelSpec spec;
    spec.architecture = "llama";
    spec.num_layers = kLayers;
    spec.num_heads = kHeads;
    spec.num_kv_heads = kKvHeads;
    spec.head_dim = kHeadDim;
    group_ =
        MakeStateGroups(spec, {Arithmetic::kFast, kv}, kDefaultTokensPerBlock, {}).value().front();
    const auto blocks_per_row = static_cast<int32_t>(group_.BlocksFor(depth + new_tokens));
    view_.group = &group_;
    view_.num_blocks = rows * blocks_per_row;
    const auto bytes = static_cast<size_t>(view_.num_blocks * group_.BlockBytes());
    memory_ = device.Allocate(bytes, MemoryTerm::kKv).value();
    view_.base = memory_.data();
    Fill();
    for (int32_t r = 0; r < rows; ++r) {
      rows_.push_back({r * new_tokens, new_tokens, depth, r * blocks_per_row});
      for (int32_t t = 0; t < new_tokens; ++t) {
        positions_.push_back(depth + t);
        row_of_token_.push_back(r);
      }
    }
    for (int32_t b = 0; b < view_.num_blocks; ++b) tables_.push_back(b);
  }

  BatchView batch() const {
    return {static_cast<int32_t>(positions_.size()),
            static_cast<int32_t>(rows_.size()),
            positions_.data(),
            row_of_token_.data(),
            rows_.data(),
            tables_.data()};
  }
  const PagedStateView& view() const { return view_; }
  double BytesPerTokenAndLayer() const {
    return static_cast<double>(group_.PageBytes()) / group_.tokens_per_block;
  }

 private:
  // Values of -1 .. 1, the same in every page.
  void Fill() {
    std::vector<std::byte> page(static_cast<size_t>(group_.PageBytes()));
    for (int32_t slot = 0; slot < group_.tokens_per_block; ++slot) {
      for (int32_t h = 0; h < kKvHeads; ++h) {
        for (size_t plane = 0; plane < 2; ++plane) {
          const auto seed = static_cast<uint64_t>((slot * kKvHeads + h) * 2) + plane;
          ref::StoreState(group_, plane, slot, RandomFloats(kHeadDim, seed).data(),
                          page.data() + group_.OffsetInBlock(0, h, plane));
        }
      }
    }
    for (size_t at = 0; at + page.size() <= memory_.size(); at += page.size()) {
      std::memcpy(memory_.data() + at, page.data(), page.size());
    }
  }

  StateGroup group_;
  PagedStateView view_;
  Buffer memory_;
  std::vector<BatchRow> rows_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> row_of_token_;
  std::vector<int32_t> tables_;
};

// ranges: sequences, depth before the step, new tokens of each.
void BenchAttention(benchmark::State& state, Machine& machine, DType kv_type) {
  const auto rows = static_cast<int32_t>(state.range(0));
  const auto depth = static_cast<int32_t>(state.range(1));
  const auto new_tokens = static_cast<int32_t>(state.range(2));
  constexpr int32_t kCols = AttentionState::kHeads * AttentionState::kHeadDim;
  const AttentionState kv(*machine.device, kv_type, rows, depth, new_tokens);
  const int32_t tokens = rows * new_tokens;
  const std::vector<float> q = RandomFloats(int64_t{tokens} * kCols, 4);
  ActivationRows out(tokens, kCols);
  std::vector<float> scratch(static_cast<size_t>(
      AttentionScratchFloats(tokens, depth + new_tokens, AttentionState::kHeads,
                             AttentionState::kHeadDim, machine.limits.threads)));
  AttentionArgs args;
  args.batch = kv.batch();
  args.state = kv.view();
  args.num_heads = AttentionState::kHeads;
  args.num_kv_heads = AttentionState::kKvHeads;
  args.head_dim = AttentionState::kHeadDim;
  args.scale = 0.125f;
  args.q = q.data();
  args.q_stride = kCols;
  args.out = out.activation;
  args.scratch = scratch.data();
  const double pairs = double{1} * new_tokens * depth + 0.5 * new_tokens * (new_tokens + 1);
  Work work;
  work.bytes = rows * (double{1} * depth + new_tokens) * kv.BytesPerTokenAndLayer();
  work.ops = 4.0 * rows * pairs * kCols;
  RunOps(state, machine, work, [&](int64_t op) {
    args.layer = static_cast<int32_t>(op % AttentionState::kLayers);
    Attention(*machine.stream, args);
  });
  state.SetLabel(HashOf(out.f32));
}

void BenchRmsNorm(benchmark::State& state, Machine& machine) {
  constexpr int32_t kCols = 576;
  const auto rows = static_cast<int32_t>(state.range(0));
  const std::vector<float> x = RandomFloats(int64_t{rows} * kCols, 5);
  const std::vector<float> weight = RandomFloats(kCols, 6);
  ActivationRows out(rows, kCols);
  const RmsNormArgs args{x.data(), weight.data(), 1e-5f, rows, out.activation};
  Work work;
  work.bytes = rows * kCols * (4.0 + 4 + 1);
  work.ops = 4.0 * rows * kCols;
  RunOps(state, machine, work, [&](int64_t) { RmsNorm(*machine.stream, args); });
  state.SetLabel(HashOf(out.f32));
}

void BenchSiluMul(benchmark::State& state, Machine& machine) {
  constexpr int32_t kCols = 1536;
  const auto rows = static_cast<int32_t>(state.range(0));
  const std::vector<float> gate = RandomFloats(int64_t{rows} * kCols, 7);
  const std::vector<float> up = RandomFloats(int64_t{rows} * kCols, 8);
  ActivationRows out(rows, kCols);
  const SiluMulArgs args{gate.data(), up.data(), rows, out.activation};
  Work work;
  work.bytes = rows * kCols * (4.0 + 4 + 4 + 1);
  work.ops = 4.0 * rows * kCols;
  RunOps(state, machine, work, [&](int64_t) { SiluMul(*machine.stream, args); });
  state.SetLabel(HashOf(out.f32));
}

void RegisterMatMul(Machine& machine, DType dtype, const MatMulCase& shape,
                    std::initializer_list<int64_t> rows) {
  if (!CanPack(dtype, shape.outputs, shape.inputs).ok()) return;
  auto* bench =
      benchmark::RegisterBenchmark(fmt::format("MatMul/{}/{}", NameOf(dtype), shape.name).c_str(),
                                   [&machine, dtype, shape](benchmark::State& state) {
                                     BenchMatMul(state, machine, dtype, shape);
                                   });
  bench->UseRealTime()->Unit(benchmark::kMicrosecond)->ArgName("M");
  for (const int64_t m : rows) bench->Arg(m);
}

void RegisterAll(Machine& machine) {
  const auto add = [&machine](const std::string& name, auto body) {
    return benchmark::RegisterBenchmark(
               name.c_str(), [&machine, body](benchmark::State& state) { body(state, machine); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kF32}) {
    for (const MatMulCase& shape : kMatMulCases) {
      RegisterMatMul(machine, dtype, shape, {1, 4, 16, 64, 256});
    }
  }
  // Every type side by side, in rows that 256 divides.
  for (const DType dtype : kAllTypes) {
    RegisterMatMul(machine, dtype, kTypesCase, {1, 16, 256});
  }
  for (const DType kv_type : kKvTypes) {
    add(fmt::format("Attention/smollm2/{}", NameOfKvType(kv_type)),
        [kv_type](benchmark::State& state, Machine& m) { BenchAttention(state, m, kv_type); })
        ->ArgNames({"rows", "depth", "new"})
        ->Args({1, 128, 1})
        ->Args({1, 1024, 1})
        ->Args({1, 4096, 1})
        ->Args({16, 1024, 1})
        ->Args({1, 0, 256})
        ->Args({1, 1024, 256});
  }
  add("RmsNorm/smollm2", BenchRmsNorm)->ArgName("M")->Arg(1)->Arg(256);
  add("SiluMul/smollm2", BenchSiluMul)->ArgName("M")->Arg(1)->Arg(256);
}

// Prints the error and ends; the status of a bench that could not run.
int Fail(const Status& status) {
  std::fprintf(stderr, "kernels_bench: %s\n", status.message().c_str());
  return 1;
}

int Main(int argc, char** argv) {
  if (const Status status = CheckCpuIsa(); !status.ok()) return Fail(status);
  Machine machine;
  machine.device = MakeCpuDevice({NumUsableProcessors(), {}});
  Result<std::unique_ptr<Stream>> stream = machine.device->NewStream();
  if (!stream.ok()) return Fail(stream.status());
  machine.stream = std::move(stream).value();
  {
    CpuStream& cpu = AsCpu(*machine.stream);
    const Result<Buffer> buffer = MakeProbeBuffer(*machine.device, cpu);
    if (!buffer.ok()) return Fail(buffer.status());
    machine.limits = MeasureLimits(cpu, {buffer->data(), buffer->size()});
  }
  RegisterAll(machine);
  // Short by default; a flag of the user comes later and wins.
  std::string min_time = "--benchmark_min_time=0.05";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, min_time.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  benchmark::AddCustomContext("kernels", CpuIsaName());
  benchmark::AddCustomContext("threads", std::to_string(machine.limits.threads));
  benchmark::AddCustomContext("memory read GB/s",
                              fmt::format("{:.1f}", machine.limits.memory_read_gb_s));
  for (const ComputeKind kind : {ComputeKind::kFp32, ComputeKind::kInt8}) {
    benchmark::AddCustomContext(fmt::format("{} GOP/s", NameOf(kind)),
                                fmt::format("{:.0f}", machine.limits.gop_s(kind).value_or(0)));
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) { return tandem::Main(argc, argv); }
