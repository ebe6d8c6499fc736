#include "model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "model/test_model.h"
#include "model/weights_cache.h"
#include "os/fault_file_system.h"
#include "os/test_dir.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

using testing::HasSubstr;

constexpr int64_t kHourNs = 3'600'000'000'000;

// A model file and a cache directory.
struct Fixture {
  explicit Fixture(const TestModelOptions& options = {}) : bytes(MakeTestModel(options)) {
    SetLogLevel(LogLevel::kOff);  // rebuilding and falling back are the subject here
    path = dir.Write("m.gguf", bytes);
    cache = dir.path() + "/cache";
  }
  Result<std::unique_ptr<ModelWeights>> Open(FileSystem& fs, WeightsOptions options = {}) const {
    if (options.use_cache) options.cache_dir = cache;
    TANDEM_ASSIGN_OR_RETURN(const auto source, ModelSource::Open(fs, path));
    if (options.use_cache) TANDEM_RETURN_IF_ERROR(source->Identify(cache));
    return ModelWeights::Open(fs, *source, options);
  }
  std::unique_ptr<ModelWeights> MustOpen(FileSystem& fs, WeightsOptions options = {}) const {
    auto weights = Open(fs, std::move(options));
    EXPECT_TRUE(weights.ok()) << weights.status().ToString();
    return weights.ok() ? std::move(weights).value() : nullptr;
  }
  std::vector<std::string> CacheFiles() const {
    const auto names = RealFileSystem().List(cache + "/weights");
    if (!names.ok()) return {};
    std::vector<std::string> out;
    for (const std::string& name : *names) {
      if (name != "lock") out.push_back(name);
    }
    return out;
  }

  TestDir dir;
  std::string bytes;
  std::string path;
  std::string cache;
};

std::vector<float> SourceValues(const GgufFile& file, std::string_view name) {
  const GgufTensor& tensor = *file.FindTensor(name);
  std::vector<std::byte> raw(static_cast<size_t>(tensor.bytes));
  EXPECT_TRUE(file.ReadTensor(tensor, 0, raw).ok());
  std::vector<float> out(static_cast<size_t>(tensor.num_elements()));
  DequantizeRow(*tensor.type->dtype, raw.data(), tensor.num_elements(), out.data());
  return out;
}

std::vector<float> PackedValues(const PackedMatrix& matrix) {
  const auto cols = static_cast<size_t>(matrix.cols);
  std::vector<float> out(static_cast<size_t>(matrix.rows) * cols);
  for (int32_t r = 0; r < matrix.rows; ++r) {
    UnpackRow(matrix, r, out.data() + static_cast<size_t>(r) * cols);
  }
  return out;
}

// Every tensor of the file is there with the file's values.
void ExpectSameValues(const Fixture& fixture, const ModelWeights& weights) {
  const auto file = GgufFile::Open(RealFileSystem(), fixture.path);
  ASSERT_TRUE(file.ok());
  for (const GgufTensor& tensor : file->tensors()) {
    const std::vector<float> expected = SourceValues(*file, tensor.name);
    if (tensor.num_dims == 1) {
      const auto vector = weights.Vector(tensor.name);
      ASSERT_TRUE(vector.ok()) << vector.status().ToString();
      EXPECT_EQ(std::vector<float>(vector->begin(), vector->end()), expected) << tensor.name;
    } else {
      const auto matrix = weights.Matrix(tensor.name);
      ASSERT_TRUE(matrix.ok()) << matrix.status().ToString();
      EXPECT_EQ(reinterpret_cast<uintptr_t>(matrix->data) % 64, 0u);
      EXPECT_EQ(PackedValues(*matrix), expected) << tensor.name;
    }
  }
}

TEST(ModelWeights, InMemoryHoldTheFilesValues) {
  for (const GgmlTypeInfo& type : AllGgmlTypes()) {
    if (!type.dtype) continue;
    const auto unit = static_cast<uint32_t>(std::max(64, type.block_elements));
    const Fixture fixture({.hidden = unit,
                           .ffn = 2 * unit,
                           .tied = false,
                           .matrices = *type.dtype,
                           .embedding = *type.dtype});
    const auto weights = fixture.MustOpen(RealFileSystem(), {.use_cache = false});
    ASSERT_NE(weights, nullptr);
    EXPECT_FALSE(weights->from_cache());
    EXPECT_TRUE(weights->cache_path().empty());
    EXPECT_TRUE(fixture.CacheFiles().empty());
    ExpectSameValues(fixture, *weights);
  }
}

