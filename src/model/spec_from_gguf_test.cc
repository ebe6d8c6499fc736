#include "model/spec_from_gguf.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_test_writer.h"
#include "model/stamp_index.h"
#include "model/test_model.h"
#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using testing::HasSubstr;

Result<ModelSpec> SpecOf(GgufTestWriter w) {
  const std::string bytes = w.Build();
  const auto file = GgufFile::Read(MakeMemoryFile(std::as_bytes(std::span(bytes)), "dir/m.gguf"));
  if (!file.ok()) return file.status();
  return SpecFromGguf(*file);
}

TEST(SpecFromGguf, ReadsATinyModel) {
  const auto spec = SpecOf(TestModelWriter());
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->name, "Test");
  EXPECT_EQ(spec->num_layers, 2);
  EXPECT_EQ(spec->hidden_dim, 64);
  EXPECT_EQ(spec->num_heads, 4);
  EXPECT_EQ(spec->num_kv_heads, 2);
  EXPECT_EQ(spec->head_dim, 16);
  EXPECT_EQ(spec->ffn_dim, 128);
  EXPECT_EQ(spec->vocab_size, 40);
  EXPECT_EQ(spec->context_length, 256);
  EXPECT_FLOAT_EQ(static_cast<float>(spec->rms_epsilon), 1e-5f);
  EXPECT_EQ(spec->rope.style, RopeStyle::kInterleaved);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->rope.dims, 16);
  EXPECT_TRUE(spec->tied_embeddings);
}

TEST(SpecFromGguf, GivenValuesReplaceDefaults) {
  GgufTestWriter w = TestModelWriter({.tied = false});
  w.AddFloat("llama.rope.freq_base", 5e5f);
  w.AddInt("llama.rope.dimension_count", 8);
  w.AddInt("llama.vocab_size", 40);
  w.AddString("llama.rope.scaling.type", "none");
  w.AddInt("llama.expert_count", 0);
  const auto spec = SpecOf(w);
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->rope.theta, 5e5);
  EXPECT_EQ(spec->rope.dims, 8);
  EXPECT_FALSE(spec->tied_embeddings);
}

// The files were written by the `gguf` package from the seed's own numbers
// (tests/golden/manifest.json).
TEST(SpecFromGguf, ReadsTheGoldenModels) {
  const struct {
    const char* name;
    int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    double theta;
    bool tied;
  } kModels[] = {{"tiny_a", 4, 64, 4, 2, 16, 128, 320, 1e4, false},
                 {"tiny_b", 2, 96, 6, 2, 32, 160, 320, 1e5, true},
                 {"tiny_c", 3, 160, 4, 2, 32, 320, 512, 1e5, true}};
  for (const auto& m : kModels) {
    const auto file = GgufFile::Open(
        RealFileSystem(), fmt::format("{}/tests/golden/{}.gguf", TANDEM_SOURCE_DIR, m.name));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    const auto spec = SpecFromGguf(*file);
    ASSERT_TRUE(spec.ok()) << spec.status().ToString();
    EXPECT_EQ(spec->num_layers, m.layers) << m.name;
    EXPECT_EQ(spec->hidden_dim, m.hidden) << m.name;
    EXPECT_EQ(spec->num_heads, m.heads) << m.name;
    EXPECT_EQ(spec->num_kv_heads, m.kv_heads) << m.name;
    EXPECT_EQ(spec->head_dim, m.head_dim) << m.name;
    EXPECT_EQ(spec->rope.dims, m.head_dim) << m.name;
    EXPECT_EQ(spec->ffn_dim, m.ffn) << m.name;
    EXPECT_EQ(spec->vocab_size, m.vocab) << m.name;
    EXPECT_EQ(spec->rope.theta, m.theta) << m.name;
    EXPECT_EQ(spec->tied_embeddings, m.tied) << m.name;
  }
}

TEST(SpecFromGguf, HeadCountsMayBeGivenPerLayer) {
  const auto with = [](int32_t second) {
    GgufTestWriter w = TestModelWriter({.kv_heads = 4});
    const std::string raw = GgufTestWriter::Raw(int32_t{4}) + GgufTestWriter::Raw(second);
    w.Replace("llama.attention.head_count_kv", GgufValueType::kArray,
              GgufTestWriter::Raw(uint32_t{5}) + GgufTestWriter::Raw(uint64_t{2}) + raw);
    return SpecOf(w);
  };
  const auto same = with(4);
  ASSERT_TRUE(same.ok()) << same.status().ToString();
  EXPECT_EQ(same->num_kv_heads, 4);
  EXPECT_EQ(with(2).status().ToString(),
            "UNIMPLEMENTED: dir/m.gguf: metadata 'llama.attention.head_count_kv' differs between "
            "layers, which is not supported");
}

