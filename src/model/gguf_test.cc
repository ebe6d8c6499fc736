#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "model/gguf_test_writer.h"
#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<GgufFile> Parse(std::string_view bytes) {
  return GgufFile::Read(MakeMemoryFile(std::as_bytes(std::span(bytes)), "test.gguf"));
}

// One value of every kind and three tensors.
GgufTestWriter SmallFile() {
  GgufTestWriter w;
  w.AddString("general.architecture", "llama");
  w.AddInt("a.u32", 7);
  w.Add("a.i32", GgufValueType::kI32, GgufTestWriter::Raw(int32_t{-7}));
  w.Add("a.u64", GgufValueType::kU64, GgufTestWriter::Raw(uint64_t{1} << 40));
  w.Add("a.huge", GgufValueType::kU64, GgufTestWriter::Raw(~uint64_t{0}));
  w.Add("a.u8", GgufValueType::kU8, GgufTestWriter::Raw(uint8_t{200}));
  w.AddFloat("a.f32", 0.5f);
  w.Add("a.f64", GgufValueType::kF64, GgufTestWriter::Raw(0.25));
  w.AddBool("a.bool", true);
  w.AddArray("a.strings", GgufValueType::kString, 2,
             GgufTestWriter::RawString("one") + GgufTestWriter::RawString(""));
  w.AddArray("a.i16s", GgufValueType::kI16, 3,
             GgufTestWriter::Raw(int16_t{-1}) + GgufTestWriter::Raw(int16_t{2}) +
                 GgufTestWriter::Raw(int16_t{3}));
  w.AddArray("a.f32s", GgufValueType::kF32, 1, GgufTestWriter::Raw(1.5f));
  w.AddArray("a.nested", GgufValueType::kArray, 1,
             GgufTestWriter::Raw(uint32_t{0}) + GgufTestWriter::Raw(uint64_t{2}) + "\1\2");
  w.AddArray("a.bools", GgufValueType::kBool, 2, std::string("\0\1", 2));
  w.AddTensor("q", {32, 2}, 2, std::string(36, 'q'));
  w.AddTensor("f", {3}, 0, std::string(12, 'f'));
  w.AddTensor("k", {256}, 14, std::string(210, 'k'));  // Q6_K
  return w;
}

TEST(Gguf, ReadsMetadataAndTensors) {
  for (const uint32_t version : {2u, 3u}) {
    GgufTestWriter w = SmallFile();
    w.version = version;
    const std::string bytes = w.Build();
    const auto file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->entries().size(), 14u);
    EXPECT_EQ(file->header_bytes(), static_cast<int64_t>(w.At("header_end")));
    ASSERT_EQ(file->tensors().size(), 3u);
    const GgufTensor* q = file->FindTensor("q");
    ASSERT_NE(q, nullptr);
    EXPECT_EQ(q->TypeName(), "Q4_0");
    EXPECT_EQ(q->ShapeText(), "[32, 2]");
    EXPECT_EQ(q->bytes, 36);
    EXPECT_EQ(q->offset, static_cast<int64_t>(w.At("q/data")));
    EXPECT_EQ(file->FindTensor("f")->offset, static_cast<int64_t>(w.At("f/data")));
    EXPECT_EQ(file->FindTensor("none"), nullptr);
    std::vector<std::byte> out(4);
    ASSERT_TRUE(file->ReadTensor(*file->FindTensor("k"), 206, out).ok());
    EXPECT_EQ(out[3], std::byte{'k'});
  }
}

TEST(Gguf, GettersConvertBetweenNumberTypes) {
  const std::string bytes = SmallFile().Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*file->GetString("general.architecture"), "llama");
  EXPECT_EQ(*file->GetInt("a.u32"), 7);
  EXPECT_EQ(*file->GetInt("a.i32"), -7);
  EXPECT_EQ(*file->GetInt("a.u64"), int64_t{1} << 40);
  EXPECT_EQ(*file->GetInt("a.u8"), 200);
  EXPECT_EQ(*file->GetFloat("a.f32"), 0.5);
  EXPECT_EQ(*file->GetFloat("a.f64"), 0.25);
  EXPECT_EQ(*file->GetFloat("a.i32"), -7.0);
  EXPECT_TRUE(*file->GetBool("a.bool"));
  EXPECT_THAT(*file->GetStrings("a.strings"), ElementsAre("one", ""));
  EXPECT_THAT(*file->GetInts("a.i16s"), ElementsAre(-1, 2, 3));
  EXPECT_THAT(*file->GetFloats("a.f32s"), ElementsAre(1.5f));
  EXPECT_THAT(*file->GetFloats("a.i16s"), ElementsAre(-1.0f, 2.0f, 3.0f));
  EXPECT_THAT(*file->GetIntPerLayer("a.i16s", 3), ElementsAre(-1, 2, 3));
  EXPECT_THAT(*file->GetIntPerLayer("a.u32", 2), ElementsAre(7, 7));
  EXPECT_EQ(*file->GetIntOr("none", 5), 5);
  EXPECT_EQ(*file->GetStringOr("none", "x"), "x");
  EXPECT_EQ(*file->GetFloatOr("none", 2.0), 2.0);
  EXPECT_FALSE(*file->GetBoolOr("none", false));
}

