#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kv/testing/random_driver.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::testing::RandomDriver({data, std::min<size_t>(size, 4096)}).Run(/*check_every=*/1);
  return 0;
}
