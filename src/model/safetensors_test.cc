#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/hf_test_writer.h"
#include "os/fault_file_system.h"

namespace tandem {
namespace {

using testing::HasSubstr;

Result<SafetensorsFile> Parse(std::string_view bytes) {
  return SafetensorsFile::Read(
      MakeMemoryFile(std::as_bytes(std::span(bytes)), "dir/x.safetensors"));
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  SafetensorsTestWriter w;
  w.Add("b", "BF16", {3, 2}, std::string(12, 'b'));
  w.Add("a", "F32", {2}, std::string(8, 'a'));
  w.Add("scalar", "F16", {}, "ss");
  w.Add("none", "I64", {0, 5}, "");
  w.Add("packed", "F4", {2, 3}, "ppp");
  const std::string bytes = w.Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->tensors().size(), 5u);
  ASSERT_EQ(file->metadata().size(), 1u);
  EXPECT_EQ(file->metadata()[0], (std::pair<std::string, std::string>("format", "pt")));
  EXPECT_EQ(file->tensors()[0].name, "b");
  const SafetensorsTensor* b = file->FindTensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type->name, "BF16");
  EXPECT_EQ(b->type->dtype, DType::kBF16);
  EXPECT_EQ(b->ShapeText(), "[3, 2]");
  EXPECT_EQ(b->num_elements(), 6);
  EXPECT_EQ(b->offset, file->header_bytes());
  EXPECT_EQ(bytes.substr(static_cast<size_t>(file->FindTensor("a")->offset), 8), "aaaaaaaa");
  EXPECT_EQ(file->FindTensor("scalar")->num_elements(), 1);
  EXPECT_EQ(file->FindTensor("none")->bytes, 0);
  EXPECT_EQ(file->FindTensor("packed")->type->dtype, std::nullopt);
  EXPECT_EQ(file->FindTensor("c"), nullptr);
  EXPECT_EQ(file->file_bytes(), static_cast<int64_t>(bytes.size()));
}

TEST(Safetensors, OrderInTheHeaderAndSpacesDoNotMatter) {
  const auto file = Parse(SafetensorsBytes(R"({ "y" : {"data_offsets":[4,8],"shape":[1],
    "dtype":"F32"}, "x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]} }   )",
                                           "xxxxyyyy"));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->tensors()[0].name, "x");
  const auto empty = Parse(SafetensorsBytes("{}"));
  EXPECT_TRUE(empty.ok()) << empty.status().ToString();
}

// A header of one tensor "x" of four bytes, with its entry's text replaced.
std::string One(const std::string& entry) {
  return SafetensorsBytes(R"({"x":)" + entry + "}", "xxxx");
}

struct Damage {
  std::string bytes;
  std::string expected;  // part of the status as text
};

std::vector<Damage> Lengths() {
  std::string huge = SafetensorsBytes("{}");
  std::memset(huge.data(), 0xFF, 8);
  std::string long_header = SafetensorsBytes("{}");
  long_header[0] = 3;
  return {
      {"", "DATA_LOSS: dir/x.safetensors: the file has 0 bytes, too few for the header's length"},
      {"1234567", "the file has 7 bytes"},
      {huge,
       "OUT_OF_RANGE: dir/x.safetensors: the header is 18446744073709551615 bytes long; at "
       "most 100000000 are allowed"},
      {long_header, "the file ends inside the header: it is 3 bytes long, 2 are left"},
      {SafetensorsBytes(""), "the header does not begin with '{'"},
      {SafetensorsBytes(" {}"), "the header does not begin with '{'"},
      {SafetensorsBytes("[]"), "the header does not begin with '{'"},
  };
}

