// What: GgufParser: reads a GGUF header piece by piece into a GgufFile and checks all of it.
// Not here: getters (gguf.h).
// Threads: one.
// Cost: linear in the header, but for sorting the names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/gguf.h"

namespace tandem {

class GgufParser {
 public:
  // Fills `file`, whose file_ is set and the rest is empty.
  explicit GgufParser(GgufFile& file) : out_(file) {}
  Status Run();

 private:
  // Makes `bytes` from the current position on readable; DATA_LOSS names `what` when the file ends
  // before.
  Status Need(uint64_t bytes, std::string_view what);
  uint64_t remaining() const;
  // The value at the current position, after Need.
  template <typename T>
  T Take();

  Status ReadPreamble();
  Status CheckCount(uint64_t count, uint64_t min_bytes, std::string_view what) const;
  Status ReadString(std::string_view what, uint64_t max_bytes, uint64_t* position,
                    uint64_t* length);
  Status ReadEntry(uint64_t index);
  Status SkipElements(GgufValueType type, uint64_t count, int depth, std::string_view what);
  Status SkipBools(uint64_t count, std::string_view what);
  Status ReadArrayHeader(int depth, std::string_view what, GgufValueType* type, uint64_t* count);
  Status ReadTensorInfo(uint64_t index);
  // Names become views once the header's bytes have stopped moving.
  void BindNames();
  Status SortEntries();
  Status SortTensors();
  Status ReadAlignment();
  Status PlaceTensors();
  Status CheckOverlap() const;

  struct Name {
    uint64_t position;
    uint64_t length;
  };

  GgufFile& out_;
  uint64_t position_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_entries_ = 0;
  std::vector<Name> keys_;
  std::vector<Name> tensor_names_;
};

}  // namespace tandem