TEST(ModelWeights, UnknownNamesAreNotFound) {
  const Fixture fixture;
  const auto weights = fixture.MustOpen(RealFileSystem(), {.use_cache = false});
  EXPECT_EQ(weights->Matrix("blk.0.attn_q").status().ToString(),
            "NOT_FOUND: there is no weight matrix 'blk.0.attn_q'");
  EXPECT_EQ(weights->Matrix("output_norm.weight").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(weights->Vector("token_embd.weight").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(weights->Matrix("output.weight").status().code(),
            StatusCode::kNotFound);  // tied: held once
}

TEST(ModelWeights, ResidentBytesAreThePackedOnes) {
  const Fixture fixture;
  const auto weights = fixture.MustOpen(RealFileSystem(), {.use_cache = false});
  int64_t sum = 0;
  const auto file = GgufFile::Open(RealFileSystem(), fixture.path);
  for (const GgufTensor& t : file->tensors()) {
    sum += t.num_dims == 1 ? t.bytes : PackedBytes(*t.type->dtype, t.dims[1], t.dims[0]);
  }
  EXPECT_GE(weights->resident_bytes(), sum);
  EXPECT_LT(weights->resident_bytes(), sum + 64 * static_cast<int64_t>(file->tensors().size()));
}

TEST(ModelWeights, SecondStartMapsTheCache) {
  const Fixture fixture;
  int64_t last = 0, total = 0;
  WeightsOptions options;
  options.progress = [&](int64_t done, int64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  const auto first = fixture.MustOpen(RealFileSystem(), options);
  EXPECT_FALSE(first->from_cache());
  EXPECT_EQ(last, first->resident_bytes());
  EXPECT_EQ(total, first->resident_bytes());
  ExpectSameValues(fixture, *first);
  last = total = 0;
  const auto second = fixture.MustOpen(RealFileSystem(), options);
  EXPECT_TRUE(second->from_cache());
  EXPECT_EQ(total, 0) << "packed again";
  EXPECT_EQ(second->cache_path(), first->cache_path());
  ExpectSameValues(fixture, *second);
  EXPECT_EQ(fixture.CacheFiles().size(), 1u);
}

TEST(ModelWeights, AnotherContentOrShardHasItsOwnCache) {
  const Fixture fixture;
  const auto whole = fixture.MustOpen(RealFileSystem());
  const auto half = fixture.MustOpen(RealFileSystem(), {.shard = {1, 2}});
  EXPECT_FALSE(half->from_cache());
  std::string changed = fixture.bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  fixture.dir.Write("m.gguf", changed);
  const auto other = fixture.MustOpen(RealFileSystem());
  EXPECT_FALSE(other->from_cache());
  ExpectSameValues(fixture, *other);
  EXPECT_EQ(fixture.CacheFiles().size(), 3u);
}

TEST(ModelWeights, ShardsAreRowsOrColumnsOfTheWhole) {
  const Fixture fixture({.tied = false});
  const auto file = GgufFile::Open(RealFileSystem(), fixture.path);
  ASSERT_TRUE(file.ok());
  for (int32_t rank = 0; rank < 2; ++rank) {
    const auto weights =
        fixture.MustOpen(RealFileSystem(), {.use_cache = false, .shard = {rank, 2}});
    ASSERT_NE(weights, nullptr);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"}) {
      const std::string full = fmt::format("blk.1.{}.weight", name);
      const std::vector<float> all = SourceValues(*file, full);
      const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
      const std::vector<float> expected(all.begin() + rank * half, all.begin() + (rank + 1) * half);
      EXPECT_EQ(PackedValues(*weights->Matrix(full)), expected) << full;
    }
    for (const char* name : {"attn_output", "ffn_down"}) {
      const std::string full = fmt::format("blk.1.{}.weight", name);
      const std::vector<float> all = SourceValues(*file, full);
      const PackedMatrix matrix = *weights->Matrix(full);
      const int64_t cols = file->FindTensor(full)->dims[0];
      EXPECT_EQ(matrix.cols, cols / 2);
      const std::vector<float> part = PackedValues(matrix);
      for (int64_t r = 0; r < matrix.rows; ++r) {
        for (int64_t c = 0; c < matrix.cols; ++c) {
          ASSERT_EQ(part[static_cast<size_t>(r * matrix.cols + c)],
                    all[static_cast<size_t>(r * cols + rank * (cols / 2) + c)])
              << full;
        }
      }
    }
    for (const char* name : {"token_embd.weight", "output.weight"}) {
      EXPECT_EQ(PackedValues(*weights->Matrix(name)), SourceValues(*file, name));
    }
  }
}

TEST(ModelWeights, ShardsHaveTheirOwnBiasesAndAllHeadNorms) {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    const Fixture fixture({.architecture = architecture});
    const auto file = GgufFile::Open(RealFileSystem(), fixture.path);
    ASSERT_TRUE(file.ok());
    for (int32_t rank = 0; rank < 2; ++rank) {
      const auto weights =
          fixture.MustOpen(RealFileSystem(), {.use_cache = false, .shard = {rank, 2}});
      ASSERT_NE(weights, nullptr);
      const auto values = [&](const std::string& name) {
        const auto part = weights->Vector(name);
        EXPECT_TRUE(part.ok()) << part.status().ToString();
        return std::vector<float>(part->begin(), part->end());
      };
      for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
        if (architecture != std::string_view("qwen2")) continue;
        const std::string full = fmt::format("blk.1.{}.bias", name);
        const std::vector<float> all = SourceValues(*file, full);
        const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
        EXPECT_EQ(values(full),
                  std::vector<float>(all.begin() + rank * half, all.begin() + (rank + 1) * half))
            << full;
      }
      for (const char* name : {"blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight"}) {
        if (architecture != std::string_view("qwen3")) continue;
        EXPECT_EQ(values(name), SourceValues(*file, name)) << name;
      }
    }
  }
}

