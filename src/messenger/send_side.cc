#include "messenger/send_side.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem {
namespace {

constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

}  // namespace

SendSide::SendSide(const MessengerConfig& config, const MessengerParts& parts,
                   MessengerStats* stats, std::vector<HandoffEvent>* events)
    : config_(config), parts_(parts), stats_(stats), events_(events) {}

SendSide::~SendSide() {
  for (const auto& [link, peer] : peers_) {
    parts_.control->Close(link);
    if (peer.fabric) parts_.fabric->RemovePeer(*peer.fabric);
  }
  for (const RegionId region : regions_) parts_.fabric->CloseRegion(region);
}

Status SendSide::Start() {
  for (const std::span<std::byte> pool : parts_.pools) {
    auto region = parts_.fabric->RegisterLocal(pool);
    if (!region.ok()) return region.status().WithContext("registering the state's memory");
    regions_.push_back(*region);
  }
  return OkStatus();
}

void SendSide::SetState(OpenSend* send, SendState state) {
  TANDEM_CHECK(CanMove(send->state, state));
  send->state = state;
}

// ---------------------------------------------------------------- orders of the engine

void SendSide::ChunkSubmitted(SendChunk chunk) {
  const auto it = sends_.find(chunk.id);
  if (it == sends_.end()) return;
  OpenSend& send = it->second;
  TANDEM_CHECK_EQ(chunk.begin, send.position);
  TANDEM_CHECK(chunk.end > chunk.begin && chunk.end <= send.tokens);
  send.position = chunk.end;
  send.job_over = chunk.end == send.tokens;
  if (send.state == SendState::kReleasing && send.job_over) return Release(chunk.id, send.status);
  if (send.state != SendState::kQueued && send.state != SendState::kSending) return;
  if (send.state == SendState::kQueued) SetState(&send, SendState::kSending);
  ++stats_->chunks;
  AddChunk(chunk, &send);
  Post(send.peer, ProgressMade{send.handoff, chunk.end});
}

void SendSide::AddChunk(const SendChunk& chunk, OpenSend* send) {
  const std::vector<StateGroup>& groups = config_.format.groups;
  TANDEM_CHECK_EQ(chunk.blocks.size(), groups.size());
  Chunk out{.step = chunk.step};
  for (size_t g = 0; g < groups.size(); ++g) {
    const int32_t per_block = groups[g].tokens_per_block;
    const auto end = static_cast<int32_t>(groups[g].BlocksFor(chunk.end));  // of the list
    const int32_t complete = send->job_over ? end : chunk.end / per_block;
    const int32_t from = std::max(send->next_block[g], send->map.group(g).first_block);
    const auto listed = static_cast<int32_t>(chunk.blocks[g].size());
    std::vector<PageBlock> blocks;
    for (int32_t ordinal = from; ordinal < complete; ++ordinal) {
      const int32_t entry = ordinal - (end - listed);
      TANDEM_CHECK(entry >= 0);  // the engine lists all that a later token reads
      blocks.push_back({ordinal, chunk.blocks[g][static_cast<size_t>(entry)]});
    }
    send->next_block[g] = std::max(send->next_block[g], complete);
    for (size_t l = 0; l < groups[g].layers.size() && !blocks.empty(); ++l) {
      LayerWork work{
          .group = g, .layer = static_cast<int32_t>(l), .model_layer = groups[g].layers[l]};
      work.timing = {.send = chunk.id,
                     .step = chunk.step,
                     .layer = work.model_layer,
                     .pages = static_cast<int32_t>(blocks.size()),
                     .bytes = static_cast<int64_t>(blocks.size()) * groups[g].PageBytes()};
      out.layers.push_back(work);
    }
    out.blocks.push_back(std::move(blocks));
  }
  std::stable_sort(out.layers.begin(), out.layers.end(),
                   [](const auto& a, const auto& b) { return a.model_layer < b.model_layer; });
  const int32_t number = send->num_chunks++;
  if (!out.layers.empty()) send->chunks.emplace(number, std::move(out));
}

void SendSide::SendFailed(SendId id, const Status& status) {
  const auto it = sends_.find(id);
  if (it == sends_.end()) return;
  OpenSend& send = it->second;
  send.job_over = true;  // it may have been: the step of the last chunk can fail too
  switch (send.state) {
    case SendState::kQueued:
    case SendState::kSending:
      ++stats_->sends_failed;
      return Stop(id, Failed{send.handoff, status.code(), status.message()}, status);
    case SendState::kReleasing: return Release(id, send.status);
    case SendState::kStopping:
    case SendState::kOver: return;
  }
}

// ---------------------------------------------------------------- writes

