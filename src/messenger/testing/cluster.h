// What: Cluster: prefill and decode nodes of the hand-off's tests on one simulated network: each
//   node a process with a Messenger, simulated fabric and control, and a fake engine.
// Not here: what happens to them (the tests).
// Threads: the world's owner.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/sim/sim_engine.h"
#include "fabric/sim/sim_world.h"
#include "messenger/messenger.h"
#include "messenger/testing/fake_decoder.h"
#include "messenger/testing/fake_prefiller.h"
#include "messenger/testing/node_options.h"
#include "messenger/testing/sim_control.h"

namespace tandem::testing {

class Cluster;

// One process.
class NodeProcess {
 public:
  NodeProcess(Cluster* cluster, SimNodeId node, const NodeOptions& options);
  // As a kill: connections break, memory is gone.
  ~NodeProcess() = default;

  Messenger& messenger() { return *messenger_; }
  FakePrefiller& prefiller() { return *prefiller_; }
  FakeDecoder* decoder() { return decoder_.get(); }
  SimEngine& fabric() { return *fabric_; }
  bool is_prefill() const { return options_.config.prefill; }

  void Wake();
  void SetTurnMost(TimeNs most) { options_.turn_most = most; }
  void CheckIdle();

 private:
  void TurnAt(TimeNs when);
  void Turn();

  Cluster* const cluster_;
  const SimNodeId node_;
  NodeOptions options_;
  // Destroyed in the opposite order: the messenger first.
  std::unique_ptr<FakePrefiller> prefiller_;
  std::unique_ptr<FakeDecoder> decoder_;
  std::unique_ptr<SimEngine> fabric_;
  std::unique_ptr<SimControl> control_;
  std::unique_ptr<Messenger> messenger_;
  TimeNs next_turn_ = -1;  // -1: none is coming
  uint64_t turn_ = 0;
};

class Cluster {
 public:
  explicit Cluster(uint64_t seed, const SimFaults& faults = {})
      : world(seed, faults), fabric(&world), control(&world) {
    fabric.SetWriteHook([this](SimNodeId node, std::span<const std::byte> memory,
                               std::span<const std::byte> bytes) {
      NodeProcess* const process = At(node);
      if (process != nullptr && process->decoder() != nullptr) {
        process->decoder()->CheckLanding(memory, bytes);
      }
    });
  }

  SimNodeId Add(const NodeOptions& options) {
    const SimNodeId node = world.AddNode();
    options_.push_back(options);
    processes_.push_back(nullptr);
    Begin(node);
    return node;
  }
  // A node of the world that is no process of ours keeps its number.
  void Reserve(SimNodeId node) {
    TANDEM_CHECK_EQ(node.value(), size());
    options_.emplace_back();
    processes_.push_back(nullptr);
  }
  void Kill(SimNodeId node) {
    world.Kill(node);
    Retire(node);
  }
  void Restart(SimNodeId node) {
    world.Restart(node);
    Begin(node);
  }
  NodeProcess* At(SimNodeId node) { return processes_[Index(node)].get(); }
  NodeOptions& options(SimNodeId node) { return options_[Index(node)]; }
  int32_t size() const { return static_cast<int32_t>(processes_.size()); }

  // Of all decoders of the test, those of dead processes too.
  FakeDecoder::Counts Counts() {
    FakeDecoder::Counts sum = dead_counts_;
    for (const auto& process : processes_) {
      if (process != nullptr && process->decoder() != nullptr) {
        Sum(process->decoder()->counts(), &sum);
      }
    }
    return sum;
  }
  bool idle() {
    return std::all_of(processes_.begin(), processes_.end(), [](const auto& process) {
      if (process == nullptr) return true;
      const MessengerStats stats = process->messenger().stats();
      const bool decoder = process->decoder() == nullptr || process->decoder()->idle();
      const bool prefiller = !process->is_prefill() || process->prefiller().jobs() == 0;
      return decoder && prefiller && stats.fetches_now == 0 && stats.sends_now == 0;
    });
  }
  void CheckIdle() {
    for (const auto& process : processes_) {
      if (process != nullptr) process->CheckIdle();
    }
  }

  SimWorld world;
  SimFabric fabric;
  SimControlNet control;

 private:
  static size_t Index(SimNodeId node) { return static_cast<size_t>(node.value()); }
  static void Sum(const FakeDecoder::Counts& from, FakeDecoder::Counts* to) {
    to->arrived += from.arrived;
    to->failed += from.failed;
    to->cancelled += from.cancelled;
    to->local += from.local;
    to->finished += from.finished;
  }
  void Begin(SimNodeId node) {
    processes_[Index(node)] = std::make_unique<NodeProcess>(this, node, options_[Index(node)]);
    processes_[Index(node)]->Wake();
  }
  void Retire(SimNodeId node) {
    std::unique_ptr<NodeProcess> process = std::move(processes_[Index(node)]);
    if (process->decoder() != nullptr) Sum(process->decoder()->counts(), &dead_counts_);
  }