struct Refusal {
  std::function<void(GgufTestWriter&)> change;
  std::string expected;
};

std::function<void(GgufTestWriter&)> Int(std::string key, uint32_t value) {
  return
      [=](GgufTestWriter& w) { w.Replace(key, GgufValueType::kU32, GgufTestWriter::Raw(value)); };
}
std::function<void(GgufTestWriter&)> Float(std::string key, float value) {
  return
      [=](GgufTestWriter& w) { w.Replace(key, GgufValueType::kF32, GgufTestWriter::Raw(value)); };
}
std::function<void(GgufTestWriter&)> Text(std::string key, std::string value) {
  return [=](GgufTestWriter& w) {
    w.Replace(key, GgufValueType::kString, GgufTestWriter::RawString(value));
  };
}
std::function<void(GgufTestWriter&)> Without(std::string name) {
  return [=](GgufTestWriter& w) { w.Remove(name); };
}
std::function<void(GgufTestWriter&)> Tensor(std::string name, std::vector<uint64_t> dims,
                                            uint32_t type, size_t bytes) {
  return [=](GgufTestWriter& w) {
    w.Remove(name);
    w.AddTensor(name, dims, type, std::string(bytes, '\0'));
  };
}

TEST(SpecFromGguf, RefusesWhatItWouldComputeWrongly) {
  const Refusal refusals[] = {
      {Text("general.architecture", "qwen2"),
       "UNIMPLEMENTED: dir/m.gguf: architecture 'qwen2' is not supported: Tandem runs llama"},
      {Text("general.type", "adapter"), "the file holds a 'adapter', not a model"},
      {Int("split.count", 3), "the file is one of 3 parts; split files are not supported yet"},
      {Text("llama.rope.scaling.type", "yarn"),
       "rope scaling 'yarn' is not supported (metadata 'llama.rope.scaling.type')"},
      {Float("llama.rope.scaling.factor", 4),
       "linear rope scaling is not supported (metadata 'llama.rope.scaling.factor' = 4)"},
      {Float("llama.rope.scale_linear", 2), "metadata 'llama.rope.scale_linear' = 2"},
      {Tensor("rope_freqs.weight", {8}, 0, 32),
       "UNIMPLEMENTED: dir/m.gguf: Llama-3.1 rope scaling is not supported yet (tensor "
       "'rope_freqs.weight')"},
      {Int("llama.expert_count", 8), "metadata 'llama.expert_count' = 8 is not supported"},
      {Int("llama.attention.sliding_window", 4096),
       "metadata 'llama.attention.sliding_window' = 4096"},
      {Float("llama.logit_scale", 0.5f), "metadata 'llama.logit_scale' = 0.5"},
      {Int("llama.attention.value_length", 32), "keys of 16 and values of 32 dimensions"},
      {Tensor("blk.0.attn_q.bias", {64}, 0, 256),
       "UNIMPLEMENTED: dir/m.gguf: tensor 'blk.0.attn_q.bias' has no place in a llama model"},
      {Tensor("blk.1.attn_v.weight", {64, 32}, 99, 1280),
       "UNIMPLEMENTED: dir/m.gguf: tensor 'blk.1.attn_v.weight' has type 99, which Tandem does not "
       "know"},
      {Tensor("token_embd.weight", {256, 40}, 14, 8400),
       "tensor 'token_embd.weight' is Q6_K, which is not supported: Tandem runs F32, F16, Q4_0, "
       "Q4_1, Q8_0, BF16"},
  };
  for (const Refusal& refusal : refusals) {
    GgufTestWriter w = TestModelWriter();
    refusal.change(w);
    const auto spec = SpecOf(w);
    ASSERT_FALSE(spec.ok()) << refusal.expected;
    EXPECT_EQ(spec.status().code(), StatusCode::kUnimplemented) << spec.status().ToString();
    EXPECT_THAT(spec.status().ToString(), HasSubstr(refusal.expected));
  }
}

