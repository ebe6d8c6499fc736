#include "messenger/messenger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "messenger/fetch_side.h"
#include "messenger/send_side.h"

namespace tandem {
namespace {

Status CheckConfig(const MessengerConfig& config, const MessengerParts& parts) {
  TANDEM_RETURN_IF_ERROR(config.format.Validate());
  const std::vector<StateGroup>& groups = config.format.groups;
  if (parts.pools.size() != groups.size()) {
    return InvalidArgumentError("memory of {} state groups for {}", parts.pools.size(),
                                groups.size());
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    if (parts.pools[g].size() % static_cast<size_t>(groups[g].BlockBytes()) != 0) {
      return InvalidArgumentError("memory of {} bytes for blocks of {}", parts.pools[g].size(),
                                  groups[g].BlockBytes());
    }
    if (groups[g].PageBytes() > int64_t{std::numeric_limits<uint32_t>::max()}) {
      return InvalidArgumentError("pages of {} bytes", groups[g].PageBytes());
    }
  }
  for (const TimeNs time :
       {config.heartbeat_interval, config.greeting_timeout, config.progress_timeout,
        config.fetch_timeout, config.stop_timeout, config.write_timeout, config.reconnect_first,
        config.reconnect_most, config.reconnect_refused, config.layer_poll}) {
    if (time <= 0) return InvalidArgumentError("every time of the hand-off must be positive");
  }
  if (config.heartbeat_misses <= 0 || config.pages_per_write <= 0 || config.writes_in_flight <= 0 ||
      config.sends_per_peer <= 0 || config.decode_peers <= 0) {
    return InvalidArgumentError("every limit of the hand-off must be positive");
  }
  return OkStatus();
}

}  // namespace

Messenger::Messenger(MessengerConfig config, MessengerParts parts)
    : config_(std::move(config)), parts_(std::move(parts)) {}

Messenger::~Messenger() = default;

Result<std::unique_ptr<Messenger>> Messenger::Create(MessengerConfig config, MessengerParts parts) {
  TANDEM_CHECK(parts.control != nullptr && parts.fabric != nullptr && parts.clock != nullptr);
  TANDEM_CHECK(!config.prefill || (parts.jobs != nullptr && parts.layers != nullptr));
  TANDEM_RETURN_IF_ERROR(CheckConfig(config, parts));
  std::unique_ptr<Messenger> messenger(new Messenger(std::move(config), std::move(parts)));
  Messenger& m = *messenger;
  m.last_advance_ = m.parts_.clock->Now();
  if (m.config_.decode) {
    m.fetch_ = std::make_unique<FetchSide>(m.config_, m.parts_, &m.stats_, &m.events_);
  }
  if (m.config_.prefill) {
    m.send_ = std::make_unique<SendSide>(m.config_, m.parts_, &m.stats_, &m.events_);
    TANDEM_RETURN_IF_ERROR(m.send_->Start());
  }
  return messenger;
}

Status Messenger::AddPrefillNode(std::string_view address) {
  TANDEM_CHECK(fetch_ != nullptr);
  return fetch_->AddNode(address);
}

void Messenger::RemovePrefillNode(std::string_view address) {
  TANDEM_CHECK(fetch_ != nullptr);
  fetch_->RemoveNode(address);
}

void Messenger::Fetch(FetchOrder order) {
  TANDEM_CHECK(fetch_ != nullptr);
  fetch_->Fetch(std::move(order));
}

void Messenger::CancelFetch(FetchId id) {
  TANDEM_CHECK(fetch_ != nullptr);
  fetch_->Cancel(id);
}

void Messenger::ChunkSubmitted(SendChunk chunk) {
  TANDEM_CHECK(send_ != nullptr);
  send_->ChunkSubmitted(std::move(chunk));
}

void Messenger::SendFailed(SendId id, const Status& status) {
  TANDEM_CHECK(send_ != nullptr);
  send_->SendFailed(id, status);
}

void Messenger::HandleControl(LinkEvent event) {
  if (const auto* up = std::get_if<LinkUp>(&event)) {
    if (fetch_ != nullptr && fetch_->Owns(up->link)) {
      fetch_->OnLinkUp(*up);
    } else if (send_ != nullptr && up->inbound) {
      send_->OnLinkUp(*up);
    } else {  // closed meanwhile, or nobody is expected to connect
      parts_.control->Close(up->link);
    }
  } else if (const auto* frame = std::get_if<FrameReceived>(&event)) {
    if (fetch_ != nullptr && fetch_->Owns(frame->link)) {
      fetch_->OnFrame(frame->link, frame->frame);
    } else if (send_ != nullptr && send_->Owns(frame->link)) {
      send_->OnFrame(frame->link, frame->frame);
    }
  } else if (const auto* down = std::get_if<LinkDown>(&event)) {
    if (fetch_ != nullptr && fetch_->Owns(down->link)) {
      fetch_->OnLinkDown(down->link, down->status);
    } else if (send_ != nullptr && send_->Owns(down->link)) {
      send_->OnLinkDown(down->link);
    }
  }
}

void Messenger::HandleFabric(FabricEvent event) {
  if (const auto* transfer = std::get_if<TransferEnded>(&event)) {
    if (send_ != nullptr) send_->OnTransferEnded(*transfer);
  } else if (const auto* expectation = std::get_if<ExpectationEnded>(&event)) {
    if (fetch_ != nullptr) fetch_->OnExpectationEnded(*expectation);
  } else if (const auto* peer = std::get_if<PeerChanged>(&event)) {
    if (send_ != nullptr) send_->OnPeerChanged(*peer);
  }
  // Messages are not part of the protocol: it goes over control links.
}

TimeNs Messenger::Advance() {
  const TimeNs now = parts_.clock->Now();
  const bool paused = now - last_advance_ > config_.heartbeat_interval * 3 / 2;
  last_advance_ = now;
  TimeNs next = std::numeric_limits<TimeNs>::max();
  if (fetch_ != nullptr) next = std::min(next, fetch_->Advance(now, paused));
  if (send_ != nullptr) next = std::min(next, send_->Advance(now, paused));
  return next;
}

bool Messenger::TakeEvents(std::vector<HandoffEvent>* events) {
  if (events_.empty()) return false;
  events->insert(events->end(), std::make_move_iterator(events_.begin()),
                 std::make_move_iterator(events_.end()));
  events_.clear();
  return true;
}

MessengerStats Messenger::stats() const {
  MessengerStats stats = stats_;
  if (fetch_ != nullptr) fetch_->AddGauges(&stats);
  if (send_ != nullptr) send_->AddGauges(&stats);
  stats.fabric = parts_.fabric->stats();
  return stats;
}

}  // namespace tandem
