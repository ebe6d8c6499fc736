#include "fabric/sim/sim_world.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

SimWorld::SimWorld(uint64_t seed, SimFaults faults) : random_(seed), faults_(faults) {}

TimeNs SimWorld::Between(TimeNs least, TimeNs most) {
  TANDEM_CHECK_LE(least, most);
  return least + static_cast<TimeNs>(random_.Below(static_cast<uint64_t>(most - least) + 1));
}

SimNodeId SimWorld::AddNode() {
  nodes_.emplace_back();
  return SimNodeId(static_cast<int32_t>(nodes_.size()) - 1);
}

void SimWorld::Kill(SimNodeId node) {
  At(node).alive = false;
  At(node).stopped = false;
  At(node).waiting.clear();
}

void SimWorld::Restart(SimNodeId node) {
  TANDEM_CHECK(!At(node).alive);
  At(node).alive = true;
  ++At(node).incarnation;
}

void SimWorld::Stop(SimNodeId node) {
  TANDEM_CHECK(At(node).alive);
  At(node).stopped = true;
  ++At(node).stops;
}

void SimWorld::Continue(SimNodeId node) {
  At(node).stopped = false;
  std::vector<std::function<void()>> waiting = std::move(At(node).waiting);
  At(node).waiting.clear();
  for (std::function<void()>& what : waiting) {
    After(node, 0, std::move(what));
  }
}

void SimWorld::SetPartitioned(SimNodeId a, SimNodeId b, bool partitioned) {
  const auto pair = std::minmax(a, b);
  if (partitioned) {
    partitions_.insert(pair);
  } else {
    partitions_.erase(pair);
  }
}

bool SimWorld::partitioned(SimNodeId a, SimNodeId b) const {
  return partitions_.contains(std::minmax(a, b));
}

void SimWorld::At(TimeNs when, std::function<void()> what) {
  queue_.push_back({std::max(when, now()), ++events_, std::move(what)});
  std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
}

void SimWorld::After(SimNodeId node, TimeNs delay, std::function<void()> what) {
  At(now() + delay, [this, node, life = incarnation(node), what = std::move(what)]() mutable {
    if (alive(node) && incarnation(node) == life) WhenRunning(node, std::move(what));
  });
}

TimeNs SimWorld::Delay() {
  if (Chance(faults_.slow)) return Between(faults_.delay_most, faults_.delay_slow);
  return Between(faults_.delay_least, faults_.delay_most);
}

bool SimWorld::Deliver(SimNodeId from, SimNodeId to, std::function<void()> what) {
  if (partitioned(from, to) || Chance(faults_.drop)) return false;
  At(now() + Delay(), std::move(what));
  return true;
}

void SimWorld::WhenRunning(SimNodeId node, std::function<void()> what) {
  TANDEM_CHECK(alive(node));
  if (stopped(node)) {
    At(node).waiting.push_back(std::move(what));
  } else {
    what();
  }
}

bool SimWorld::RunOne(TimeNs end) {
  if (queue_.empty() || queue_.front().when > end) {
    clock_.Advance(std::max<TimeNs>(0, end - now()));
    return false;
  }
  std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
  Event event = std::move(queue_.back());
  queue_.pop_back();
  clock_.Advance(event.when - now());
  event.what();
  return true;
}

void SimWorld::RunUntil(TimeNs end) {
  while (RunOne(end)) {
  }
}

}  // namespace tandem
