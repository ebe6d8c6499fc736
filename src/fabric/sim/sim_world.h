// What: SimWorld: virtual time, one event queue, and a network between nodes that delays, reorders,
//   drops, partitions, and whose nodes die, stop and come back: all by one seed.
// Not here: one-sided writes (sim_engine.h), connections (a user of Deliver), what nodes do.
// Threads: one owner calls everything; a clock that other code reads.
// Invariants: events run in order of time, those of one time in the order they were made. The same
//   seed and the same calls give the same run.
// Based on: tigerbeetle's packet simulator: faults drawn from a seed, a failing seed is the whole
//   bug report.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/rng.h"

namespace tandem {

// A machine of the network; processes live and die at it.
using SimNodeId = StrongId<struct SimNodeIdTag, int32_t>;

// How the network behaves. Probabilities are per packet, times in ns.
struct SimFaults {
  TimeNs delay_least = 5 * kNsPerUs;
  TimeNs delay_most = 50 * kNsPerUs;
  double slow = 0;  // probability of a delay of up to delay_slow
  TimeNs delay_slow = 2 * kNsPerMs;
  double drop = 0;  // of one attempt; whoever retries does so after:
  TimeNs resend_after = 1 * kNsPerMs;
  double duplicate = 0;  // a write's bytes land twice, its immediate comes again later
  double lag = 0;        // an immediate is counted up to delay_slow after its bytes have landed
  bool stopped_nodes_receive =
      true;  // writes land while the process is stopped, as with a real NIC
};

class SimWorld {
 public:
  explicit SimWorld(uint64_t seed, SimFaults faults = {});

  const Clock& clock() const { return clock_; }
  TimeNs now() const { return clock_.Now(); }
  SplitMix64& random() { return random_; }
  SimFaults& faults() { return faults_; }
  bool Chance(double probability) { return random_.NextDouble() < probability; }
  TimeNs Between(TimeNs least, TimeNs most);

  SimNodeId AddNode();
  // The process dies: what it has sent may still arrive, nothing reaches it. Its number in the
  // node's life is over.
  void Kill(SimNodeId node);
  // A new process at the same address. Requires that the node is dead.
  void Restart(SimNodeId node);
  // SIGSTOP and SIGCONT: a stopped process runs nothing; what is due is due when it continues.
  void Stop(SimNodeId node);
  void Continue(SimNodeId node);
  bool alive(SimNodeId node) const { return At(node).alive; }
  bool stopped(SimNodeId node) const { return At(node).stopped; }
  int32_t stops(SimNodeId node) const { return At(node).stops; }  // so far
  // Counts the processes of this node, from 1.
  uint32_t incarnation(SimNodeId node) const { return At(node).incarnation; }
  // Nothing passes between the two, in both directions, until it is taken back.
  void SetPartitioned(SimNodeId a, SimNodeId b, bool partitioned);
  bool partitioned(SimNodeId a, SimNodeId b) const;

  // Runs `what` at `when`, now at the earliest.
  void At(TimeNs when, std::function<void()> what);
  // Runs `what` after `delay` in the process that is at the node now: when it continues, if it is
  // stopped then; never, if it has died.
  void After(SimNodeId node, TimeNs delay, std::function<void()> what);
  // Sends one packet: runs `what` after a delay unless it is lost. Returns false when it was.
  bool Deliver(SimNodeId from, SimNodeId to, std::function<void()> what);
  // The time a packet takes.
  TimeNs Delay();
  // Runs `what` when the process that is at the node now can run: at once, or when it continues;
  // never when it has died. Requires a node that is alive.
  void WhenRunning(SimNodeId node, std::function<void()> what);

  // Runs the next event; false when there is none, or none until `end`: then it is `end`.
  bool RunOne(TimeNs end);
  void RunUntil(TimeNs end);

 private:
  struct Node {
    bool alive = true;
    bool stopped = false;
    uint32_t incarnation = 1;
    int32_t stops = 0;
    std::vector<std::function<void()>> waiting;  // while stopped
  };
  struct Event {
    TimeNs when = 0;
    uint64_t number = 0;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return std::pair(when, number) > std::pair(other.when, other.number);
    }
  };

  Node& At(SimNodeId node) { return nodes_[static_cast<size_t>(node.value())]; }
  const Node& At(SimNodeId node) const { return nodes_[static_cast<size_t>(node.value())]; }

  ManualClock clock_;
  SplitMix64 random_;
  SimFaults faults_;
  std::vector<Node> nodes_;
  std::set<std::pair<SimNodeId, SimNodeId>> partitions_;
  std::vector<Event> queue_;  // a heap, the next in front
  uint64_t events_ = 0;
};

}  // namespace tandem