TEST(Gguf, GettersNameKeyExpectedAndFoundType) {
  const std::string bytes = SmallFile().Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->GetInt("none").status().ToString(), "NOT_FOUND: metadata 'none' is missing");
  EXPECT_EQ(file->GetInt("a.f32").status().ToString(),
            "INVALID_ARGUMENT: metadata 'a.f32' must be an integer; it is f32");
  EXPECT_EQ(file->GetIntOr("a.bool", 1).status().message(),
            "metadata 'a.bool' must be an integer; it is bool");
  EXPECT_EQ(file->GetString("a.u32").status().message(),
            "metadata 'a.u32' must be a string; it is u32");
  EXPECT_EQ(file->GetFloat("a.strings").status().message(),
            "metadata 'a.strings' must be a number; it is array of 2 string");
  EXPECT_EQ(file->GetStrings("a.i16s").status().message(),
            "metadata 'a.i16s' must be an array of strings; it is array of 3 i16");
  EXPECT_EQ(file->GetInts("a.u32").status().message(),
            "metadata 'a.u32' must be an array of integers; it is u32");
  EXPECT_EQ(file->GetInt("a.huge").status().message(),
            "metadata 'a.huge' has a value beyond 63 bits");
  EXPECT_EQ(file->GetIntPerLayer("a.i16s", 4).status().message(),
            "metadata 'a.i16s' has 3 values for 4 layers");
}

TEST(Gguf, ValueTextIsShortAndHarmless) {
  GgufTestWriter w;
  w.AddString("s", "line\nbell\a \x1b[31m caf\u00e9 \xff\\");
  w.AddString("long", std::string(1000, 'x'));
  w.AddArray("many", GgufValueType::kU8, 300, std::string(300, '\1'));
  w.AddArray("strings", GgufValueType::kString, 2,
             GgufTestWriter::RawString("a") + GgufTestWriter::RawString("\n"));
  w.AddBool("b", true);
  w.Add("u", GgufValueType::kU64, GgufTestWriter::Raw(~uint64_t{0}));
  w.Add("d", GgufValueType::kF64, GgufTestWriter::Raw(1e-5));
  const std::string bytes = w.Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  const auto text = [&](std::string_view key) {
    return file->ValueText(*file->FindEntry(key), 40);
  };
  EXPECT_EQ(text("s"), "line\\nbell\\x07 \\x1b[31m caf\u00e9 \\xff\\\\");
  EXPECT_EQ(text("long"), std::string(40, 'x') + "... (1000 bytes)");
  EXPECT_THAT(text("many"), HasSubstr("1, ... 300 in all]"));
  EXPECT_LT(text("many").size(), 80u);
  EXPECT_EQ(text("strings"), "[\"a\", \"\\n\"]");
  EXPECT_EQ(text("b"), "true");
  EXPECT_EQ(text("u"), "18446744073709551615");
  EXPECT_EQ(text("d"), "1e-05");
}

TEST(Gguf, UnknownTensorTypesAreListed) {
  GgufTestWriter w;
  w.AddTensor("x", {100}, 99, std::string(64, 'x'));
  w.AddTensor("y", {4}, 0, std::string(16, 'y'));
  const std::string bytes = w.Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->FindTensor("x")->TypeName(), "type 99");
  EXPECT_EQ(file->FindTensor("x")->bytes, 0);
}

TEST(Gguf, LargerAlignmentPlacesTheData) {
  GgufTestWriter w;
  w.alignment = 4096;
  w.AddInt("general.alignment", 4096);
  w.AddTensor("x", {4}, 0, std::string(16, 'x'));
  const std::string bytes = w.Build();
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->data_start(), 4096);
  EXPECT_EQ(file->FindTensor("x")->offset, 4096);
}

