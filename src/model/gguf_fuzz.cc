#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "model/gguf.h"
#include "model/inspect.h"
#include "model/spec_from_gguf.h"

// Any bytes are refused or read within their bounds: every value, the tensors' ranges, both reports
// and the model's spec.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;  // NOLINT(google-build-using-namespace)
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const Result<GgufFile> file = GgufFile::Read(MakeMemoryFile(bytes, "fuzz"));
  if (!file.ok()) return 0;
  for (const GgufEntry& entry : file->entries()) {
    static_cast<void>(file->GetStrings(entry.key));
    static_cast<void>(file->GetInts(entry.key));
    static_cast<void>(file->GetFloats(entry.key));
    static_cast<void>(file->GetInt(entry.key));
    static_cast<void>(file->GetFloat(entry.key));
    static_cast<void>(file->GetBool(entry.key));
    static_cast<void>(file->GetString(entry.key));
  }
  for (const GgufTensor& tensor : file->tensors()) {
    TANDEM_CHECK_LE(tensor.offset + tensor.bytes, static_cast<int64_t>(size));
    TANDEM_CHECK(file->FindTensor(tensor.name) == &tensor);
  }
  TANDEM_CHECK_EQ(AccountBytes(*file).total(), static_cast<int64_t>(size));
  TANDEM_CHECK(!InspectText(*file).empty());
  TANDEM_CHECK(!InspectJson(*file).empty());
  const Result<ModelSpec> spec = SpecFromGguf(*file);
  if (spec.ok()) TANDEM_CHECK(spec->Validate().ok());
  return 0;
}
