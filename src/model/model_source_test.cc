#include "model/model_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf_test_writer.h"
#include "model/hf_test_writer.h"
#include "model/test_model.h"
#include "model/weights.h"
#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using testing::HasSubstr;

GgufFile GgufIn(const TestDir& dir, const TestModelOptions& options) {
  return GgufFile::Open(RealFileSystem(), dir.Write("m.gguf", MakeTestModel(options))).value();
}

std::string MessageOf(const std::string& path) {
  const auto source = ModelSource::Open(RealFileSystem(), path);
  EXPECT_FALSE(source.ok());
  return source.ok() ? "" : source.status().ToString();
}

// Everything in a folder but what differs between formats: all bytes, and numbers of the spec.
void ExpectSameModel(const ModelSource& a, const ModelSource& b) {
  EXPECT_EQ(a.spec().architecture, b.spec().architecture);
  EXPECT_EQ(a.spec().tied_embeddings, b.spec().tied_embeddings);
  EXPECT_EQ(a.spec().rms_epsilon, b.spec().rms_epsilon);
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const SourceTensor& tensor : a.tensors()) {
    const SourceTensor* other = b.FindTensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(other->rows, tensor.rows) << tensor.name;
    EXPECT_EQ(other->cols, tensor.cols) << tensor.name;
    std::vector<std::byte> mine(static_cast<size_t>(tensor.bytes));
    std::vector<std::byte> theirs(static_cast<size_t>(other->bytes));
    ASSERT_TRUE(a.ReadTensor(tensor, 0, mine).ok());
    ASSERT_TRUE(b.ReadTensor(*other, 0, theirs).ok());
    const bool permuted =
        a.spec().rope.style != b.spec().rope.style &&
        (tensor.name.ends_with("attn_q.weight") || tensor.name.ends_with("attn_k.weight"));
    if (permuted) {
      EXPECT_NE(mine, theirs) << tensor.name;
    } else {
      EXPECT_EQ(mine, theirs) << tensor.name;
    }
  }
}

// Folders
// ------------------------------------------------------------------------------------------

TEST(ModelSource, FolderHoldsWhatTheGgufFileHolds) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const TestDir dir;
      const GgufFile file = GgufIn(
          dir,
          {.architecture = architecture, .tied = false, .matrices = dtype, .embedding = dtype});
      const auto gguf = ModelSource::Open(RealFileSystem(), file.path());
      ASSERT_TRUE(gguf.ok()) << gguf.status().ToString();
      for (const int shards : {1, 3}) {
        const std::string path = WriteHfFolder(dir, "hf", file, {.shards = shards});
        const auto folder = ModelSource::Open(RealFileSystem(), path + "/");
        ASSERT_TRUE(folder.ok()) << folder.status().ToString();
        EXPECT_EQ((*folder)->spec().name, "hf");
        EXPECT_EQ((*folder)->spec().rope.style, RopeStyle::kHalfSplit);
        EXPECT_EQ((*folder)->gguf(), nullptr);
        EXPECT_EQ((*folder)->folder()->files().size(), static_cast<size_t>(shards));
        ExpectSameModel(**gguf, **folder);
        if (shards != 1) continue;
        ASSERT_TRUE(RealFileSystem().Remove(path + "/model.safetensors").ok());
      }
    }
  }
}

