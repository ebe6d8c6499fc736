// What: Messenger: moves the state of prompts from prefill nodes to decode nodes. A state machine
//   with a clock that is given to it: inputs are the engine's orders, frames and fabric events;
//   outputs are frames, writes, jobs, and events for the engine.
// Not here: threads, and whether control and fabric are real (cli/, messenger_host.h); each side's
//   machine (fetch_side.h, send_side.h); the seam to the engine (core/handoff_port.h).
// Threads: one owner calls everything. A turn of its loop: hand over all orders, HandleControl and
//   HandleFabric for all that has been polled, then Advance.
// Invariants: those of HandoffPort, whatever peers and networks do. A peer's frames can end its own
//   link and hand-offs, nothing else.
// Cost: a turn is linear in what it is given and in open fetches, sends and peers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/handoff_port.h"
#include "messenger/messenger_config.h"

namespace tandem {

class FetchSide;
class SendSide;

class Messenger final : public HandoffPort {
 public:
  // INVALID_ARGUMENT for a format or a configuration that makes no sense; the errors of registering
  // the memory. What `parts` points to outlives the messenger.
  static Result<std::unique_ptr<Messenger>> Create(MessengerConfig config, MessengerParts parts);
  // Closes all links and regions: nothing is written into this node's memory any more.
  ~Messenger() override;

  // Prefill nodes by their control address; they join and leave at any time. A node that leaves
  // gets no new fetch and keeps those it has. Adding one twice, or removing an unknown one, does
  // nothing. INVALID_ARGUMENT for what is no address. Requires config.decode.
  Status AddPrefillNode(std::string_view address);
  void RemovePrefillNode(std::string_view address);

  // HandoffPort. Fetch and CancelFetch require config.decode, the others config.prefill.
  void Fetch(FetchOrder order) override;
  void CancelFetch(FetchId id) override;
  void ChunkSubmitted(SendChunk chunk) override;
  void SendFailed(SendId id, const Status& status) override;

  void HandleControl(LinkEvent event);
  void HandleFabric(FabricEvent event);
  // Does what is due. Returns when it is to be called again at the latest, if nothing else happens;
  // while a layer is awaited that is soon (layer_poll).
  TimeNs Advance();

  // Appends what the engine has to know, in order. Returns whether anything was appended.
  bool TakeEvents(std::vector<HandoffEvent>* events);

  MessengerStats stats() const;

 private:
  Messenger(MessengerConfig config, MessengerParts parts);

  const MessengerConfig config_;
  const MessengerParts parts_;
  MessengerStats stats_;
  std::vector<HandoffEvent> events_;
  TimeNs last_advance_ = 0;
  std::unique_ptr<FetchSide> fetch_;  // with config.decode
  std::unique_ptr<SendSide> send_;    // with config.prefill
};

}  // namespace tandem
