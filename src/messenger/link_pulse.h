// What: LinkPulse: heartbeats of one link: when the next is due, and whether the peer has fallen
//   silent.
// Not here: the frames (protocol.h), what follows from silence.
// Threads: values.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "messenger/messenger_config.h"

namespace tandem {

class LinkPulse {
 public:
  void Start(TimeNs now) {
    heard_ = now;
    next_beat_ = now;
  }
  void Heard(TimeNs now) { heard_ = now; }
  // This process has not run for a while: what the peer has said is not read yet.
  void Forgive(const MessengerConfig& config, TimeNs now) {
    heard_ = std::max(heard_, now - config.heartbeat_interval);
  }
  bool Silent(const MessengerConfig& config, TimeNs now) const { return now >= SilentAt(config); }
  // Whether a heartbeat is to be sent now; the next is due after the interval.
  bool Beat(const MessengerConfig& config, TimeNs now) {
    if (now < next_beat_) return false;
    next_beat_ = now + config.heartbeat_interval;
    return true;
  }
  TimeNs NextTime(const MessengerConfig& config) const {
    return std::min(next_beat_, SilentAt(config));
  }

 private:
  TimeNs SilentAt(const MessengerConfig& config) const {
    return heard_ + config.heartbeat_interval * config.heartbeat_misses;
  }

  TimeNs heard_ = 0;
  TimeNs next_beat_ = 0;
};

}  // namespace tandem
