#include "kernels/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/probe_kernels.h"
#include "tensor/half.h"

namespace tandem {
namespace {

// No processor of today runs faster than 7 GHz, starts more than two 64-byte multiply-adds a cycle,
// or loads more than two 64-byte lines a cycle.
constexpr double kMaxGhz = 7;
constexpr double kMaxReadGbSPerThread = kMaxGhz * 2 * 64;

double MaxGopSPerThread(ComputeKind kind) {
  const double lanes = kind == ComputeKind::kFp32 ? 16 : kind == ComputeKind::kInt8 ? 64 : 32;
  return kMaxGhz * 2 * lanes * 2;
}

struct Team {
  explicit Team(int threads) {
    CpuDeviceOptions options;
    options.num_threads = threads;
    device = MakeCpuDevice(options);
    stream = device->NewStream().value();
  }
  CpuStream& cpu() { return AsCpu(*stream); }
  Result<Buffer> ProbeBuffer(int64_t bytes) { return MakeProbeBuffer(*device, cpu(), bytes); }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
};

double LaneValue(const internal::ComputeKernel& kernel, const std::byte* lane) {
  if (kernel.lane_bytes == 2) {
    uint16_t half;
    std::memcpy(&half, lane, sizeof(half));
    return static_cast<double>(HalfToFloat(half));
  }
  if (kernel.integer) {
    int32_t value;
    std::memcpy(&value, lane, sizeof(value));
    return value;
  }
  float value;
  std::memcpy(&value, lane, sizeof(value));
  return static_cast<double>(value);
}

// Proves that the loops do the operations that are counted: each adds up ones.
TEST(Probe, ComputeKernelsDoTheWorkTheyCount) {
  constexpr int64_t kIterations = 321;  // exact in every format
  for (ComputeKind kind : kComputeKinds) {
    for (const internal::ComputeKernel& kernel : internal::ComputeKernels(kind)) {
      SCOPED_TRACE(kernel.instruction);
      alignas(64) std::byte out[internal::kMaxAccumulators * internal::kVectorBytes] = {};
      kernel.run(kIterations, kernel.one_a, kernel.one_b, out);
      double multiply_adds = 0;
      for (int i = 0; i < kernel.accumulators; ++i) {
        for (int at = 0; at < static_cast<int>(internal::kVectorBytes); at += kernel.lane_bytes) {
          const double value = LaneValue(kernel, out + i * 64 + at);
          multiply_adds += value;
          EXPECT_TRUE(value == 0 || value == kIterations * kernel.multiply_adds_per_lane) << value;
        }
      }
      EXPECT_EQ(2 * multiply_adds, static_cast<double>(kIterations * kernel.ops_per_iteration));
    }
  }
}

TEST(Probe, ReadKernelsReadEveryWord) {
  constexpr size_t kBytes = 8 * internal::kReadGranule;
  alignas(64) static std::byte bytes[kBytes];
  const std::span<const std::byte> all(bytes, kBytes);
  for (const internal::ReadKernel& kernel : internal::ReadKernels()) {
    SCOPED_TRACE(kernel.name);
    std::memset(bytes, 0, kBytes);
    EXPECT_EQ(kernel.run(all), 0u);
    for (size_t i = 0; i < kBytes; ++i) {
      bytes[i] = std::byte{0x40};
      ASSERT_EQ(kernel.run(all), uint64_t{0x40} << (8 * (i % 8))) << i;
      bytes[i] = std::byte{0};
    }
  }
}

TEST(Probe, RatesAreThoseOfAProcessor) {
  for (int threads : {1, 2}) {
    Team team(threads);
    const Result<Buffer> buffer = team.ProbeBuffer(int64_t{16} << 20);
    ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
    const MachineLimits limits = MeasureLimits(team.cpu(), {buffer->data(), buffer->size()});
    EXPECT_EQ(limits.threads, threads);
    EXPECT_GT(limits.memory_read_gb_s, 0.01);
    EXPECT_LT(limits.memory_read_gb_s, threads * kMaxReadGbSPerThread);
    EXPECT_GT(limits.cache_read_gb_s, 0.01);
    EXPECT_LT(limits.cache_read_gb_s, threads * kMaxReadGbSPerThread);
    for (ComputeKind kind : kComputeKinds) {
      const std::optional<double> rate = limits.gop_s(kind);
      ASSERT_EQ(rate.has_value(), InstructionOf(kind) != nullptr) << NameOf(kind);
      if (!rate) continue;
      EXPECT_GT(*rate, 0.01) << NameOf(kind);
      EXPECT_LT(*rate, threads * MaxGopSPerThread(kind)) << NameOf(kind);
    }
  }
}

TEST(Probe, BufferIsWrittenWholeAndSmallPartsCanBeRead) {
  Team team(2);
  const Result<Buffer> buffer = team.ProbeBuffer(int64_t{5} << 20);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  ASSERT_GE(buffer->size(), size_t{5} << 20);
  const std::span<const std::byte> bytes(buffer->data(), size_t{5} << 20);
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; }));
  EXPECT_GT(MeasureReadGbS(team.cpu(), bytes.first(kMinReadBytes)), 0.01);
  EXPECT_GT(MeasureReadGbS(team.cpu(), bytes.first(kMinReadBytes + 7)), 0.01);
}

TEST(Probe, BufferOfNothingIsRefused) {
  Team team(1);
  EXPECT_EQ(team.ProbeBuffer(100).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