TEST(ModelSource, FolderIsPackedAndCached) {
  const TestDir dir;
  const GgufFile file = GgufIn(dir, {.matrices = DType::kBF16, .embedding = DType::kF16});
  const std::string path = WriteHfFolder(dir, "hf", file, {.shards = 2});
  WeightsOptions options;
  options.cache_dir = dir.path() + "/cache";
  for (const bool from_cache : {false, true}) {
    const auto source = ModelSource::Open(RealFileSystem(), path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ASSERT_TRUE((*source)->Identify(options.cache_dir).ok());
    const auto weights = ModelWeights::Open(RealFileSystem(), **source, options);
    ASSERT_TRUE(weights.ok()) << weights.status().ToString();
    EXPECT_EQ((*weights)->from_cache(), from_cache);
    EXPECT_EQ((*weights)->Matrix("token_embd.weight")->dtype, DType::kF16);
    EXPECT_EQ((*weights)->Matrix("blk.0.ffn_up.weight")->dtype, DType::kBF16);
  }
}

TEST(ModelSource, FolderMayRepeatATiedOutputAndOldRopeTables) {
  const TestDir dir;
  const GgufFile file = GgufIn(dir, {.matrices = DType::kF32, .embedding = DType::kF32});
  const std::string path = WriteHfFolder(dir, "hf", file, {.shards = 2});
  SafetensorsTestWriter extra;
  extra.Add("lm_head.weight", "F32", {1}, "xxxx");
  extra.Add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, "xxxx");
  dir.Write("hf/extra.safetensors", extra.Build());
  std::string index = TestDir::Read(path + "/model.safetensors.index.json");
  index.insert(index.rfind("}}"),
               R"(,"lm_head.weight":"extra.safetensors",)"
               R"("model.layers.0.self_attn.rotary_emb.inv_freq":"extra.safetensors")");
  dir.Write("hf/model.safetensors.index.json", index);
  const auto source = ModelSource::Open(RealFileSystem(), path);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->FindTensor("output.weight"), nullptr);
}

TEST(ModelSource, NamesTheMissingFile) {
  const TestDir dir;
  const GgufFile file = GgufIn(dir, {.matrices = DType::kF32, .embedding = DType::kF32});
  const std::string path = WriteHfFolder(dir, "hf", file, {.shards = 3});
  FileSystem& fs = RealFileSystem();
  ASSERT_TRUE(fs.Remove(path + "/model-00002-of-00003.safetensors").ok());
  EXPECT_EQ(MessageOf(path), "NOT_FOUND: " + path +
                                 "/model-00002-of-00003.safetensors is missing: "
                                 "model.safetensors.index.json names it (part 2 of 3)");
  ASSERT_TRUE(fs.Remove(path + "/model.safetensors.index.json").ok());
  EXPECT_EQ(MessageOf(path), "NOT_FOUND: " + path +
                                 " has neither model.safetensors nor model.safetensors.index.json");
  dir.Write("hf/pytorch_model.bin", "");
  EXPECT_THAT(MessageOf(path), HasSubstr("pytorch_model.bin, which is not read: save them as"));
  ASSERT_TRUE(fs.Remove(path + "/config.json").ok());
  EXPECT_THAT(MessageOf(path), HasSubstr("has no config.json, so it is not a model folder"));
  EXPECT_THAT(MessageOf(dir.path() + "/none"), HasSubstr("NOT_FOUND"));
  EXPECT_THAT(MessageOf(path + "/model-00001-of-00003.safetensors"),
              HasSubstr("is a file of weights: name the folder that it lies in"));
}

TEST(ModelSource, QuantisedFolderIsRefusedBeforeItsWeightsAreLookedFor) {
  const TestDir dir;
  dir.Write("hf/config.json", R"({"quantization_config": {"quant_method": "gptq"}})");
  EXPECT_THAT(MessageOf(dir.path() + "/hf"),
              HasSubstr("hf: config.json: the weights are quantised by 'gptq'"));
}

TEST(ModelSource, NamesTheWrongTensor) {
  const TestDir dir;
  dir.Write("hf/config.json",
            R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 4,
                "intermediate_size": 8, "num_attention_heads": 2, "vocab_size": 3,
                "max_position_embeddings": 16})");
  const auto with = [&](std::string_view type, std::vector<int64_t> shape, size_t bytes) {
    SafetensorsTestWriter w;
    w.Add("model.embed_tokens.weight", std::string(type), shape, std::string(bytes, 'x'));
    dir.Write("hf/model.safetensors", w.Build());
    return MessageOf(dir.path() + "/hf");
  };
  EXPECT_THAT(with("F32", {3, 4}, 48),
              HasSubstr("hf: tensor 'model.layers.0.input_layernorm.weight' is missing"));
  EXPECT_THAT(with("F32", {4, 3}, 48),
              HasSubstr("'model.embed_tokens.weight' must have the shape [3, 4]; it has [4, 3]"));
  EXPECT_THAT(with("F32", {12}, 48), HasSubstr("it has [12]"));
  EXPECT_THAT(with("F8_E4M3", {3, 4}, 12),
              HasSubstr("UNIMPLEMENTED: " + dir.path() +
                        "/hf: tensor 'model.embed_tokens.weight' is F8_E4M3, which is not"));
  const GgufFile file = GgufIn(dir, {.matrices = DType::kF32, .embedding = DType::kF32});
  const std::string path = WriteHfFolder(dir, "more", file, {.shards = 2});
  SafetensorsTestWriter extra;
  extra.Add("model.layers.0.self_attn.q_proj.bias", "F32", {1}, "xxxx");
  dir.Write("more/extra.safetensors", extra.Build());
  std::string index = TestDir::Read(path + "/model.safetensors.index.json");
  index.insert(index.rfind("}}"), R"(,"model.layers.0.self_attn.q_proj.bias":"extra.safetensors")");
  dir.Write("more/model.safetensors.index.json", index);
  EXPECT_THAT(MessageOf(path), HasSubstr("tensor 'model.layers.0.self_attn.q_proj.bias' has no "
                                         "place in a llama model"));
}