bool SendSide::LayerReady(SendId id, Chunk* chunk, bool last, TimeNs now) {
  LayerWork& work = chunk->layers[chunk->cursor];
  if (work.timing.ready != 0) return true;
  const bool ready =
      chunk->step == StepId(0) || parts_.layers->Reached(chunk->step, work.model_layer);
  if (!ready) return false;
  work.timing.ready = now;
  if (last && chunk->cursor + 1 == chunk->layers.size()) {
    OpenSend& send = sends_.at(id);
    send.computed = now;
    send.hidden = send.busy + (send.writes > 0 ? now - send.busy_since : 0);
  }
  return true;
}

bool SendSide::Pump(SendId id, TimeNs now) {
  OpenSend& send = sends_.at(id);
  if (send.state != SendState::kSending) return false;
  const LinkId link = send.peer;
  for (auto& [number, chunk] : send.chunks) {
    while (chunk.cursor < chunk.layers.size()) {
      const bool last = send.job_over && number + 1 == send.num_chunks;
      if (!LayerReady(id, &chunk, last, now)) return true;
      const Peer& peer = peers_.at(link);
      if (peer.blocked || peer.writes >= config_.writes_in_flight) return false;
      if (!PostWrite(id, number, now)) return false;
    }
  }
  return false;
}

bool SendSide::PostWrite(SendId id, int32_t number, TimeNs now) {
  OpenSend& send = sends_.at(id);
  Peer& peer = peers_.at(send.peer);
  Chunk& chunk = send.chunks.at(number);
  LayerWork& work = chunk.layers[chunk.cursor];
  const StateGroup& group = config_.format.groups[work.group];
  const std::vector<PageBlock>& blocks = chunk.blocks[work.group];
  const size_t count =
      std::min(blocks.size() - work.posted, static_cast<size_t>(config_.pages_per_write));
  const auto page_bytes = static_cast<uint32_t>(group.PageBytes());
  const Prepare::Group& there = send.groups[work.group];
  std::vector<WritePiece> pieces;
  pieces.reserve(count);
  for (size_t i = work.posted; i < work.posted + count; ++i) {
    const int32_t ordinal = blocks[i].ordinal;
    const int32_t page = send.map.PageOf(work.group, ordinal, work.layer);
    const auto index = static_cast<size_t>(ordinal - send.map.group(work.group).first_block);
    pieces.push_back({.local_offset = PageOffset(group, blocks[i].block, work.layer),
                      .remote_offset = PageOffset(group, there.blocks[index], work.layer),
                      .bytes = page_bytes,
                      .immediate = PageMap::ImmediateOf(send.expectations, page)});
  }
  auto transfer = parts_.fabric->Write(*peer.fabric, regions_[work.group], there.region, pieces,
                                       now + config_.write_timeout);
  if (!transfer.ok()) {
    if (transfer.status().code() == StatusCode::kResourceExhausted) {
      peer.blocked = true;
    } else {  // nothing of it was posted, but the peer gave what cannot be written to
      LosePeer(send.peer, transfer.status());
    }
    return false;
  }
  transfers_.emplace(*transfer, Transfer{.send = id,
                                         .chunk = number,
                                         .layer = chunk.cursor,
                                         .pages = static_cast<int32_t>(count),
                                         .bytes = static_cast<int64_t>(count) * page_bytes});
  ++stats_->writes;
  ++peer.writes;
  ++work.writes;
  if (send.writes++ == 0) send.busy_since = now;
  if (work.posted == 0) work.timing.first_post = now;
  work.posted += count;
  if (work.posted == blocks.size()) ++chunk.cursor;
  return true;
}

void SendSide::OnTransferEnded(const TransferEnded& ended) {
  for (auto& [link, peer] : peers_) peer.blocked = false;
  const auto it = transfers_.find(ended.transfer);
  if (it == transfers_.end()) return;
  const Transfer transfer = it->second;
  transfers_.erase(it);
  const TimeNs now = parts_.clock->Now();
  OpenSend& send = sends_.at(transfer.send);
  if (--send.writes == 0) send.busy += now - send.busy_since;
  if (!send.peer_gone) --peers_.at(send.peer).writes;

  const bool cancelled =
      send.state == SendState::kStopping && ended.status.code() == StatusCode::kCancelled;
  if (!ended.status.ok() && !cancelled && !send.peer_gone) {
    // It may still land, so the peer has to close its region; the send stops on the way.
    LosePeer(send.peer, ended.status);
    const auto left = sends_.find(transfer.send);
    const bool last = left != sends_.end() && left->second.state == SendState::kStopping &&
                      left->second.writes == 0;
    if (last) Stopped(transfer.send);  // it was stopping already, and waited for this one alone
    return;
  }
  if (ended.status.ok()) {
    stats_->pages_written += transfer.pages;
    stats_->bytes_written += transfer.bytes;
    send.pages += transfer.pages;
    if (send.state == SendState::kSending) {
      Chunk& chunk = send.chunks.at(transfer.chunk);
      LayerWork& work = chunk.layers[transfer.layer];
      if (--work.writes == 0 && work.posted == chunk.blocks[work.group].size()) {
        work.timing.last_done = now;
        if (parts_.on_layer) parts_.on_layer(work.timing);
        if (++chunk.complete == chunk.layers.size()) send.chunks.erase(transfer.chunk);
      }
    }
  }
  if (send.state == SendState::kStopping && send.writes == 0) return Stopped(transfer.send);
  FinishIfDone(transfer.send, now);
}