std::vector<Damage> Texts() {
  const std::string x = R"("x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  return {
      {SafetensorsBytes("{"), "DATA_LOSS: dir/x.safetensors: the header: not valid JSON near byte"},
      {SafetensorsBytes("{} {}"), "not valid JSON near byte 4"},
      {SafetensorsBytes("{\"\xFF\":{}}"), "not valid JSON near byte"},
      {SafetensorsBytes("{" + x + "," + x + "}", "xxxx"), "the key 'x' occurs twice"},
      {SafetensorsBytes("{\"\":{}}"), "a tensor has an empty name"},
      {SafetensorsBytes("{\"" + std::string(1001, 'n') + "\":{}}"), "a name of 1001 bytes"},
      {SafetensorsBytes(R"({"__metadata__":{"a":1}})"),
       "'__metadata__' has an integer where it does not belong"},
      {SafetensorsBytes(R"({"__metadata__":{"a":{}}})"),
       "'__metadata__' has an object where it does not belong"},
      {SafetensorsBytes(R"({"__metadata__":7})"), "'__metadata__' has an integer where"},
      {One("4"), "tensor 'x' has an integer where it does not belong"},
      {One("[]"), "tensor 'x' has a list where it does not belong"},
      {One("{}"), "tensor 'x' has no dtype"},
      {One(R"({"dtype":"F32","data_offsets":[0,4]})"), "tensor 'x' has no shape"},
      {One(R"({"dtype":"F32","shape":[1]})"), "tensor 'x' has 0 data_offsets; 2 are needed"},
      {One(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "has 1 data_offsets"},
      {One(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})"), "more than 2 data_offsets"},
      {One(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"),
       "tensor 'x' has an unknown field 'x'"},
      {One(R"({"dtype":"F32","dtype":"F32"})"), "the key 'dtype' occurs twice"},
      {One(R"({"dtype":"F31","shape":[1],"data_offsets":[0,4]})"),
       "tensor 'x' has unknown dtype 'F31'"},
      {One(R"({"dtype":["F32"],"shape":[1],"data_offsets":[0,4]})"),
       "tensor 'x' has a list where it does not belong as its dtype"},
      {One(R"({"dtype":"F32","shape":[[1]],"data_offsets":[0,4]})"), "nested deeper than 3 levels"},
      {One(R"({"dtype":"F32","shape":{"a":1},"data_offsets":[0,4]})"), "an object where"},
      {One(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"),
       "more than 8 dimensions"},
  };
}

std::vector<Damage> Numbers() {
  return {
      {One(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
       "tensor 'x' has an integer where it does not belong in its shape"},
      {One(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "a number where"},
      {One(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})"),
       "a number beyond 63 bits: 18446744073709551615"},
      {One(R"({"dtype":"F32","shape":[1],"data_offsets":[0,1e999]})"), "is too large"},
      {One(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"),
       "tensor 'x' ends at 0, before it begins at 4"},
      {One(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"),
       "the size of tensor 'x' of shape [4294967296, 4294967296] overflows"},
      {One(R"({"dtype":"F32","shape":[9223372036854775807],"data_offsets":[0,4]})"), "overflows"},
      {One(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"),
       "tensor 'x' of F32 [2] needs 8 bytes; its data_offsets give it 4"},
      {One(R"({"dtype":"F4","shape":[3],"data_offsets":[0,4]})"), "does not fill whole bytes"},
      {One(R"({"dtype":"U8","shape":[5],"data_offsets":[0,5]})"),
       "tensor 'x' ends at 5, the file's data at 4"},
      {One(R"({"dtype":"U8","shape":[3],"data_offsets":[0,3]})"),
       "no tensor covers the last 1 bytes"},
      {One(R"({"dtype":"U8","shape":[3],"data_offsets":[1,4]})"),
       "no tensor covers the bytes 0 to 1, before 'x'"},
      {SafetensorsBytes("{}", "x"), "no tensor covers the last 1 bytes"},
      {SafetensorsBytes(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                        R"("y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                        "xxxx"),
       "tensor 'y' begins at 2, inside the one before it, which ends at 3"},
      {SafetensorsBytes(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                        R"("y":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                        "xxxx"),
       "no tensor covers the bytes 1 to 2, before 'y'"},
  };
}

TEST(SafetensorsDamage, SaysWhatIsWrongAndWhere) {
  for (const auto& damages : {Lengths(), Texts(), Numbers()}) {
    for (const Damage& damage : damages) {
      const auto file = Parse(damage.bytes);
      ASSERT_FALSE(file.ok()) << damage.expected;
      EXPECT_THAT(file.status().ToString(), HasSubstr(damage.expected));
      EXPECT_THAT(file.status().message(), HasSubstr("dir/x.safetensors: "));
    }
  }
}

TEST(SafetensorsDamage, CutAnywhereIsRefused) {
  SafetensorsTestWriter w;
  w.Add("a", "F32", {2}, std::string(8, 'a'));
  w.Add("b", "F32", {1, 1}, std::string(4, 'b'));
  const std::string bytes = w.Build();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Parse(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(Parse(bytes + "x").ok());
}

TEST(SafetensorsDamage, ReadErrorsAreStatuses) {
  const TestDir dir;
  SafetensorsTestWriter w;
  w.Add("a", "F32", {1}, "aaaa");
  const std::string path = dir.Write("m.safetensors", w.Build());
  FaultFileSystem fs(RealFileSystem());
  for (const int64_t k : {0, 1, 2, 3}) {  // open, stamp, length, header
    fs.FailAt(fs.operations() + k, InternalError("injected"));
    EXPECT_THAT(SafetensorsFile::Open(fs, path).status().message(), HasSubstr("injected"));
  }
  EXPECT_TRUE(SafetensorsFile::Open(fs, path).ok());
}

}  // namespace
}  // namespace tandem