TEST(ModelSource, DamagedIndexIsRefused) {
  const TestDir dir;
  const GgufFile file = GgufIn(dir, {.matrices = DType::kF32, .embedding = DType::kF32});
  const std::string path = WriteHfFolder(dir, "hf", file, {.shards = 2});
  const std::string good = TestDir::Read(path + "/model.safetensors.index.json");
  std::string moved = good;
  moved.replace(moved.find("-00001-of"), 9, "-00002-of");
  std::string renamed = good;
  renamed.replace(renamed.find("model.norm"), 10, "model.nrm");
  std::string forgotten = good;  // the first entry
  const size_t begin = forgotten.find("\"model.embed");
  forgotten.erase(begin, forgotten.find(',', begin) + 1 - begin);
  const std::pair<std::string, const char*> kCases[] = {
      {"", "model.safetensors.index.json: not valid JSON near byte"},
      {good.substr(0, good.size() - 1), "not valid JSON near byte"},
      {"[]", "a list, not a JSON object"},
      {"3", "an integer, not a JSON object"},
      {"{}", "'weight_map' is missing"},
      {R"({"weight_map": {}})", "'weight_map' names no tensor"},
      {R"({"weight_map": 3})", "must map tensors to files; it has an integer"},
      {R"({"weight_map": ["a"]})", "'weight_map' must map tensors to files"},
      {R"({"weight_map": {"a": 1}})", "it has an integer"},
      {R"({"weight_map": {"a": {"b": "c"}}})", "'weight_map' must map tensors to files"},
      {R"({"weight_map": {"a": "../x.safetensors"}})", "names the file '../x.safetensors'; only"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "names the file '/etc/passwd'"},
      {R"({"weight_map": {"a": "x\u0000.safetensors"}})", "names the file 'x\\x00.safetensors'"},
      {R"({"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}})", "'a' occurs twice"},
      {moved, "has 10 tensors; model.safetensors.index.json knows of 9"},
      {renamed, "has no tensor 'model.nrm.weight', though model.safetensors.index.json says so"},
      {forgotten, "tensors; model.safetensors.index.json knows of"},
  };
  for (const auto& [text, expected] : kCases) {
    dir.Write("hf/model.safetensors.index.json", text);
    EXPECT_THAT(MessageOf(path), HasSubstr(expected));
  }
  std::string many = "{\"weight_map\":{";
  for (int i = 0; i <= 512; ++i) {
    many += fmt::format("{}\"{}\":\"{}.safetensors\"", i == 0 ? "" : ",", i, i);
  }
  dir.Write("hf/model.safetensors.index.json", many + "}}");
  EXPECT_THAT(MessageOf(path), HasSubstr("OUT_OF_RANGE"));
}

TEST(ModelSource, FolderIdentityIsThatOfItsContent) {
  const TestDir dir;
  const GgufFile file = GgufIn(dir, {.matrices = DType::kF32, .embedding = DType::kF32});
  const auto identity = [](const std::string& path) {
    const auto source = ModelSource::Open(RealFileSystem(), path);
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_TRUE((*source)->Identify("").ok());
    return (*source)->spec().identity;
  };
  const Hash128 first = identity(WriteHfFolder(dir, "a", file));
  EXPECT_EQ(identity(WriteHfFolder(dir, "b", file)), first);
  std::string weights = TestDir::Read(dir.path() + "/b/model.safetensors");
  weights.back() = static_cast<char>(weights.back() ^ 1);
  dir.Write("b/model.safetensors", weights);
  EXPECT_FALSE(identity(dir.path() + "/b") == first);
  const std::string old_config =
      identity(WriteHfFolder(dir, "c", file, {.new_spelling = false})).ToHex();
  EXPECT_NE(old_config, first.ToHex()) << "another config.json";
}

