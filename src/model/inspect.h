// What: reports on a GGUF file for people and for programs: metadata, tensors, and where every byte
//   goes.
// Not here: printing, reading the file.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "model/gguf.h"

namespace tandem {

// Sums to the file's size.
struct ByteAccount {
  int64_t codes = 0;        // of quantised tensors
  int64_t scales = 0;       // scales, minimums and sums of quantised tensors
  int64_t unquantised = 0;  // tensors of plain types
  int64_t unknown = 0;      // tensors of unknown types, up to whatever comes next
  int64_t header = 0;       // preamble, metadata, tensor descriptions
  int64_t padding = 0;      // between and after tensors

  int64_t total() const { return codes + scales + unquantised + unknown + header + padding; }
};
ByteAccount AccountBytes(const GgufFile& file);

// Long strings and arrays are shortened; nothing in it can drive a terminal.
std::string InspectText(const GgufFile& file);
// One object: {"path", "version", "alignment", "file_bytes", "bytes": {...}, "metadata": [{"key",
// "type", "value"}], "types": [{"type", "tensors", "bytes"}], "tensors": [{"name", "type", "shape",
// "offset", "bytes"}]}; shapes innermost first, "value" as text, shortened as above; "bytes" of a
// tensor of unknown type is null.
std::string InspectJson(const GgufFile& file);

}  // namespace tandem
