#include "exec/in_process_group.h"

#include <gtest/gtest.h>

#include "device/cpu_device.h"

namespace tandem {
namespace {

TEST(InProcessGroup, EveryRankGetsTheSumInRankOrder) {
  constexpr int64_t kCount = 10'000;
  constexpr int32_t kWorld = 3;
  std::vector<std::unique_ptr<Device>> owned;
  std::vector<Device*> devices;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int32_t r = 0; r < kWorld; ++r) {
    owned.push_back(MakeCpuDevice({2, {}}));
    devices.push_back(owned.back().get());
    streams.push_back(std::move(owned.back()->NewStream().value()));
  }
  auto group = std::move(InProcessGroup::Create(devices, kCount).value());
  std::vector<std::vector<float>> data(kWorld, std::vector<float>(kCount));
  std::vector<float> expected(kCount);
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    for (int64_t i = 0; i < kCount; ++i) {
      expected[static_cast<size_t>(i)] = 0;
      for (size_t r = 0; r < kWorld; ++r) {
        data[r][static_cast<size_t>(i)] = 0.1f * static_cast<float>(i % 97) +
                                          static_cast<float>(r) / 3.0f + static_cast<float>(round);
        expected[static_cast<size_t>(i)] =
            r == 0 ? data[r][static_cast<size_t>(i)]
                   : expected[static_cast<size_t>(i)] + data[r][static_cast<size_t>(i)];
      }
    }
    for (int32_t r = 0; r < kWorld; ++r) {
      group->communicator(r)->AllReduce(*streams[static_cast<size_t>(r)],
                                        data[static_cast<size_t>(r)].data(), kCount);
    }
    for (auto& stream : streams) stream->Synchronize();
    for (const auto& rank : data) ASSERT_EQ(rank, expected);
  }
}

}  // namespace
}  // namespace tandem