TEST(ModelSource, EveryFailedOperationIsAStatus) {
  const TestDir dir;
  const GgufFile file = GgufIn(dir, {.matrices = DType::kF32, .embedding = DType::kF32});
  const std::string path = WriteHfFolder(dir, "hf", file, {.shards = 2});
  FaultFileSystem fs(RealFileSystem());
  const int64_t before = fs.operations();
  ASSERT_TRUE(ModelSource::Open(fs, path).ok());
  const int64_t count = fs.operations() - before;
  for (int64_t k = 0; k < count; ++k) {
    fs.FailAt(fs.operations() + k, InternalError("injected"));
    const auto source = ModelSource::Open(fs, path);
    EXPECT_FALSE(source.ok()) << k;
  }
}

// Files in parts
// ------------------------------------------------------------------------------------------

// The model of `options` cut into `count` parts, as llama.cpp's splitter cuts.
std::vector<GgufTestWriter> Parts(const TestModelOptions& options, uint16_t count) {
  const std::string whole_bytes = MakeTestModel(options);
  const auto whole =
      GgufFile::Read(MakeMemoryFile(std::as_bytes(std::span(whole_bytes)), "whole.gguf"));
  TANDEM_CHECK(whole.ok());
  std::vector<GgufTestWriter> parts(count);
  parts[0] = TestModelWriter(options);
  for (const GgufTensor& tensor : whole->tensors()) parts[0].Remove(std::string(tensor.name));
  const size_t all = whole->tensors().size();
  for (uint16_t i = 0; i < count; ++i) {
    parts[i].Add("split.no", GgufValueType::kU16, GgufTestWriter::Raw(i));
    parts[i].Add("split.count", GgufValueType::kU16, GgufTestWriter::Raw(count));
    parts[i].Add("split.tensors.count", GgufValueType::kI32,
                 GgufTestWriter::Raw(static_cast<int32_t>(all)));
  }
  for (size_t t = 0; t < all; ++t) {
    const GgufTensor& tensor = whole->tensors()[t];
    std::string raw(static_cast<size_t>(tensor.bytes), '\0');
    TANDEM_CHECK(whole->ReadTensor(tensor, 0, std::as_writable_bytes(std::span(raw))).ok());
    std::vector<uint64_t> dims(tensor.dims, tensor.dims + tensor.num_dims);
    parts[t * count / all].AddTensor(std::string(tensor.name), dims, tensor.type_id, raw);
  }
  return parts;
}

std::string PartName(size_t part, size_t count) {
  return fmt::format("m-{:05}-of-{:05}.gguf", part + 1, count);
}

// Writes them; returns the first one's path.
std::string WriteParts(const TestDir& dir, std::vector<GgufTestWriter> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    dir.Write(PartName(i, parts.size()), parts[i].Build());
  }
  return dir.path() + "/" + PartName(0, parts.size());
}

TEST(ModelSource, SplitFileHoldsWhatTheWholeHolds) {
  const TestDir dir;
  const auto whole =
      ModelSource::Open(RealFileSystem(), dir.Write("whole.gguf", MakeTestModel({.tied = false})));
  ASSERT_TRUE(whole.ok());
  for (const uint16_t count : {2, 5}) {
    const std::string path = WriteParts(dir, Parts({.tied = false}, count));
    const auto split = ModelSource::Open(RealFileSystem(), path);
    ASSERT_TRUE(split.ok()) << split.status().ToString();
    EXPECT_EQ((*split)->gguf()->num_parts(), count);
    ExpectSameModel(**whole, **split);
    ASSERT_TRUE((*split)->Identify("").ok());
    EXPECT_FALSE((*split)->spec().identity == Hash128());
    dir.Write(PartName(1, count), "changed");
    EXPECT_EQ((*split)->CheckUnchanged().code(), StatusCode::kUnavailable);
  }
}

