// What: reports on a model's files for people and for programs: metadata, tensors, and where every
//   byte goes.
// Not here: printing, reading the files.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "model/gguf.h"
#include "model/hf_folder.h"

namespace tandem {

// Sums to the size of the file, or of all the files that hold the tensors.
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
// Safetensors have no types of blocks: whatever they hold counts as unquantised. Requires
// folder.OpenWeights.
ByteAccount AccountBytes(const HfFolder& folder);

// Long strings and arrays are shortened; nothing in it can drive a terminal.
std::string InspectText(const GgufFile& file);
std::string InspectText(const HfFolder& folder);
// One object: {"path", "format": "gguf" or "safetensors", "version" and "alignment" of GGUF,
// "file_bytes", "files": [{"path", "bytes"}], "bytes": {...}, "metadata": [{"key", "type",
// "value"}], "types": [{"type", "tensors", "bytes"}], "tensors": [{"name", "type", "shape", "file",
// "offset", "bytes"}]}; "file" counts "files" from 0, "offset" is from that file's start; shapes as
// the file has them, GGUF's innermost first and safetensors' outermost; "value" as text, shortened
// as above; "bytes" of a tensor of unknown type is null. Of a folder, metadata are the fields of
// config.json and generation_config.json, after "config." and "generation_config.".
std::string InspectJson(const GgufFile& file);
std::string InspectJson(const HfFolder& folder);

}  // namespace tandem