TEST(SpecFromGguf, NamesWhatMakesNoSense) {
  const Refusal refusals[] = {
      {Without("general.architecture"),
       "NOT_FOUND: dir/m.gguf: metadata 'general.architecture' is missing"},
      {Without("llama.embedding_length"),
       "NOT_FOUND: dir/m.gguf: metadata 'llama.embedding_length' is missing"},
      {Without("llama.attention.layer_norm_rms_epsilon"),
       "metadata 'llama.attention.layer_norm_rms_epsilon' is missing"},
      {Text("llama.block_count", "two"),
       "metadata 'llama.block_count' must be an integer; it is string"},
      {Int("llama.block_count", 0),
       "metadata 'llama.block_count' is 0, but the file has 20 tensors"},
      {Int("llama.block_count", 2000000000),
       "metadata 'llama.block_count' is 2000000000, but the file has 20 tensors"},
      {Int("llama.block_count", 3),
       "NOT_FOUND: dir/m.gguf: tensor 'blk.2.attn_norm.weight' is missing"},
      {Int("llama.embedding_length", 4000000000u),
       "metadata 'llama.embedding_length' is 4000000000, out of range"},
      {Int("llama.attention.head_count", 5),
       "5 heads do not divide an embedding of 64, and 'llama.attention.key_length' is missing"},
      {Int("llama.attention.head_count", 0), "0 heads do not divide"},
      {Int("llama.attention.head_count_kv", 3), "4 heads do not divide into 3 KV heads"},
      {Int("llama.rope.dimension_count", 17), "rope dimension count 17"},
      {Float("llama.rope.freq_base", -1), "rope frequency base -1"},
      {Float("llama.attention.layer_norm_rms_epsilon", 0), "layer norm epsilon 0"},
      {Int("llama.context_length", 0), "context length is 0"},
      {Without("token_embd.weight"),
       "NOT_FOUND: dir/m.gguf: tensor 'token_embd.weight' is missing"},
      {Without("blk.1.ffn_up.weight"), "tensor 'blk.1.ffn_up.weight' is missing"},
      {Int("llama.vocab_size", 41),
       "tensor 'token_embd.weight' must have the shape [64, 41]; it has [64, 40]"},
      {Int("llama.feed_forward_length", 256),
       "tensor 'blk.0.ffn_gate.weight' must have the shape [64, 256]; it has [64, 128]"},
      {Tensor("output_norm.weight", {32}, 0, 128),
       "tensor 'output_norm.weight' must have the shape [64]; it has [32]"},
      {Tensor("blk.0.attn_k.weight", {64, 32, 2}, 0, 16384),
       "tensor 'blk.0.attn_k.weight' must have the shape [64, 32]; it has [64, 32, 2]"},
  };
  for (const Refusal& refusal : refusals) {
    GgufTestWriter w = TestModelWriter();
    refusal.change(w);
    const auto spec = SpecOf(w);
    ASSERT_FALSE(spec.ok()) << refusal.expected;
    EXPECT_THAT(spec.status().ToString(), HasSubstr(refusal.expected));
  }
  GgufTestWriter tokens = TestModelWriter();
  tokens.AddArray("tokenizer.ggml.tokens", GgufValueType::kU8, 41, std::string(41, 'x'));
  EXPECT_THAT(SpecOf(tokens).status().message(), HasSubstr("has 41 tokens, the model 40 rows"));
}

// Identity
// ------------------------------------------------------------------------------------------

constexpr int64_t kHourNs = 3'600'000'000'000;

// Identifies the file with a clock far enough from its last change that the index may be used.
struct Identified {
  Hash128 hash;
  int64_t bytes_hashed = 0;
};
Identified Identify(const std::string& path, const std::string& cache_dir) {
  FaultFileSystem fs(RealFileSystem());
  fs.ShiftClock(kHourNs);
  const auto file = GgufFile::Open(fs, path);
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  Identified out;
  const auto hash =
      IdentifyGguf(fs, *file, cache_dir, [&](int64_t done, int64_t) { out.bytes_hashed = done; });
  EXPECT_TRUE(hash.ok()) << hash.status().ToString();
  out.hash = *hash;
  return out;
}

TEST(IdentifyGguf, UnchangedFileIsHashedOnce) {
  const TestDir dir;
  const std::string bytes = MakeTestModel();
  const std::string path = dir.Write("m.gguf", bytes);
  const std::string cache = dir.path() + "/cache";
  const Identified first = Identify(path, cache);
  EXPECT_EQ(first.hash, HashBytes(std::as_bytes(std::span(bytes))));
  EXPECT_EQ(first.bytes_hashed, static_cast<int64_t>(bytes.size()));
  const Identified second = Identify(path, cache);
  EXPECT_EQ(second.hash, first.hash);
  EXPECT_EQ(second.bytes_hashed, 0);
  EXPECT_EQ(Identify(path, "").bytes_hashed, first.bytes_hashed);  // no index
  const Identified copy = Identify(dir.Write("copy.gguf", bytes), cache);
  EXPECT_EQ(copy.hash, first.hash);  // the identity is the content's, not the path's
}