TEST(ModelWeights, ShardsThatDoNotDivideAreRefused) {
  const Fixture fixture;
  const auto weights = fixture.Open(RealFileSystem(), {.use_cache = false, .shard = {0, 4}});
  EXPECT_EQ(weights.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      weights.status().message(),
      HasSubstr("tensor 'blk.0.attn_output.weight' cannot be split over 4 ranks: 64 is not a "
                "multiple of 128"));
}

// Damage
// --------------------------------------------------------------------------------------------

TEST(WeightsCache, DamagedFilesAreNeverUsed) {
  const Fixture fixture;
  const std::string path = fixture.MustOpen(RealFileSystem())->cache_path();
  const std::string good = TestDir::Read(path);
  const auto flip = [&](size_t at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    return bad;
  };
  std::string holes = good;
  std::memset(holes.data() + good.size() / 2, 0, 4096);
  const std::pair<const char*, std::string> damages[] = {
      {"magic", flip(0)},
      {"format version", flip(8)},
      {"layout version", flip(12)},
      {"identity", flip(17)},
      {"rank", flip(32)},
      {"weights bytes", flip(42)},
      {"entry count", flip(49)},
      {"a name", flip(62)},
      {"head padding", flip(4095)},
      {"first weight", flip(4096)},
      {"last weight", flip(good.size() - 25)},
      {"tail magic", flip(good.size() - 24)},
      {"tail hash", flip(good.size() - 1)},
      {"hole", holes},
      {"empty", ""},
      {"head only", good.substr(0, 4096)},
      {"one byte short", good.substr(0, good.size() - 1)},
      {"one byte long", good + "x"},
      {"another file", fixture.bytes},
  };
  for (const auto& [name, bytes] : damages) {
    ASSERT_NE(bytes, good) << name;
    fixture.dir.Write(path.substr(fixture.dir.path().size() + 1), bytes);
    const auto weights = fixture.MustOpen(RealFileSystem());
    ASSERT_NE(weights, nullptr) << name;
    EXPECT_FALSE(weights->from_cache()) << name;
    EXPECT_EQ(TestDir::Read(path), good) << name << ": not rebuilt";
    ExpectSameValues(fixture, *weights);
  }
}

// Once verified, a file that lies there unchanged is not read again; one that was touched is.
TEST(WeightsCache, VerifiedFileIsTrustedUntilItChanges) {
  const Fixture fixture;
  FaultFileSystem fs(RealFileSystem());
  fs.ShiftClock(kHourNs);
  const std::string path = fixture.MustOpen(fs)->cache_path();
  const auto index_size = [&] { return RealFileSystem().List(fixture.cache + "/index")->size(); };
  EXPECT_EQ(index_size(), 2u);  // model file and cache file
  EXPECT_TRUE(fixture.MustOpen(fs)->from_cache());
  std::string bad = TestDir::Read(path);
  bad[5000] = static_cast<char>(bad[5000] ^ 4);
  fixture.dir.Write(path.substr(fixture.dir.path().size() + 1), bad);
  EXPECT_FALSE(fixture.MustOpen(fs)->from_cache());
}

