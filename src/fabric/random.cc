#include "fabric/random.h"

#include <sys/random.h>

#include "base/check.h"

namespace tandem {

uint64_t SecretUint64() {
  uint64_t value = 0;
  while (value == 0) {
    TANDEM_CHECK_EQ(getrandom(&value, sizeof(value), 0), static_cast<ssize_t>(sizeof(value)));
  }
  return value;
}

}  // namespace tandem