TEST(IdentifyGguf, ChangedByteIsSeenThoughSizeAndTimeStay) {
  const TestDir dir;
  const std::string bytes = MakeTestModel();
  const std::string path = dir.Write("m.gguf", bytes);
  const std::string cache = dir.path() + "/cache";
  const Identified before = Identify(path, cache);
  struct stat s;
  ASSERT_EQ(::stat(path.c_str(), &s), 0);
  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  dir.Write("m.gguf", changed);
  const struct timespec times[2] = {s.st_atim, s.st_mtim};  // as a careful copy would do
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_FALSE(Identify(path, cache).hash == before.hash);
}

TEST(IdentifyGguf, FreshFileIsNotTrustedNextTime) {
  const TestDir dir;
  const std::string path = dir.Write("m.gguf", MakeTestModel());
  const std::string cache = dir.path() + "/cache";
  for (int i = 0; i < 2; ++i) {  // changed less than two seconds ago: hashed each time
    const auto file = GgufFile::Open(RealFileSystem(), path);
    ASSERT_TRUE(file.ok());
    int64_t hashed = 0;
    ASSERT_TRUE(IdentifyGguf(RealFileSystem(), *file, cache, [&](int64_t done, int64_t) {
                  hashed = done;
                }).ok());
    EXPECT_GT(hashed, 0);
  }
}

TEST(IdentifyGguf, FileThatChangesMeanwhileIsRefused) {
  const TestDir dir;
  const std::string bytes = MakeTestModel();
  const std::string path = dir.Write("m.gguf", bytes);
  FaultFileSystem fs(RealFileSystem());
  const auto file = GgufFile::Open(fs, path);
  ASSERT_TRUE(file.ok());
  bool changed = false;
  fs.SetHook([&](std::string_view operation, const std::string&) -> Status {
    if (operation == "read" && !std::exchange(changed, true)) dir.Write("m.gguf", bytes + "x");
    return OkStatus();
  });
  const auto hash = IdentifyGguf(fs, *file, "");
  EXPECT_EQ(hash.status().code(), StatusCode::kUnavailable) << hash.status().ToString();
  EXPECT_THAT(hash.status().message(), HasSubstr("has changed while it was read"));
}

TEST(StampIndex, DamagedRecordMeansNotKnown) {
  const TestDir dir;
  const std::string path = dir.Write("f", "content");
  FaultFileSystem fs(RealFileSystem());
  fs.ShiftClock(kHourNs);
  StampIndex index(fs, dir.path() + "/cache");
  const FileStamp stamp = *(*fs.Open(path))->Stamp();
  const Hash128 hash = {1, 2};
  index.Record(path, stamp, index.Now(), hash);
  ASSERT_EQ(index.Find(path, stamp), hash);
  const std::string name = RealFileSystem().List(dir.path() + "/cache/index")->at(0);
  const std::string record = "cache/index/" + name;
  const std::string good = TestDir::Read(dir.path() + "/" + record);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    dir.Write(record, bad);
    EXPECT_EQ(index.Find(path, stamp), std::nullopt) << i;
  }
  dir.Write(record, good + "x");
  EXPECT_EQ(index.Find(path, stamp), std::nullopt);
  dir.Write(record, good);
  FileStamp other = stamp;
  ++other.ctime_ns;
  EXPECT_EQ(index.Find(path, other), std::nullopt);
  EXPECT_EQ(index.Find(path, stamp), hash);
}

TEST(StampIndex, WorksWithoutAWritableDirectory) {
  const TestDir dir;
  const std::string path = dir.Write("f", "content");
  dir.Write("cache", "a file where the directory should be");
  FaultFileSystem fs(RealFileSystem());
  fs.ShiftClock(kHourNs);
  StampIndex index(fs, dir.path() + "/cache");
  const FileStamp stamp = *(*fs.Open(path))->Stamp();
  index.Record(path, stamp, index.Now(), {1, 2});
  EXPECT_EQ(index.Find(path, stamp), std::nullopt);
}

}  // namespace
}  // namespace tandem