TEST(WeightsCache, EveryFailureEndsInRightWeightsOrAnError) {
  const Fixture fixture({.layers = 1, .vocab = 16});
  for (const bool and_later : {false, true}) {
    int64_t last_operation = 0;
    for (int64_t k = 0; k <= last_operation; ++k) {
      std::filesystem::remove_all(fixture.cache);
      FaultFileSystem fs(RealFileSystem());
      fs.FailAt(k, InternalError("injected"), and_later);
      const auto weights = fixture.Open(fs);
      last_operation = std::max(last_operation, fs.operations());
      if (weights.ok()) {
        ExpectSameValues(fixture, **weights);
      } else {
        EXPECT_THAT(weights.status().message(), HasSubstr("injected"));
      }
      // What is left is nothing or a whole file, and the next start is unharmed.
      const auto next = fixture.MustOpen(RealFileSystem());
      ASSERT_NE(next, nullptr);
      ExpectSameValues(fixture, *next);
      EXPECT_EQ(fixture.CacheFiles().size(), 1u) << "operation " << k;
    }
    EXPECT_GT(last_operation, 20);
  }
}

TEST(WeightsCache, FullDiskFallsBackToMemory) {
  const Fixture fixture;
  for (const int64_t room : {0, 100, 5000, 40'000}) {
    FaultFileSystem fs(RealFileSystem());
    fs.LimitWrites(room);
    const auto weights = fixture.MustOpen(fs);
    ASSERT_NE(weights, nullptr);
    EXPECT_FALSE(weights->from_cache());
    EXPECT_EQ(weights->cache_path(), "");
    ExpectSameValues(fixture, *weights);
    EXPECT_TRUE(fixture.CacheFiles().empty()) << "half a file was left behind";
  }
}

TEST(WeightsCache, LeftoversOfKilledProcessesAreRemoved) {
  const Fixture fixture;
  const std::string name =
      "cache/weights/deadbeef.packed" + std::string(AtomicFile::kTempInfix) + "1-0";
  fixture.dir.Write(name, "half");
  ASSERT_NE(fixture.MustOpen(RealFileSystem()), nullptr);
  EXPECT_EQ(fixture.CacheFiles().size(), 1u);
}

TEST(WeightsCache, ProcessesThatStartTogetherPackOnce) {
  const Fixture fixture({.layers = 6, .hidden = 128, .ffn = 512});
  std::atomic<int> packed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto weights = fixture.MustOpen(RealFileSystem());
      if (weights != nullptr && !weights->from_cache()) ++packed;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(packed, 1);
  EXPECT_EQ(fixture.CacheFiles().size(), 1u);
}

TEST(WeightsCache, WaitsOnlySoLongForAnotherProcess) {
  const Fixture fixture;
  ASSERT_TRUE(RealFileSystem().CreateDirectories(fixture.cache + "/weights", 0700).ok());
  const auto lock = RealFileSystem().TryLock(fixture.cache + "/weights/lock");
  ASSERT_TRUE(lock.ok());
  const auto weights = fixture.MustOpen(RealFileSystem(), {.lock_wait_ms = 60});
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->cache_path(), "");
  ExpectSameValues(fixture, *weights);
}

TEST(WeightsCache, WorksWithoutLocks) {
  const Fixture fixture;
  FaultFileSystem fs(RealFileSystem());
  fs.SetHook([](std::string_view operation, const std::string&) -> Status {
    if (operation == "lock") return UnimplementedError("no locks here");
    return OkStatus();
  });
  EXPECT_FALSE(fixture.MustOpen(fs)->from_cache());
  EXPECT_TRUE(fixture.MustOpen(fs)->from_cache());
}

TEST(ModelWeights, FileThatChangesWhilePackedIsRefused) {
  const Fixture fixture;
  FaultFileSystem fs(RealFileSystem());
  int reads = 0;
  fs.SetHook([&](std::string_view operation, const std::string& path) -> Status {
    // Reads of the model file: header, identity, then tensors.
    if (operation == "read" && path == fixture.path && ++reads == 5) {
      fixture.dir.Write("m.gguf", fixture.bytes + "x");
    }
    return OkStatus();
  });
  const auto weights = fixture.Open(fs);
  EXPECT_EQ(weights.status().code(), StatusCode::kUnavailable) << weights.status().ToString();
  EXPECT_TRUE(fixture.CacheFiles().empty());
}

}  // namespace
}  // namespace tandem