TEST(Gguf, HeaderLongerThanOnePieceIsRead) {
  GgufTestWriter w;
  std::string tokens;
  constexpr uint64_t kCount = 60'000;
  for (uint64_t i = 0; i < kCount; ++i)
    tokens += GgufTestWriter::RawString("token " + std::to_string(i));
  w.AddArray("tokens", GgufValueType::kString, kCount, tokens);
  w.AddInt("after", 3);
  const std::string bytes = w.Build();
  ASSERT_GT(bytes.size(), size_t{1} << 20);
  const auto file = Parse(bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->GetStrings("tokens")->at(kCount - 1), "token 59999");
  EXPECT_EQ(*file->GetInt("after"), 3);
}

struct Damage {
  const char* name;
  std::function<void(GgufTestWriter&)> before;                     // may be null
  std::function<void(const GgufTestWriter&, std::string&)> after;  // may be null
  std::string expected;                                            // part of the status as text
};

template <typename T>
std::function<void(const GgufTestWriter&, std::string&)> Set(std::string mark, T value,
                                                             size_t plus = 0) {
  return [=](const GgufTestWriter& w, std::string& file) {
    GgufTestWriter::Patch(file, w.At(mark) + plus, value);
  };
}

std::function<void(const GgufTestWriter&, std::string&)> CutAt(std::string mark, size_t plus = 0) {
  return [=](const GgufTestWriter& w, std::string& file) { file.resize(w.At(mark) + plus); };
}

std::vector<Damage> PreambleDamages() {
  return {
      {"empty", {}, CutAt("magic"), "DATA_LOSS: test.gguf: the file ends inside the magic number"},
      {"no version",
       {},
       CutAt("version", 3),
       "the file ends inside the version: 4 bytes needed at byte 4, 3 left"},
      {"no counts", {}, CutAt("kv_count", 7), "the file ends inside the counts"},
      {"other magic",
       {},
       Set<uint32_t>("magic", 0x04034B50),
       "DATA_LOSS: test.gguf: not a GGUF file: it begins with 0x04034b50"},
      {"swapped magic",
       {},
       Set<uint32_t>("magic", 0x47475546),
       "UNIMPLEMENTED: test.gguf: a big-endian GGUF file"},
      {"big-endian",
       {},
       Set<uint32_t>("version", 0x03000000),
       "UNIMPLEMENTED: test.gguf: a big-endian GGUF file"},
      {"version 0", {}, Set<uint32_t>("version", 0), "UNIMPLEMENTED: test.gguf: GGUF version 0"},
      {"version 1",
       {},
       Set<uint32_t>("version", 1),
       "UNIMPLEMENTED: test.gguf: GGUF version 1 is not supported: Tandem reads 2 and 3"},
      {"version 4", {}, Set<uint32_t>("version", 4), "GGUF version 4"},
      {"tensor count",
       {},
       Set<uint64_t>("tensor_count", ~uint64_t{0}),
       "tensor count 18446744073709551615 cannot be right"},
      {"metadata count",
       {},
       Set<uint64_t>("kv_count", uint64_t{1} << 60),
       "metadata count 1152921504606846976 cannot be right"},
      {"cut in the metadata",
       {},
       CutAt("a.f64/key", 2),
       "metadata count 14 cannot be right: only 186 bytes follow byte 24"},
      {"one metadata too many",
       {},
       Set<uint64_t>("kv_count", 15),
       "the name of tensor 0 at byte 460 is 562949953421312 bytes long"},
      {"one metadata too few",
       {},
       Set<uint64_t>("kv_count", 13),
       "tensor 'a.bools' has 9 dimensions"},
      {"one tensor too many", {}, Set<uint64_t>("tensor_count", 4), "tensor 3"},
  };
}

