#include "model/gguf_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "os/fault_file_system.h"
#include "os/test_dir.h"

namespace tandem {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

const GgmlTypeInfo& F32() { return *FindGgmlType(0); }

// Two tensors of 12 and 8 bytes, and one without any.
GgufHeader SmallHeader(int64_t alignment = 32) {
  GgufHeader header(alignment);
  header.AddString("general.architecture", "none");
  header.AddU32("general.alignment", static_cast<uint32_t>(alignment));
  header.AddTensor("a", std::array<int64_t, 1>{3}, F32());
  header.AddTensor("empty", std::array<int64_t, 1>{0}, F32());
  header.AddTensor("b", std::array<int64_t, 2>{1, 2}, F32());
  return header;
}

TEST(GgufWriter, ReaderFindsWhatWasWritten) {
  TestDir dir;
  const std::string path = dir.path() + "/x.gguf";
  GgufHeader header;
  header.AddU32("u", 7);
  header.AddF32("f", 1.5f);
  header.AddBool("yes", true);
  header.AddString("s", "text");
  header.AddStrings("list", std::vector<std::string>{"a", "", "long one"});
  header.AddI32s("ids", std::vector<int32_t>{-1, 5});
  header.AddTensor("t", std::array<int64_t, 2>{32, 2}, *FindGgmlType(2));
  const auto writer = GgufWriter::Create(RealFileSystem(), path, header);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  const std::string data = "0123456789abcdefgh0123456789ABCDEFGH";
  ASSERT_TRUE((*writer)->Write(Bytes(data).first(5)).ok());  // in pieces
  ASSERT_TRUE((*writer)->Write(Bytes(data).subspan(5)).ok());
  ASSERT_TRUE((*writer)->Commit().ok());
  EXPECT_EQ((*writer)->bytes_written(), header.file_bytes());

  const auto file = GgufFile::Open(RealFileSystem(), path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->file_bytes(), header.file_bytes());
  EXPECT_EQ(file->GetInt("u").value(), 7);
  EXPECT_EQ(file->GetFloat("f").value(), 1.5);
  EXPECT_TRUE(file->GetBool("yes").value());
  EXPECT_EQ(file->GetString("s").value(), "text");
  EXPECT_EQ(file->GetStrings("list").value(), (std::vector<std::string_view>{"a", "", "long one"}));
  EXPECT_EQ(file->GetInts("ids").value(), (std::vector<int64_t>{-1, 5}));
  ASSERT_EQ(file->tensors().size(), 1u);
  const GgufTensor& tensor = file->tensors()[0];
  EXPECT_EQ(tensor.ShapeText(), "[32, 2]");
  EXPECT_EQ(tensor.TypeName(), "Q4_0");
  std::string read(data.size(), '\0');
  ASSERT_TRUE(file->ReadTensor(tensor, 0, std::as_writable_bytes(std::span(read))).ok());
  EXPECT_EQ(read, data);
}

TEST(GgufWriter, TensorsAreAligned) {
  for (const int64_t alignment : {8, 32, 64}) {
    TestDir dir;
    const std::string path = dir.path() + "/x.gguf";
    const GgufHeader header = SmallHeader(alignment);
    const auto writer = GgufWriter::Create(RealFileSystem(), path, header);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Write(Bytes("aaaabbbbcccc")).ok());
    ASSERT_TRUE((*writer)->Write(Bytes("ddddeeee")).ok());
    ASSERT_TRUE((*writer)->Commit().ok());
    const std::string raw = TestDir::Read(path);
    EXPECT_EQ(static_cast<int64_t>(raw.size()), header.file_bytes());
    EXPECT_EQ(static_cast<int64_t>(raw.find("aaaabbbb")) % alignment, 0);
    EXPECT_EQ(static_cast<int64_t>(raw.find("ddddeeee")) % alignment, 0);
  }
}

TEST(GgufWriter, EntriesCopyByteForByte) {
  TestDir dir;
  GgufHeader header;
  header.AddString("s", "text");
  header.AddStrings("list", std::vector<std::string>{"a", "b"});
  header.AddI32s("ids", std::vector<int32_t>{1, 2, 3});
  header.AddBool("no", false);
  const std::string first = dir.Write("first.gguf", header.Serialize());
  const auto file = GgufFile::Open(RealFileSystem(), first);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  GgufHeader copy;
  for (const GgufEntry& entry : file->entries()) copy.AddEntry(*file, entry);
  EXPECT_EQ(copy.Serialize(), header.Serialize());
}

TEST(GgufWriter, AnUnfinishedOrFailedFileLeavesNothing) {
  const GgufHeader header = SmallHeader();
  {
    TestDir dir;
    const auto writer = GgufWriter::Create(RealFileSystem(), dir.path() + "/x.gguf", header);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->Write(Bytes("aaaa")).ok());
  }
  for (int64_t budget = 0; budget < header.file_bytes(); budget += 16) {
    TestDir dir;
    FaultFileSystem fs(RealFileSystem());
    fs.LimitWrites(budget);
    Status status;
    {
      const auto writer = GgufWriter::Create(fs, dir.path() + "/x.gguf", header);
      status = writer.status();
      if (status.ok()) status = (*writer)->Write(Bytes("aaaabbbbcccc"));
      if (status.ok()) status = (*writer)->Write(Bytes("ddddeeee"));
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << budget;
    EXPECT_TRUE(RealFileSystem().List(dir.path()).value().empty());
  }
}

}  // namespace
}  // namespace tandem
