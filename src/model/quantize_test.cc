#include "model/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/test_model.h"
#include "os/fault_file_system.h"
#include "os/test_dir.h"
#include "tensor/block_quant.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TestModelOptions F32Model() {
  TestModelOptions options;
  options.hidden = 256;
  options.ffn = 288;  // a row that 256 does not divide
  options.tied = false;
  options.matrices = DType::kF32;
  options.embedding = DType::kF32;
  return options;
}

QuantizeOptions To(DType type) {
  QuantizeOptions options;
  options.mix.type = type;
  return options;
}

std::vector<float> Values(const GgufFile& file, std::string_view name) {
  const GgufTensor& tensor = *file.FindTensor(name);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
  EXPECT_TRUE(file.ReadTensor(tensor, 0, bytes).ok());
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  DequantizeRow(*tensor.type->dtype, bytes.data(), tensor.num_elements(), values.data());
  return values;
}

// Of the root mean square of a - b, of that of a.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += difference * difference;
    norm += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return std::sqrt(error / norm);
}

// Uniform values of a block fill its range: the step of b bits is 2 / 2^b of their half-width, the
// error 1 / sqrt(12) of that, their root mean square 1 / sqrt(3) of the half-width.
double BoundOf(const GgmlTypeInfo& type) {
  if (!type.quantised()) return type.block_bytes == 4 ? 1e-30 : 0.004;  // BF16 has 8 bits
  const double code_bits = 8.0 * (type.block_bytes - type.scale_bytes) / type.block_elements;
  return 2.7 * std::exp2(-std::floor(code_bits));  // MXFP4 clips, IQ4 steps are uneven
}

TEST(Quantize, EveryTypeKeepsTheValues) {
  for (const GgmlTypeInfo* type : WritableTypes()) {
    TestDir dir;
    const std::string in = dir.Write("in.gguf", MakeTestModel(F32Model()));
    const std::string out = dir.path() + "/out.gguf";
    const auto report = QuantizeGguf(RealFileSystem(), in, out, To(*type->dtype));
    ASSERT_TRUE(report.ok()) << type->name << " " << report.status().ToString();
    EXPECT_EQ(report->requantised, 0);
    const auto before = GgufFile::Open(RealFileSystem(), in);
    const auto after = GgufFile::Open(RealFileSystem(), out);
    ASSERT_TRUE(after.ok()) << type->name << " " << after.status().ToString();
    EXPECT_EQ(after->file_bytes(), report->bytes_out);
    EXPECT_EQ(after->GetInt("general.file_type").value(), FileTypeOf(*type->dtype));
    ASSERT_EQ(after->tensors().size(), before->tensors().size());
    for (const GgufTensor& tensor : after->tensors()) {
      if (tensor.num_dims == 1) {
        EXPECT_EQ(tensor.TypeName(), "F32");
      }
      const double error = RelativeError(Values(*before, tensor.name), Values(*after, tensor.name));
      EXPECT_LE(error, BoundOf(*tensor.type)) << type->name << " " << tensor.name;
      if (tensor.name == "blk.0.attn_q.weight") {
        EXPECT_EQ(tensor.TypeName(), type->name);
      }
    }
  }
}

TEST(Quantize, MetadataIsKept) {
  TestDir dir;
  GgufTestWriter writer = TestModelWriter(F32Model());
  writer.AddInt("general.file_type", 0);
  writer.AddString("general.author", "someone");
  writer.AddArray("some.list", GgufValueType::kU8, 3, "abc");
  const std::string in = dir.Write("in.gguf", writer.Build());
  const std::string out = dir.path() + "/out.gguf";
  ASSERT_TRUE(QuantizeGguf(RealFileSystem(), in, out, To(DType::kQ8_0)).ok());
  const auto before = GgufFile::Open(RealFileSystem(), in);
  const auto after = GgufFile::Open(RealFileSystem(), out);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->GetInt("general.file_type").value(), 7);
  EXPECT_EQ(after->GetInt("general.quantization_version").value(), 2);
  EXPECT_EQ(after->entries().size(), before->entries().size() + 1);
  for (const GgufEntry& entry : before->entries()) {
    if (entry.key == "general.file_type") continue;
    const GgufEntry* kept = after->FindEntry(entry.key);
    ASSERT_NE(kept, nullptr) << entry.key;
    EXPECT_EQ(after->ValueText(*kept, 1000), before->ValueText(entry, 1000));
  }
}