std::vector<Damage> EntryDamages() {
  return {
      {"key length",
       {},
       Set<uint64_t>("a.u32/length", 1 << 16),
       "the name of metadata entry 1 at byte"},
      {"key length overflow",
       {},
       Set<uint64_t>("a.u32/length", ~uint64_t{0}),
       "is 18446744073709551615 bytes long; at most 65535 are allowed"},
      {"empty key", {}, Set<uint64_t>("a.u32/length", 0), "metadata entry 1 has an empty name"},
      {"value type",
       {},
       Set<uint32_t>("a.u32/type", 13),
       "metadata 'a.u32' has unknown value type 13"},
      {"string length",
       {},
       Set<uint64_t>("general.architecture", 1 << 29),
       "the file ends inside the value of 'general.architecture'"},
      {"string length overflow",
       {},
       Set<uint64_t>("general.architecture", ~uint64_t{0} - 7),
       "at most 1073741824 are allowed"},
      {"duplicate key",
       [](GgufTestWriter& w) { w.AddInt("a.u32", 8); },
       {},
       "DATA_LOSS: test.gguf: metadata 'a.u32' occurs twice"},
      {"alignment 0",
       [](GgufTestWriter& w) { w.AddInt("general.alignment", 0); },
       {},
       "general.alignment is 0; a power of two from 8 to 1048576 is allowed"},
      {"alignment 24",
       [](GgufTestWriter& w) { w.AddInt("general.alignment", 24); },
       {},
       "general.alignment is 24"},
      {"alignment 2^31",
       [](GgufTestWriter& w) { w.AddInt("general.alignment", 1u << 31); },
       {},
       "general.alignment is 2147483648"},
      {"alignment text",
       [](GgufTestWriter& w) { w.AddString("general.alignment", "32"); },
       {},
       "metadata 'general.alignment' must be an integer; it is string"},
      {"cut in a key",
       {},
       CutAt("a.bools/key", 2),
       "the file ends inside the name of metadata entry 13"},
      {"cut in a type",
       {},
       CutAt("a.bools/type", 1),
       "the file ends inside the value of 'a.bools': 4 bytes needed"},
  };
}

std::vector<Damage> ArrayDamages() {
  return {
      {"array type",
       {},
       Set<uint32_t>("a.i16s", 77),
       "the value of 'a.i16s' is an array of unknown type 77"},
      {"array count",
       {},
       Set<uint64_t>("a.i16s", 1 << 20, 4),
       "the file ends inside the value of 'a.i16s': 1048576 elements of type i16"},
      {"array count overflow",
       {},
       Set<uint64_t>("a.i16s", uint64_t{1} << 63, 4),
       "9223372036854775808 elements of type i16"},
      {"string array count",
       {},
       Set<uint64_t>("a.strings", uint64_t{1} << 62, 4),
       "elements of type string"},
      {"nested array type",
       {},
       Set<uint32_t>("a.nested", 14, 12),
       "the value of 'a.nested' is an array of unknown type 14"},
      {"nested array count",
       {},
       Set<uint64_t>("a.nested", uint64_t{1} << 40, 16),
       "1099511627776 elements of type u8"},
      {"deep arrays",
       [](GgufTestWriter& w) {
         std::string raw;
         for (int i = 0; i < 1000; ++i)
           raw += GgufTestWriter::Raw(uint32_t{9}) + GgufTestWriter::Raw(uint64_t{1});
         w.Add("deep", GgufValueType::kArray, raw);
       },
       {},
       "the value of 'deep' nests arrays more than 4 deep"},
      {"bool", {}, Set<uint8_t>("a.bool", 2), "the value of 'a.bool' is a bool with value 2"},
      {"bool in array",
       {},
       Set<uint8_t>("a.bools", 255, 13),
       "the value of 'a.bools' is a bool with value 255"},
      {"cut in an array",
       {},
       CutAt("a.i16s", 14),
       "the file ends inside the value of 'a.i16s': 3 elements of type i16"},
  };
}

