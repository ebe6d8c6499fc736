#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "model/gguf_test_writer.h"
#include "model/hf_test_writer.h"
#include "model/test_model.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using testing::HasSubstr;

Result<GgufFile> Parse(std::string_view bytes) {
  return GgufFile::Read(MakeMemoryFile(std::as_bytes(std::span(bytes)), "t.gguf"));
}

TEST(GgmlTypes, GeometryIsThatOfTheFormat) {
  // id, elements, bytes: from the `gguf` package 0.19.0 (GGML_QUANT_SIZES); Q8_1 from ggml itself,
  // whose block has an f16 sum, and Q2_0 from ggml, newer than that package.
  const struct {
    const char* name;
    uint32_t id;
    int32_t elements;
    int32_t bytes;
  } kExpected[] = {
      {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},
      {"Q4_1", 3, 32, 20},      {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},
      {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 36},      {"Q2_K", 10, 256, 84},
      {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
      {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66},
      {"IQ2_XS", 17, 256, 74},  {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},
      {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110},  {"IQ2_S", 22, 256, 82},
      {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
      {"I32", 26, 1, 4},        {"I64", 27, 1, 8},        {"F64", 28, 1, 8},
      {"IQ1_M", 29, 256, 56},   {"BF16", 30, 1, 2},       {"TQ1_0", 34, 256, 54},
      {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},    {"NVFP4", 40, 64, 36},
      {"Q1_0", 41, 128, 18},    {"Q2_0", 42, 64, 18},
  };
  EXPECT_EQ(AllGgmlTypes().size(), std::size(kExpected));
  for (const auto& e : kExpected) {
    const GgmlTypeInfo* type = FindGgmlType(e.id);
    ASSERT_NE(type, nullptr) << e.name;
    EXPECT_EQ(type->name, e.name);
    EXPECT_EQ(type->block_elements, e.elements) << e.name;
    EXPECT_EQ(type->block_bytes, e.bytes) << e.name;
    EXPECT_LT(type->scale_bytes, type->block_bytes) << e.name;
    EXPECT_EQ(type->quantised(), e.elements > 1) << e.name;
    if (type->dtype) {
      EXPECT_EQ(InfoOf(*type->dtype).block_elements, e.elements) << e.name;
      EXPECT_EQ(InfoOf(*type->dtype).block_bytes, e.bytes) << e.name;
      EXPECT_EQ(NameOf(*type->dtype), e.name);
    }
  }
  for (const uint32_t withdrawn : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 99u}) {
    EXPECT_EQ(FindGgmlType(withdrawn), nullptr) << withdrawn;
  }
}

// Vector 8.4.1-q2k (spec.md, Q1): 256 values of 2 bits with 20 bytes of scales and minimums.
TEST(GgmlTypes, Q2KIsTheBooksGroup) {
  const GgmlTypeInfo& q2k = *FindGgmlType(10);
  EXPECT_EQ(q2k.block_bytes - q2k.scale_bytes, 64);
  EXPECT_EQ(q2k.block_bytes, 84);
  EXPECT_DOUBLE_EQ(8.0 * q2k.block_bytes / q2k.block_elements, 2.625);
  EXPECT_NEAR(static_cast<double>(q2k.scale_bytes) / q2k.block_bytes, 0.23809523809523808, 1e-9);
}

TEST(Inspect, AccountsForEveryByte) {
  GgufTestWriter w;
  w.AddString("general.name", "x");
  w.AddTensor("k", {256, 2}, 10, std::string(168, 'k'));  // Q2_K: 128 codes, 40 scales
  w.AddTensor("q", {32}, 3, std::string(20, 'q'));        // Q4_1: 16 codes, 4 scales
  w.AddTensor("f", {5}, 0, std::string(20, 'f'));
  w.AddTensor("u", {7}, 99, std::string(40, 'u'));
  w.AddTensor("h", {3}, 1, std::string(6, 'h'));
  std::string bytes = w.Build();
  bytes += "tail";
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const ByteAccount account = AccountBytes(*file);
  EXPECT_EQ(account.codes, 128 + 16);
  EXPECT_EQ(account.scales, 40 + 4);
  EXPECT_EQ(account.unquantised, 20 + 6);
  EXPECT_EQ(account.unknown, 64);  // up to the next tensor
  EXPECT_EQ(account.header, static_cast<int64_t>(w.At("header_end")));
  EXPECT_EQ(account.total(), static_cast<int64_t>(bytes.size()));
  const int64_t gaps = (192 - 168) + (32 - 20) + (32 - 20) + 4;
  EXPECT_EQ(account.padding, gaps + file->data_start() - file->header_bytes());
}

TEST(Inspect, TextNamesTypesShapesAndBytes) {
  const std::string bytes = MakeTestModel();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  const std::string text = InspectText(*file);
  EXPECT_THAT(text, HasSubstr("GGUF version 3"));
  EXPECT_THAT(text, testing::ContainsRegex("llama.embedding_length +u32 +64"));
  EXPECT_THAT(text, testing::ContainsRegex("blk.0.ffn_down.weight +Q4_1 +\\[128, 64\\] +5120"));
  EXPECT_THAT(text, testing::ContainsRegex("Q4_1 +14 tensors +[0-9]+ bytes  5.0000 bits"));
  EXPECT_THAT(text, testing::ContainsRegex("file +" + std::to_string(bytes.size())));
}

TEST(Inspect, JsonSumsToTheFile) {
  GgufTestWriter w = TestModelWriter();
  w.AddString("bad\xff", "\xff");
  w.AddTensor("u", {7}, 99, std::string(40, 'u'));
  const std::string bytes = w.Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  const auto json = nlohmann::json::parse(InspectJson(*file));
  int64_t sum = 0;
  for (const auto& part : json["bytes"]) sum += part.get<int64_t>();
  EXPECT_EQ(sum, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(json["file_bytes"], bytes.size());
  EXPECT_EQ(json["tensors"].size(), 21u);
  EXPECT_EQ(json["tensors"][0]["name"], "token_embd.weight");
  EXPECT_EQ(json["tensors"][0]["shape"], (std::vector<int64_t>{64, 40}));
  EXPECT_TRUE(json["tensors"][20]["bytes"].is_null());
  EXPECT_EQ(json["metadata"][0]["value"], "llama");
}

TEST(Inspect, SplitFileIsOneAccount) {
  const TestDir dir;
  GgufTestWriter first;
  first.Add("split.count", GgufValueType::kU16, GgufTestWriter::Raw(uint16_t{2}));
  first.AddTensor("q", {32}, 3, std::string(20, 'q'));  // Q4_1: 16 codes, 4 scales
  GgufTestWriter second;
  second.Add("split.count", GgufValueType::kU16, GgufTestWriter::Raw(uint16_t{2}));
  second.Add("split.no", GgufValueType::kU16, GgufTestWriter::Raw(uint16_t{1}));
  second.AddTensor("u", {7}, 99, std::string(40, 'u'));
  second.AddTensor("f", {5}, 0, std::string(20, 'f'));
  const std::string a = first.Build();
  const std::string b = second.Build();
  const std::string path = dir.Write("m-00001-of-00002.gguf", a);
  dir.Write("m-00002-of-00002.gguf", b);
  const auto file = GgufFile::Open(RealFileSystem(), path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const ByteAccount account = AccountBytes(*file);
  EXPECT_EQ(account.codes, 16);
  EXPECT_EQ(account.scales, 4);
  EXPECT_EQ(account.unquantised, 20);
  EXPECT_EQ(account.unknown, 64);
  EXPECT_EQ(account.header, static_cast<int64_t>(first.At("header_end") + second.At("header_end")));
  EXPECT_EQ(account.total(), static_cast<int64_t>(a.size() + b.size()));
  const auto json = nlohmann::json::parse(InspectJson(*file));
  EXPECT_EQ(json["files"][1]["bytes"], b.size());
  EXPECT_EQ(json["file_bytes"], a.size() + b.size());
  EXPECT_EQ(json["tensors"][2]["name"], "f");
  EXPECT_EQ(json["tensors"][2]["file"], 1);
  EXPECT_EQ(json["tensors"][2]["offset"], second.At("f/data"));
  EXPECT_THAT(InspectText(*file), HasSubstr("files (2)"));
}

TEST(Inspect, FolderHasTheSameReport) {
  const TestDir dir;
  SafetensorsTestWriter a;
  a.Add("x", "BF16", {3, 2}, std::string(12, 'x'));
  SafetensorsTestWriter b;
  b.Add("y", "F8_E4M3", {5}, std::string(5, 'y'));
  dir.Write("config.json", R"({"model_type": "new", "list": [1, 2], "evil": "\u001b[2J"})");
  dir.Write("generation_config.json", "{");
  dir.Write("a.safetensors", a.Build());
  dir.Write("b.safetensors", b.Build());
  dir.Write("model.safetensors.index.json",
            R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})");
  auto folder = HfFolder::Open(RealFileSystem(), dir.path());
  ASSERT_TRUE(folder.ok()) << folder.status().ToString();
  ASSERT_TRUE(folder->OpenWeights(RealFileSystem()).ok());
  const ByteAccount account = AccountBytes(*folder);
  EXPECT_EQ(account.unquantised, 17);
  EXPECT_EQ(account.header, static_cast<int64_t>(a.Build().size() + b.Build().size()) - 17);
  EXPECT_EQ(account.total(), static_cast<int64_t>(a.Build().size() + b.Build().size()));
  const auto json = nlohmann::json::parse(InspectJson(*folder));
  EXPECT_EQ(json["format"], "safetensors");
  EXPECT_EQ(json["tensors"][0]["shape"], (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(json["tensors"][1]["type"], "F8_E4M3");
  EXPECT_EQ(json["types"][0]["bytes"], 12);
  const std::string text = InspectText(*folder);
  EXPECT_THAT(text, testing::ContainsRegex("config.model_type +string +new"));
  EXPECT_THAT(text, testing::ContainsRegex("config.list +array +\\[1,2\\]"));
  EXPECT_THAT(text, testing::ContainsRegex("generation_config.json +invalid +not valid JSON"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")));
}

// tests/golden/tiny_c.gguf was written by the `gguf` package: its own reader gives these numbers.
TEST(Inspect, ReadsAFileOfAnotherWriter) {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/tests/golden/tiny_c.gguf";
  const auto file = GgufFile::Open(RealFileSystem(), path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(AccountBytes(*file).total(), file->file_bytes());
  EXPECT_EQ(*file->GetString("general.architecture"), "llama");
  EXPECT_EQ(file->FindTensor("token_embd.weight")->TypeName(), "Q8_0");
}

}  // namespace
}  // namespace tandem
