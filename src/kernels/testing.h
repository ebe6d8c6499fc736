// What: what the kernel tests share: random data, packed matrices, activations that own their
//   memory, and running a test on every instruction set of this machine.
// Not here: tests; nothing of the library includes this.
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "device/cpu_device.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/ops.h"
#include "tensor/block_quant.h"

namespace tandem::testing_kernels {

inline constexpr DType kQuantizedTypes[] = {
    DType::kQ4_0,   DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
    DType::kQ2_K,   DType::kQ3_K,   DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
    DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
inline constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0,
                                      DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,   DType::kQ8_0,
                                      DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                                      DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
// Columns of a matrix come in multiples of this (of 32 for plain types, as tests like them).
inline int32_t ColumnUnit(DType dtype) {
  return InfoOf(dtype).block_elements > 1 ? InfoOf(dtype).block_elements : 32;
}

inline float RandomFloat(SplitMix64& rng, float scale = 1.0f) {
  return static_cast<float>(rng.NextDouble() * 2 - 1) * scale;
}

inline std::vector<float> RandomFloats(SplitMix64& rng, int64_t count, float scale = 1.0f) {
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = RandomFloat(rng, scale);
  return out;
}

// A matrix in its source form and packed.
struct TestMatrix {
  std::vector<std::byte> source;
  std::vector<std::byte> storage;
  PackedMatrix packed;

  // Random values.
  TestMatrix(SplitMix64& rng, DType dtype, int32_t rows, int32_t cols) {
    source.resize(static_cast<size_t>(BytesOf(dtype, int64_t{rows} * cols)));
    for (int32_t r = 0; r < rows; ++r) {
      // Rows of different size: a mixed-up row or scale shows.
      const auto values = RandomFloats(rng, cols, 0.1f + static_cast<float>(r % 7));
      QuantizeRow(dtype, values.data(), cols, source.data() + BytesOf(dtype, int64_t{r} * cols));
    }
    Pack(dtype, rows, cols);
  }
  // The bytes of a source tensor.
  TestMatrix(std::vector<std::byte> bytes, DType dtype, int32_t rows, int32_t cols)
      : source(std::move(bytes)) {
    Pack(dtype, rows, cols);
  }

 private:
  void Pack(DType dtype, int32_t rows, int32_t cols) {
    const TensorView view{source.data(), dtype, Shape::Of(rows, cols)};
    const auto bytes = static_cast<size_t>(PackedBytes(dtype, rows, cols));
    storage.resize(bytes + 64);
    const size_t skip = (64 - reinterpret_cast<size_t>(storage.data()) % 64) % 64;
    packed = {storage.data() + skip, dtype, rows, cols};
    const auto group_bytes = static_cast<size_t>(PackedGroupBytes(dtype, cols));
    for (int32_t g = 0; g < packed.num_groups(); ++g) {
      PackGroup(view, g,
                {storage.data() + skip + static_cast<size_t>(g) * group_bytes, group_bytes});
    }
  }
};

// An activation that owns its forms.
struct TestActivation {
  std::vector<float> f32;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  std::vector<int8_t> fine_codes;
  std::vector<int32_t> fine_sums;
  std::vector<uint8_t> refined;
  Activation view;

  TestActivation(int32_t rows, int32_t cols, bool with_f32, bool with_q8, bool with_fine = false) {
    const auto size = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    view.cols = cols;
    if (with_f32) {
      f32.assign(size, -7.0f);
      view.f32 = f32.data();
    }
    if (with_q8) {
      codes.assign(size, 99);
      scales.assign(size / kActivationBlock, -7.0f);
      sums.assign(size / kActivationBlock, -7);
      view.q8 = {codes.data(), scales.data(), sums.data(), {}};
    }
    if (with_fine) {
      fine_codes.assign(size, 99);
      fine_sums.assign(size / kActivationBlock, -7);
      refined.assign(size / kActivationBlock, 7);
      view.q8.fine = {fine_codes.data(), fine_sums.data(), refined.data()};
    }
  }
  TestActivation(const TestActivation&) = delete;
};

// Equal bit for bit.
template <typename T>
testing::AssertionResult SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " vs " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
      return testing::AssertionFailure() << "at " << i << ": " << +a[i] << " vs " << +b[i];
    }
  }
  return testing::AssertionSuccess();
}

// Equal bit for bit, or both NaN, whose bits the operands' order decides.
inline testing::AssertionResult SameBitsOrNan(std::vector<float> a, std::vector<float> b) {
  for (auto* all : {&a, &b}) {
    for (float& x : *all) x = std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x;
  }
  return SameBits(a, b);
}

inline testing::AssertionResult SameForms(const TestActivation& a, const TestActivation& b) {
  if (auto same = SameBits(a.f32, b.f32); !same) return same << " (f32)";
  if (auto same = SameBits(a.codes, b.codes); !same) return same << " (codes)";
  if (auto same = SameBits(a.scales, b.scales); !same) return same << " (scales)";
  if (auto same = SameBits(a.sums, b.sums); !same) return same << " (sums)";
  if (auto same = SameBits(a.refined, b.refined); !same) return same << " (refined)";
  if (auto same = SameBits(a.fine_sums, b.fine_sums); !same) return same << " (fine sums)";
  if (auto same = SameBits(a.fine_codes, b.fine_codes); !same) return same << " (fine codes)";
  return testing::AssertionSuccess();
}

// A stream per team size, shared by the tests of a binary.
inline Stream& StreamOf(int threads) {
  static std::vector<std::unique_ptr<Device>> devices(8);
  static std::vector<std::unique_ptr<Stream>> streams(8);
  const auto i = static_cast<size_t>(threads);
  if (streams[i] == nullptr) {
    devices[i] = MakeCpuDevice({.num_threads = threads});
    streams[i] = std::move(devices[i]->NewStream()).value();
  }
  return *streams[i];
}

// A fixture whose tests run once per instruction set of this machine: INSTANTIATE_ISAS(Name).
class IsaTest : public testing::TestWithParam<const internal::CpuKernels*> {
 protected:
  void SetUp() override { internal::ForceCpuKernels(GetParam()); }
  void TearDown() override { internal::ForceCpuKernels(nullptr); }
};

inline std::string IsaTestName(const testing::TestParamInfo<const internal::CpuKernels*>& info) {
  std::string name = info.param->name;
  std::erase(name, '-');
  return name;
}

#define TANDEM_INSTANTIATE_ISAS(Fixture)                                              \
  INSTANTIATE_TEST_SUITE_P(Isa, Fixture,                                              \
                           testing::ValuesIn(internal::AvailableCpuKernels().begin(), \
                                             internal::AvailableCpuKernels().end()),  \
                           testing_kernels::IsaTestName)

}  // namespace tandem::testing_kernels