  std::vector<NodeOptions> options_;
  std::vector<std::unique_ptr<NodeProcess>> processes_;
  FakeDecoder::Counts dead_counts_;
};

inline NodeProcess::NodeProcess(Cluster* cluster, SimNodeId node, const NodeOptions& options)
    : cluster_(cluster), node_(node), options_(options) {
  SimWorld* const world = &cluster->world;
  options_.config.instance = world->random().Next();
  if (options_.config.prefill) {
    prefiller_ = std::make_unique<FakePrefiller>(world, node, options.prefill);
  }
  if (options_.config.decode) {
    decoder_ = std::make_unique<FakeDecoder>(world, node, options.decode);
  }
  fabric_ = cluster->fabric.MakeEngine(node, options.limits);
  control_ = std::make_unique<SimControl>(&cluster->control, node, options.secret);
  MessengerParts parts{
      .control = control_.get(), .fabric = fabric_.get(), .clock = &world->clock()};
  parts.pools = decoder_ ? decoder_->pools().Memory() : prefiller_->pools().Memory();
  if (prefiller_) {
    parts.jobs = prefiller_.get();
    parts.layers = &prefiller_->layers();
    parts.on_layer = options.on_layer;
  }
  auto messenger = Messenger::Create(options_.config, std::move(parts));
  TANDEM_CHECK(messenger.ok());
  messenger_ = std::move(*messenger);
  fabric_->SetWake([this] { Wake(); });
  control_->SetWake([this] { Wake(); });
  if (prefiller_) prefiller_->Attach(messenger_.get(), [this] { Wake(); });
  if (decoder_) {
    decoder_->Attach(messenger_.get(), [this] { Wake(); });
    for (int32_t n = 0; n < cluster->size() && options_.adds_nodes; ++n) {
      const SimNodeId other(n);
      if (n == node.value() || !cluster->options(other).config.prefill) continue;
      TANDEM_CHECK(messenger_->AddPrefillNode(SimControl::AddressOf(other)).ok());
    }
  }
}

inline void NodeProcess::Wake() {
  SimWorld& world = cluster_->world;
  TurnAt(world.now() + world.Between(0, options_.turn_most));
}

inline void NodeProcess::TurnAt(TimeNs when) {
  if (next_turn_ >= 0 && next_turn_ <= when) return;
  next_turn_ = when;
  Cluster* const cluster = cluster_;
  cluster->world.After(node_, when - cluster->world.now(), [cluster, node = node_, turn = ++turn_] {
    NodeProcess* const process = cluster->At(node);
    if (process->turn_ == turn) process->Turn();  // else an earlier one was asked for
  });
}

inline void NodeProcess::Turn() {
  next_turn_ = -1;
  std::vector<LinkEvent> links;
  control_->Poll(&links);
  for (LinkEvent& event : links) messenger_->HandleControl(std::move(event));
  std::vector<FabricEvent> writes;
  fabric_->Poll(&writes);
  for (FabricEvent& event : writes) messenger_->HandleFabric(std::move(event));
  const TimeNs next = messenger_->Advance();
  std::vector<HandoffEvent> events;
  messenger_->TakeEvents(&events);
  for (const HandoffEvent& event : events) {
    if (event.kind == HandoffEvent::Kind::kSendDrained) {
      prefiller_->OnEvent(event);
    } else {
      decoder_->OnEvent(event);
    }
  }
  if (next < cluster_->world.now() + kNsPerS) TurnAt(std::max(next, cluster_->world.now()));
}

inline void NodeProcess::CheckIdle() {
  const MessengerStats stats = messenger_->stats();
  TANDEM_CHECK_EQ(stats.fetches_now, 0);
  TANDEM_CHECK_EQ(stats.sends_now, 0);
  TANDEM_CHECK_EQ(stats.quarantined_blocks_now, 0);
  TANDEM_CHECK_EQ(stats.protocol_errors, 0);
  if (prefiller_) prefiller_->CheckIdle();
  if (decoder_) decoder_->CheckIdle();
  // Every slot of the expectations has been given back.
  for (uint32_t slot = 0; slot < options_.limits.slots; ++slot) {
    TANDEM_CHECK(fabric_->Expect(1, cluster_->world.now() + 1000 * kNsPerS).ok());
  }
}

}  // namespace tandem::testing
