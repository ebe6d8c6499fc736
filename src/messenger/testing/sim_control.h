// What: SimControl: a ControlLink on a SimWorld: connections between nodes that keep the order of
//   frames, wait through partitions, break with a process, and refuse a wrong secret.
// Not here: time and faults (fabric/sim/sim_world.h).
// Threads: the world's owner.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/sim/sim_world.h"
#include "messenger/control_link.h"

namespace tandem::testing {

class SimControl;

// Who listens where.
class SimControlNet {
 public:
  explicit SimControlNet(SimWorld* world) : world_(world) {}

 private:
  friend class SimControl;
  SimWorld* const world_;
  std::map<uint64_t, SimControl*> ends_;  // by number: alive
  uint64_t last_end_ = 0;
};

class SimControl final : public ControlLink {
 public:
  static constexpr size_t kQueuedFrames = 64;  // in one direction, until Send refuses
  static constexpr size_t kInboxFrames = 64;   // not polled yet; then the sender waits

  SimControl(SimControlNet* net, SimNodeId node, std::string secret)
      : net_(net), number_(++net->last_end_), node_(node), secret_(std::move(secret)) {
    net_->ends_.emplace(number_, this);
  }
  // The process dies: whoever is connected hears of it.
  ~SimControl() override {
    net_->ends_.erase(number_);
    for (const auto& [id, link] : links_) TellDown(net_, node_, link);
  }

  static std::string AddressOf(SimNodeId node) { return std::to_string(node.value()) + ":1"; }

  Result<LinkId> Connect(std::string_view address) override {
    const size_t colon = address.find(':');
    if (colon == std::string_view::npos) {
      return InvalidArgumentError("'{}' is not HOST:PORT", address);
    }
    const LinkId id(++last_link_);
    Link& link = links_[id];
    link.node = SimNodeId(std::stoi(std::string(address.substr(0, colon))));
    TryConnect(id, world().now() + 300 * kNsPerMs);
    return id;
  }

  Status Send(LinkId id, std::string_view frame) override {
    const auto it = links_.find(id);
    if (it == links_.end() || !it->second.up) return OkStatus();
    Link& link = it->second;
    TANDEM_CHECK_LE(frame.size(), kMaxFrameBytes);
    if (link.outgoing->size() >= kQueuedFrames) {
      return ResourceExhaustedError("the peer reads too slowly");
    }
    link.outgoing->push_back(std::string(frame));
    if (link.outgoing->size() == 1) Pump(net_, node_, link);
    return OkStatus();
  }

  void Close(LinkId id) override {
    const auto it = links_.find(id);
    if (it == links_.end()) return;
    const Link link = it->second;
    links_.erase(it);
    TellDown(net_, node_, link);
  }

  bool Poll(std::vector<LinkEvent>* events) override {
    bool any = false;
    for (auto& [link, event] : events_) {
      if (link != LinkId() && !links_.contains(link) && !std::holds_alternative<LinkDown>(event)) {
        continue;  // closed before it was polled
      }
      if (closed_after_event(link, event)) continue;
      events->push_back(std::move(event));
      any = true;
    }
    events_.clear();
    return any;
  }
  void SetWake(std::function<void()> wake) override { wake_ = std::move(wake); }

 private:
  struct Link {
    SimNodeId node;    // of the other end
    uint64_t end = 0;  // its number, when known
    LinkId there;      // its id for the link
    bool up = false;
    // The direction away from here; shared, as frames outlive a process that has sent them.
    std::shared_ptr<std::deque<std::string>> outgoing = std::make_shared<std::deque<std::string>>();
  };

  SimWorld& world() const { return *net_->world_; }
  bool closed_after_event(LinkId link, const LinkEvent& event) {
    if (!std::holds_alternative<LinkDown>(event)) return false;
    return links_.erase(link) == 0;  // Close came first
  }
  void Emit(LinkId link, LinkEvent event) {
    events_.emplace_back(link, std::move(event));
    if (wake_) wake_();
  }
  static SimControl* Find(SimControlNet* net, uint64_t number) {
    const auto it = net->ends_.find(number);
    return it == net->ends_.end() ? nullptr : it->second;
  }
  static SimControl* At(SimControlNet* net, SimNodeId node) {
    for (const auto& [number, end] : net->ends_) {
      if (end->node_ == node) return end;
    }
    return nullptr;
  }

  void Fail(LinkId id, const Status& status) { Emit(id, LinkDown{id, status}); }