TEST(ModelSource, NamesThePartThatIsMissingOrWrong) {
  const TestDir dir;
  const auto parts = Parts({}, 3);
  const std::string path = WriteParts(dir, parts);
  EXPECT_THAT(MessageOf(dir.path() + "/" + PartName(1, 3)),
              HasSubstr("is part 2 of 3: name the first part, " + path));
  FileSystem& fs = RealFileSystem();
  ASSERT_TRUE(fs.Rename(path, dir.path() + "/other.gguf").ok());
  EXPECT_THAT(MessageOf(dir.path() + "/other.gguf"),
              HasSubstr("its name must end in -00001-of-00003.gguf for the others to be found"));
  ASSERT_TRUE(fs.Rename(dir.path() + "/other.gguf", path).ok());
  ASSERT_TRUE(fs.Remove(dir.path() + "/" + PartName(2, 3)).ok());
  EXPECT_EQ(MessageOf(path),
            "NOT_FOUND: part 3 of 3 is missing: " + dir.path() + "/" + PartName(2, 3));
  auto twice = parts;
  dir.Write(PartName(2, 3), twice[1].Build());
  EXPECT_THAT(MessageOf(path), HasSubstr("says that it is part 2 of 3; it lies where part 3"));
  dir.Write(PartName(2, 3), "GGUF");
  EXPECT_THAT(MessageOf(path), HasSubstr(PartName(2, 3) + ": the file ends inside"));
  auto repeated = parts;
  repeated[2].AddTensor("token_embd.weight", {4}, 0, std::string(16, 'x'));
  WriteParts(dir, repeated);
  EXPECT_THAT(MessageOf(path), HasSubstr("tensor 'token_embd.weight' is in part"));
  auto more = parts;
  more[2].AddTensor("more", {4}, 0, std::string(16, 'x'));
  WriteParts(dir, more);
  EXPECT_THAT(MessageOf(path), HasSubstr("its other parts should have 20 tensors; they have 21"));
  GgufTestWriter many = TestModelWriter();
  many.Add("split.count", GgufValueType::kU16, GgufTestWriter::Raw(uint16_t{60000}));
  EXPECT_THAT(MessageOf(dir.Write("many.gguf", many.Build())),
              HasSubstr("one of 60000 parts; at most 512 are allowed"));
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
  const auto source = ModelSource::Open(fs, path);
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  Identified out;
  const Status status =
      (*source)->Identify(cache_dir, [&](int64_t done, int64_t) { out.bytes_hashed = done; });
  EXPECT_TRUE(status.ok()) << status.ToString();
  out.hash = (*source)->spec().identity;
  return out;
}

TEST(ModelSource, UnchangedFileIsHashedOnce) {
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

TEST(ModelSource, ChangedByteIsSeenThoughSizeAndTimeStay) {
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

TEST(ModelSource, FreshFileIsNotTrustedNextTime) {
  const TestDir dir;
  const std::string path = dir.Write("m.gguf", MakeTestModel());
  const std::string cache = dir.path() + "/cache";
  for (int i = 0; i < 2; ++i) {  // changed less than two seconds ago: hashed each time
    const auto source = ModelSource::Open(RealFileSystem(), path);
    ASSERT_TRUE(source.ok());
    int64_t hashed = 0;
    const auto progress = [&](int64_t done, int64_t) { hashed = done; };
    ASSERT_TRUE((*source)->Identify(cache, progress).ok());
    EXPECT_GT(hashed, 0);
  }
}

TEST(ModelSource, FileThatChangesMeanwhileIsRefused) {
  const TestDir dir;
  const std::string bytes = MakeTestModel();
  const std::string path = dir.Write("m.gguf", bytes);
  FaultFileSystem fs(RealFileSystem());
  const auto source = ModelSource::Open(fs, path);
  ASSERT_TRUE(source.ok());
  bool changed = false;
  fs.SetHook([&](std::string_view operation, const std::string&) -> Status {
    if (operation == "read" && !std::exchange(changed, true)) dir.Write("m.gguf", bytes + "x");
    return OkStatus();
  });
  const Status status = (*source)->Identify("");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("has changed while it was read"));
}

}  // namespace
}  // namespace tandem