void SendSide::FinishIfDone(SendId id, TimeNs now) {
  OpenSend& send = sends_.at(id);
  if (send.state != SendState::kSending || !send.job_over || !send.chunks.empty()) return;
  TANDEM_CHECK_EQ(send.pages, send.map.pages());
  ++stats_->sends_done;
  stats_->hidden_ns += send.hidden;
  stats_->visible_ns += now - send.computed;
  const LinkId link = send.peer;
  const Done done{send.handoff, send.num_chunks, send.pages};
  Detach(send);
  Release(id, OkStatus());
  Post(link, done);
}

// ---------------------------------------------------------------- ends

void SendSide::Stop(SendId id, std::optional<HandoffMessage> notice, const Status& status) {
  OpenSend& send = sends_.at(id);
  send.notice = std::move(notice);
  send.status = status;
  if (!send.job_over) parts_.jobs->Cancel(id);
  if (send.writes == 0) return Stopped(id);
  SetState(&send, SendState::kStopping);
  if (send.peer_gone) return;  // its transfers are ended with it
  std::vector<TransferId> open;
  for (const auto& [transfer, what] : transfers_) {
    if (what.send == id) open.push_back(transfer);
  }
  std::sort(open.begin(), open.end());
  for (const TransferId transfer : open) parts_.fabric->Cancel(transfer);
}

void SendSide::Stopped(SendId id) {
  OpenSend& send = sends_.at(id);
  const LinkId link = send.peer;
  const bool tell = send.notice.has_value() && !send.peer_gone;
  const HandoffMessage notice = send.notice.value_or(Heartbeat{});
  Detach(send);
  Release(id, send.status);
  if (tell) Post(link, notice);
}

void SendSide::Detach(const OpenSend& send) {
  const auto peer = peers_.find(send.peer);
  if (peer != peers_.end()) peer->second.sends.erase(send.handoff);
}

void SendSide::Release(SendId id, const Status& status) {
  OpenSend& send = sends_.at(id);
  if (!send.job_over) {
    send.peer_gone = true;  // it has heard the last of it
    send.status = status;
    return SetState(&send, SendState::kReleasing);
  }
  SetState(&send, SendState::kOver);
  const Status copy = status;  // may be the send's own
  sends_.erase(id);
  events_->push_back({.kind = HandoffEvent::Kind::kSendDrained, .send = id, .status = copy});
}

TimeNs SendSide::AdvanceSend(SendId id, TimeNs now) {
  const OpenSend& send = sends_.at(id);
  if (send.state != SendState::kQueued && send.state != SendState::kSending) return kNever;
  if (now >= send.deadline) {
    ++stats_->sends_failed;
    const Status late = UnavailableError("the prompt was not computed in time");
    Stop(id, Failed{send.handoff, late.code(), late.message()}, late);
    return now;
  }
  const bool awaits_layer = Pump(id, now);
  if (!sends_.contains(id)) return now;
  return awaits_layer ? std::min(send.deadline, now + config_.layer_poll) : send.deadline;
}

TimeNs SendSide::Advance(TimeNs now, bool paused) {
  TimeNs next = kNever;
  std::vector<LinkId> links;
  for (const auto& [link, peer] : peers_) links.push_back(link);
  for (const LinkId link : links) {
    if (peers_.contains(link)) next = std::min(next, AdvancePeer(link, now, paused));
  }
  std::vector<SendId> sends;
  for (const auto& [id, send] : sends_) sends.push_back(id);
  for (const SendId id : sends) {
    if (sends_.contains(id)) next = std::min(next, AdvanceSend(id, now));
  }
  return next;
}

void SendSide::AddGauges(MessengerStats* stats) const {
  stats->sends_now = static_cast<int32_t>(sends_.size());
  stats->decode_peers_now = static_cast<int32_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return p.second.ready; }));
}

}  // namespace tandem
