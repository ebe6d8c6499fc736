#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "model/safetensors.h"

// Any bytes are refused or are tensors that cover the file exactly.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;  // NOLINT(google-build-using-namespace)
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const Result<SafetensorsFile> file = SafetensorsFile::Read(MakeMemoryFile(bytes, "fuzz"));
  if (file.ok()) {
    int64_t end = file->header_bytes();
    for (const SafetensorsTensor& tensor : file->tensors()) {
      TANDEM_CHECK_EQ(tensor.offset, end);
      TANDEM_CHECK_EQ(tensor.num_elements() * tensor.type->bits, tensor.bytes * 8);
      TANDEM_CHECK(file->FindTensor(tensor.name) == &tensor);
      end += tensor.bytes;
    }
    TANDEM_CHECK_EQ(end, static_cast<int64_t>(size));
  }
  return 0;
}