std::vector<Damage> TensorDamages() {
  return {
      {"name length", {}, Set<uint64_t>("q/length", 65), "the name of tensor 0 at byte"},
      {"empty name", {}, Set<uint64_t>("q/length", 0), "tensor 0 has an empty name"},
      {"no dimensions",
       {},
       Set<uint32_t>("q/n_dims", 0),
       "tensor 'q' has 0 dimensions; 1 to 4 are allowed"},
      {"five dimensions", {}, Set<uint32_t>("q/n_dims", 5), "tensor 'q' has 5 dimensions"},
      {"zero dimension", {}, Set<uint64_t>("q/dims", 0, 8), "dimension 1 of tensor 'q' is 0"},
      {"dimension overflow",
       {},
       Set<uint64_t>("q/dims", ~uint64_t{0}),
       "the size of tensor 'q' overflows: dimension 0 is 18446744073709551615"},
      {"product overflow",
       {},
       Set<uint64_t>("q/dims", uint64_t{1} << 58, 8),
       "the size of tensor 'q' overflows: dimension 1 is 288230376151711744"},
      {"larger than the file",
       {},
       Set<uint64_t>("q/dims", 1 << 30, 8),
       "tensor 'q' of Q4_0 [32, 1073741824] is larger than the file"},
      {"part of a block",
       {},
       Set<uint64_t>("q/dims", 33),
       "rows of tensor 'q' have 33 values, not a multiple of Q4_0's block of 32"},
      {"offset beyond the end",
       {},
       Set<uint64_t>("f/offset", 1 << 30),
       "tensor 'f' begins at offset 1073741824, beyond the end"},
      {"offset overflow",
       {},
       Set<uint64_t>("f/offset", ~uint64_t{31}),
       "tensor 'f' begins at offset 18446744073709551584"},
      {"offset unaligned",
       {},
       Set<uint64_t>("f/offset", 65),
       "tensor 'f' begins at offset 65, not a multiple of the alignment 32"},
      {"overlap", {}, Set<uint64_t>("f/offset", 32), "tensors 'q' and 'f' overlap at byte"},
      {"same place", {}, Set<uint64_t>("f/offset", 0), "tensors 'f' and 'q' overlap at byte"},
      {"cut in the data", {}, CutAt("k/data", 209), "tensor 'k' ends at byte"},
      {"no data", {}, CutAt("header_end"), "tensor 'q' ends at byte"},
      {"cut in a description",
       {},
       CutAt("k/offset", 3),
       "the file ends inside the description of tensor 'k'"},
      {"duplicate tensor",
       [](GgufTestWriter& w) { w.AddTensor("f", {3}, 0, std::string(12, 'f')); },
       {},
       "DATA_LOSS: test.gguf: tensor 'f' occurs twice"},
      {"name drives a terminal",
       [](GgufTestWriter& w) { w.AddTensor("\x1b[2J", {0}, 0, ""); },
       {},
       "dimension 0 of tensor '\\x1b[2J' is 0"},
  };
}

void ExpectRefused(const Damage& damage) {
  GgufTestWriter w = SmallFile();
  if (damage.before) damage.before(w);
  std::string bytes = w.Build();
  if (damage.after) damage.after(w, bytes);
  const auto file = Parse(bytes);
  ASSERT_FALSE(file.ok()) << damage.name;
  EXPECT_THAT(file.status().ToString(), HasSubstr(damage.expected)) << damage.name;
}

TEST(GgufDamage, PreambleIsRefusedWithItsReason) {
  for (const Damage& damage : PreambleDamages()) ExpectRefused(damage);
}
TEST(GgufDamage, MetadataIsRefusedWithItsReason) {
  for (const Damage& damage : EntryDamages()) ExpectRefused(damage);
}
TEST(GgufDamage, ArraysAreRefusedWithTheirReason) {
  for (const Damage& damage : ArrayDamages()) ExpectRefused(damage);
}
TEST(GgufDamage, TensorsAreRefusedWithTheirReason) {
  for (const Damage& damage : TensorDamages()) ExpectRefused(damage);
}

TEST(GgufDamage, EveryCutIsRefused) {
  const std::string bytes = SmallFile().Build();
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_FALSE(Parse(std::string_view(bytes).substr(0, n)).ok()) << n;
  }
  EXPECT_TRUE(Parse(bytes).ok());
}

TEST(GgufDamage, EveryFlippedHeaderBitIsRefusedOrHarmless) {
  GgufTestWriter w = SmallFile();
  const std::string good = w.Build();
  for (size_t i = 0; i < w.At("header_end"); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      const auto file = Parse(bytes);
      if (!file.ok()) continue;
      for (const GgufEntry& entry : file->entries()) static_cast<void>(file->ValueText(entry, 100));
      for (const GgufTensor& tensor : file->tensors()) {
        ASSERT_LE(tensor.offset + tensor.bytes, static_cast<int64_t>(bytes.size()));
      }
    }
  }
}

TEST(GgufDamage, ReadErrorsAndShrinkingFilesAreStatuses) {
  const TestDir dir;
  const std::string bytes = SmallFile().Build();
  const std::string path = dir.Write("m.gguf", bytes);
  FaultFileSystem fs(RealFileSystem());
  for (const int64_t k : {0, 1, 2}) {  // open, stamp, read
    fs.FailAt(fs.operations() + k, InternalError("injected"));
    EXPECT_THAT(GgufFile::Open(fs, path).status().message(), HasSubstr("injected"));
  }
  const auto file = GgufFile::Open(fs, path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  dir.Write("m.gguf", std::string_view(bytes).substr(0, bytes.size() - 100));
  std::vector<std::byte> out(210);
  const Status status = file->ReadTensor(*file->FindTensor("k"), 0, out);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("reading tensor 'k'"));
  EXPECT_EQ(GgufFile::Open(fs, dir.path() + "/none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
