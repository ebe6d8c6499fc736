#include "fabric/transfer_engine.h"

namespace tandem {

std::string_view NameOf(PeerState state) {
  switch (state) {
    case PeerState::kConnecting: return "connecting";
    case PeerState::kUp: return "up";
    case PeerState::kDead: return "dead";
  }
  return "?";
}

}  // namespace tandem
