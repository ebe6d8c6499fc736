// What: SendSide: the prefill node's half of a Messenger: the decode nodes that have connected, and
//   their prompts, each a machine of handoff_state.h: jobs for the engine, pages written layer by
//   layer as the layer counter advances.
// Not here: the decode node's half (fetch_side.h), routing of events (messenger.cc).
// Threads: the messenger's owner.
// Invariants:
//   - Each page of a send is written once: with the chunk that fills its block, the last block with
//     the last chunk; not before the counter has passed its layer.
//   - `done`, `failed` and `stopped` are sent when no write is outstanding, and none is posted
//     after. A write that ended badly may still land, so it ends the peer's link: the fence is the
//     peer's.
//   - kSendDrained comes when no write is outstanding and the engine has ended the job.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "messenger/handoff_state.h"
#include "messenger/link_pulse.h"
#include "messenger/messenger_config.h"
#include "messenger/page_map.h"
#include "messenger/protocol.h"

namespace tandem {

class SendSide {
 public:
  SendSide(const MessengerConfig& config, const MessengerParts& parts, MessengerStats* stats,
           std::vector<HandoffEvent>* events);
  ~SendSide();
  // The errors of registering the pools.
  Status Start();

  void ChunkSubmitted(SendChunk chunk);
  void SendFailed(SendId id, const Status& status);

  bool Owns(LinkId link) const { return peers_.contains(link); }
  void OnLinkUp(const LinkUp& up);
  void OnFrame(LinkId link, std::string_view frame);
  void OnLinkDown(LinkId link);
  void OnTransferEnded(const TransferEnded& ended);
  void OnPeerChanged(const PeerChanged& changed);

  // As Messenger::Advance. `paused`: this process has not run for a while.
  TimeNs Advance(TimeNs now, bool paused);
  void AddGauges(MessengerStats* stats) const;

 private:
  struct Peer {
    std::string name;
    LinkPulse pulse;
    bool ready = false;
    TimeNs greeting_deadline = 0;
    std::optional<PeerId> fabric;  // its hello has come
    std::string fabric_address;
    std::map<HandoffId, SendId> sends;
    int32_t writes = 0;    // in flight
    bool blocked = false;  // the fabric takes no more until its next event
  };

  // The pages of one layer that one chunk completes.
  struct LayerWork {
    size_t group = 0;
    int32_t layer = 0;  // in the group
    int32_t model_layer = 0;
    size_t posted = 0;   // of the chunk's blocks in this group
    int32_t writes = 0;  // in flight
    LayerTiming timing;
  };
  struct PageBlock {
    int32_t ordinal = 0;  // in the sequence
    BlockId block;        // here
  };
  struct Chunk {
    StepId step;
    std::vector<std::vector<PageBlock>> blocks;  // per group: those that the chunk completes
    std::vector<LayerWork> layers;               // by model layer
    size_t cursor = 0;                           // first layer not posted entirely
    size_t complete = 0;                         // layers delivered
  };

  struct OpenSend {
    HandoffId handoff;
    LinkId peer;
    SendState state = SendState::kQueued;
    bool job_over = false;                 // the engine sends nothing more
    bool peer_gone = false;                // nobody is to be told
    std::optional<HandoffMessage> notice;  // kStopping: what the peer will be told
    Status status;                         // kStopping, kReleasing: what the engine will be told
    TimeNs deadline = 0;
    int32_t tokens = 0;
    PageMap map;
    std::vector<Prepare::Group> groups;  // where the pages go
    std::vector<Expectation> expectations;
    int32_t position = 0;             // up to here chunks have come
    std::vector<int32_t> next_block;  // per group: the first not in a chunk yet
    std::map<int32_t, Chunk> chunks;  // not delivered, by their number
    int32_t num_chunks = 0;
    int32_t pages = 0;   // delivered
    int32_t writes = 0;  // in flight
    TimeNs busy_since = 0;
    TimeNs busy = 0;      // time with a write in flight, but for the present one
    TimeNs computed = 0;  // the last layer of the last chunk was ready
    TimeNs hidden = 0;    // `busy` at that time
  };
  struct Transfer {
    SendId send;
    int32_t chunk = 0;
    size_t layer = 0;
    int32_t pages = 0;
    int64_t bytes = 0;
  };

  // send_peers.cc
  void OnHello(LinkId link, const Hello& hello);
  void OnPrepare(LinkId link, Prepare prepare);
  // What is wrong with a request that no node of this version makes.
  Status CheckPrepare(const Prepare& prepare, const PageMap& map) const;
  void OnCancel(LinkId link, const CancelHandoff& cancel);
  void Post(LinkId link, const HandoffMessage& message);
  // Ends the session: its sends stop.
  void LosePeer(LinkId link, const Status& status);
  TimeNs AdvancePeer(LinkId link, TimeNs now, bool paused);

  // send_side.cc
  void SetState(OpenSend* send, SendState state);
  void AddChunk(const SendChunk& chunk, OpenSend* send);
  // Posts what is ready and has room. Returns whether it waits for the layer counter.
  bool Pump(SendId id, TimeNs now);
  bool LayerReady(SendId id, Chunk* chunk, bool last, TimeNs now);
  // False when the fabric takes no more.
  bool PostWrite(SendId id, int32_t number, TimeNs now);
  void FinishIfDone(SendId id, TimeNs now);
  // Ends a send early; the peer is told `notice` when no write is outstanding, if there is one.
  void Stop(SendId id, std::optional<HandoffMessage> notice, const Status& status);
  void Stopped(SendId id);
  // The peer has been told, or is gone: over as soon as the engine has ended the job.
  void Release(SendId id, const Status& status);
  void Detach(const OpenSend& send);
  TimeNs AdvanceSend(SendId id, TimeNs now);

  const MessengerConfig& config_;
  const MessengerParts& parts_;
  MessengerStats* const stats_;
  std::vector<HandoffEvent>* const events_;

  std::vector<RegionId> regions_;  // per group
  std::map<LinkId, Peer> peers_;
  std::unordered_map<PeerId, LinkId> by_fabric_;
  std::map<SendId, OpenSend> sends_;  // in order: the oldest posts first
  std::unordered_map<TransferId, Transfer> transfers_;
  uint64_t last_send_ = 0;
};

}  // namespace tandem
