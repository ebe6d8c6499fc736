#include "core/request.h"

namespace tandem {

std::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kFailed: return "failed";
  }
  return "unknown";
}

}  // namespace tandem