  void TryConnect(LinkId id, TimeNs give_up) {
    SimControlNet* const net = net_;
    const uint64_t self = number_;
    const SimNodeId to = links_.at(id).node;
    const bool sent = world().Deliver(node_, to, [net, self, id] {
      SimControl* const here = Find(net, self);
      if (here == nullptr || !here->links_.contains(id)) return;
      const SimNodeId node = here->links_.at(id).node;
      if (At(net, node) == nullptr) return here->Fail(id, UnavailableError("refused"));
      // A stopped process takes no connection: the connector waits.
      net->world_->WhenRunning(node, [net, self, id, node] {
        SimControl* const connector = Find(net, self);
        SimControl* const listener = At(net, node);
        if (connector == nullptr || listener == nullptr) return;
        if (connector->links_.contains(id)) Accept(connector, id, listener);
      });
    });
    if (sent) {
      world().At(world().now() + kNsPerS, [net, self, id] {
        SimControl* const here = Find(net, self);
        if (here == nullptr || !here->links_.contains(id) || here->links_.at(id).up) return;
        here->Fail(id, UnavailableError("no answer"));
      });
      return;
    }
    world().At(world().now() + 10 * kNsPerMs, [net, self, id, give_up] {
      SimControl* const here = Find(net, self);
      if (here == nullptr || !here->links_.contains(id)) return;
      if (here->world().now() >= give_up) return here->Fail(id, UnavailableError("no route"));
      here->TryConnect(id, give_up);
    });
  }

  static void Accept(SimControl* connector, LinkId id, SimControl* listener) {
    if (connector->secret_ != listener->secret_) {
      return connector->Fail(id, FailedPreconditionError("it does not know the secret"));
    }
    const LinkId there(++listener->last_link_);
    Link& out = connector->links_.at(id);
    out.end = listener->number_;
    out.there = there;
    out.up = true;
    Link in;
    in.node = connector->node_;
    in.end = connector->number_;
    in.there = id;
    in.up = true;
    listener->links_.emplace(there, in);
    connector->Emit(id, LinkUp{id, false, AddressOf(listener->node_)});
    listener->Emit(there, LinkUp{there, true, AddressOf(connector->node_)});
  }

  // Moves the first frame of a direction, again and again until it has arrived.
  static void Pump(SimControlNet* net, SimNodeId from, const Link& link) {
    auto deliver = [net, from, link] {
      SimControl* const there = Find(net, link.end);
      if (there == nullptr || !there->links_.contains(link.there)) return link.outgoing->clear();
      if (there->events_.size() >= kInboxFrames) return Later(net, from, link);
      there->Emit(link.there, FrameReceived{link.there, std::move(link.outgoing->front())});
      link.outgoing->pop_front();
      if (!link.outgoing->empty()) Pump(net, from, link);
    };
    if (!net->world_->Deliver(from, link.node, deliver)) Later(net, from, link);
  }
  static void Later(SimControlNet* net, SimNodeId from, const Link& link) {
    net->world_->At(net->world_->now() + net->world_->faults().resend_after,
                    [net, from, link] { Pump(net, from, link); });
  }

  // The other end hears that the link is down, after the frames that were on their way.
  static void TellDown(SimControlNet* net, SimNodeId from, const Link& link) {
    if (!link.up) return;
    auto tell = [net, from, link] {
      SimControl* const there = Find(net, link.end);
      if (there == nullptr || !there->links_.contains(link.there)) return;
      if (!link.outgoing->empty()) return DownLater(net, from, link);
      Link& theirs = there->links_.at(link.there);
      if (!theirs.up) return;
      theirs.up = false;
      theirs.outgoing->clear();
      there->Fail(link.there, UnavailableError("the connection broke"));
    };
    if (!net->world_->Deliver(from, link.node, tell)) DownLater(net, from, link);
  }
  static void DownLater(SimControlNet* net, SimNodeId from, const Link& link) {
    net->world_->At(net->world_->now() + net->world_->faults().resend_after,
                    [net, from, link] { TellDown(net, from, link); });
  }

  SimControlNet* const net_;
  const uint64_t number_;
  const SimNodeId node_;
  const std::string secret_;
  std::function<void()> wake_;
  std::map<LinkId, Link> links_;
  std::vector<std::pair<LinkId, LinkEvent>> events_;
  uint64_t last_link_ = 0;
};

}  // namespace tandem::testing