TEST(Quantize, ARepeatIsByteIdenticalAndTheSameTypeACopy) {
  TestDir dir;
  const std::string in = dir.Write("in.gguf", MakeTestModel(F32Model()));
  const std::string a = dir.path() + "/a.gguf";
  const std::string b = dir.path() + "/b.gguf";
  ASSERT_TRUE(QuantizeGguf(RealFileSystem(), in, a, To(DType::kQ4_0)).ok());
  ASSERT_TRUE(QuantizeGguf(RealFileSystem(), in, b, To(DType::kQ4_0)).ok());
  EXPECT_EQ(TestDir::Read(a), TestDir::Read(b));
  const auto copy = QuantizeGguf(RealFileSystem(), a, b, To(DType::kQ4_0));
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->requantised, 0);
  EXPECT_EQ(TestDir::Read(a), TestDir::Read(b));
  const auto coarser = QuantizeGguf(RealFileSystem(), a, b, To(DType::kQ4_1));
  ASSERT_TRUE(coarser.ok());
  EXPECT_GT(coarser->requantised, 0);
}

TEST(Quantize, TheInputIsNeverTheOutput) {
  TestDir dir;
  const std::string model = MakeTestModel(F32Model());
  const std::string in = dir.Write("in.gguf", model);
  for (const std::string& out : {in, dir.path() + "/./in.gguf", dir.path()}) {
    const auto report = QuantizeGguf(RealFileSystem(), in, out, To(DType::kQ4_0));
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << out;
  }
  EXPECT_TRUE(TestDir::Read(in) == model);
}

TEST(Quantize, ValuesThatATypeCannotHoldAreNamed) {
  for (const float value : {std::nanf(""), INFINITY, 1e30f}) {
    TestDir dir;
    GgufTestWriter writer = TestModelWriter(F32Model());
    std::string file = writer.Build();
    GgufTestWriter::Patch(file, writer.At("blk.1.ffn_up.weight/data") + 400, value);
    const std::string in = dir.Write("in.gguf", file);
    const std::string out = dir.path() + "/out.gguf";
    const Status status = QuantizeGguf(RealFileSystem(), in, out, To(DType::kQ4_0)).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("blk.1.ffn_up.weight"));
    EXPECT_EQ(RealFileSystem().List(dir.path()).value().size(), 1u);
    if (value == 1e30f) {
      EXPECT_TRUE(QuantizeGguf(RealFileSystem(), in, out, To(DType::kBF16)).ok());
    }
  }
}

TEST(Quantize, EveryFailureOfTheSystemLeavesNothing) {
  TestModelOptions small = F32Model();
  small.layers = 1;
  const std::string model = MakeTestModel(small);
  const auto run = [&](FaultFileSystem& fs, const TestDir& dir) {
    const std::string in = dir.Write("in.gguf", model);
    return QuantizeGguf(fs, in, dir.path() + "/out.gguf", To(DType::kQ8_0)).status();
  };
  int64_t operations = 0;
  {
    TestDir dir;
    FaultFileSystem fs(RealFileSystem());
    ASSERT_TRUE(run(fs, dir).ok());
    operations = fs.operations();
  }
  int failed = 0;
  for (int64_t at = 0; at < operations; ++at) {
    TestDir dir;
    FaultFileSystem fs(RealFileSystem());
    fs.FailAt(at, ResourceExhaustedError("no space"));
    const Status status = run(fs, dir);
    const auto names = RealFileSystem().List(dir.path()).value();
    if (status.ok()) continue;  // what failed was a question, like whether the output exists
    ++failed;
    for (const std::string& name : names) {
      EXPECT_EQ(name.find(AtomicFile::kTempInfix), std::string::npos) << "operation " << at;
    }
  }
  EXPECT_GT(failed, 20);
}

TEST(Quantize, AFullDiskAndCancellingLeaveNothing) {
  TestDir dir;
  const std::string in = dir.Write("in.gguf", MakeTestModel(F32Model()));
  FaultFileSystem fs(RealFileSystem());
  fs.LimitWrites(10000);
  const std::string out = dir.path() + "/out.gguf";
  EXPECT_EQ(QuantizeGguf(fs, in, out, To(DType::kQ4_0)).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(RealFileSystem().List(dir.path()).value().size(), 1u);
  QuantizeOptions options = To(DType::kQ4_0);
  options.cancelled = [] { return true; };
  EXPECT_EQ(QuantizeGguf(RealFileSystem(), in, out, options).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(RealFileSystem().List(dir.path()).value().size(), 1u);
}

TEST(Quantize, AnInputThatChangesMeanwhileIsNoticed) {
  TestDir dir;
  const std::string model = MakeTestModel(F32Model());
  const std::string in = dir.Write("in.gguf", model);
  QuantizeOptions options = To(DType::kQ4_0);
  options.progress = [&](int64_t done, int64_t total) {
    if (done == total) dir.Write("in.gguf", model + "more");
  };
  const auto report = QuantizeGguf(RealFileSystem(), in, dir.path() + "/out.gguf", options);
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tandem
