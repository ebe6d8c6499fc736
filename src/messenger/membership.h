// What: which prefill nodes there are: Membership joins what any number of sources say (a list, a
//   file, etcd) and follows them as they change.
// Not here: whether a node is up and to be trusted (control_link.h); single sources
//   (membership_file.h, membership_etcd.h).
// Threads: one owner calls everything; a thread of its own asks the sources. The wake callback
//   comes from that thread.
// Invariants: a source that fails keeps what it said last: to lose the list must not lose the
//   nodes.
// Cost: one look at every source per interval, on its own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread_annotations.h"

namespace tandem {

struct HostPort {
  std::string host;  // a name or an address; of IPv6 without brackets
  uint16_t port = 0;
  // HOST:PORT, or [HOST]:PORT.
  std::string ToString() const;
  bool operator==(const HostPort&) const = default;
};
// INVALID_ARGUMENT says what is wrong with `text`. Port 0 is none.
Result<HostPort> ParseHostPort(std::string_view text);
// As ParseHostPort; 0 is a port that the system chooses.
Result<HostPort> ParseListenAddress(std::string_view text);

class MembershipSource {
 public:
  virtual ~MembershipSource() = default;
  // How messages call it.
  virtual std::string name() const = 0;
  // The nodes, as HOST:PORT. May wait, for a few seconds at most.
  virtual Result<std::vector<std::string>> Look() = 0;
};

class Membership {
 public:
  // More nodes than this are not followed.
  static constexpr size_t kMaxNodes = 1024;

  // `fixed` are nodes whatever the sources say. The first look at each source happens at once, on
  // the thread. `wake` may be empty; it must not call back.
  Membership(std::vector<std::string> fixed, std::vector<std::unique_ptr<MembershipSource>> sources,
             TimeNs interval, std::function<void()> wake);
  // Waits for a look that is under way.
  ~Membership();

  // All nodes, sorted, each once, when they are others than at the last call; the first call always
  // has them.
  std::optional<std::vector<std::string>> TakeChange() TANDEM_EXCLUDES(mutex_);

 private:
  struct Source {
    std::unique_ptr<MembershipSource> source;
    std::vector<std::string> last;
    bool failing = false;
  };

  void Loop() TANDEM_EXCLUDES(mutex_);
  void LookAtAll() TANDEM_EXCLUDES(mutex_);
  // What it says, without what is no address.
  void LookAt(Source& source) const;
  std::vector<std::string> Join() const;

  const std::vector<std::string> fixed_;
  const TimeNs interval_;
  const std::function<void()> wake_;
  std::vector<Source> sources_;  // the thread's, once it runs

  mutable Mutex mutex_;
  CondVar ending_changed_;
  bool ending_ TANDEM_GUARDED_BY(mutex_) = false;
  std::vector<std::string> nodes_ TANDEM_GUARDED_BY(mutex_);
  bool changed_ TANDEM_GUARDED_BY(mutex_) = true;
  std::thread thread_;  // none without sources
};

}  // namespace tandem
