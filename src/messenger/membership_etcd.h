// What: etcd as the list of prefill nodes: a prefill node registers its address under a lease that
//   it keeps alive, decode nodes look. Through etcd's JSON gateway (v3), over plain HTTP.
// Not here: following the list (membership.h). Trust: whoever can write to etcd can name addresses,
//   but a node must still prove that it knows the hand-off key.
// Threads: EtcdMembershipSource by one; an EtcdRegistration has a thread of its own.
// Invariants: a registration that etcd has lost (a restart, a lease that ran out) is made again. A
//   process that dies is gone from the list one lease later; one that ends well, at once.
// Cost: one HTTP request per look, one per third of a lease.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread_annotations.h"
#include "messenger/membership.h"

namespace tandem {

// One etcd cluster, asked through whichever of its members answers.
class EtcdClient {
 public:
  // `urls`: http://HOST:PORT, several with commas between. INVALID_ARGUMENT names the wrong one.
  static Result<EtcdClient> Create(std::string_view urls);

  // All return UNAVAILABLE when no member answers within 2 s each, DATA_LOSS for an answer that is
  // none of etcd.

  // The id of a new lease.
  Result<int64_t> GrantLease(int64_t ttl_s);
  // NOT_FOUND when it has run out.
  Status KeepLeaseAlive(int64_t lease);
  Status RevokeLease(int64_t lease);
  // NOT_FOUND when the lease is unknown.
  Status Put(std::string_view key, std::string_view value, int64_t lease);
  // What comes after `prefix` in the keys that begin with it, sorted; at most `limit`.
  Result<std::vector<std::string>> KeysAfter(std::string_view prefix, int64_t limit);

  const std::string& urls() const { return text_; }

 private:
  // The body of the answer to a POST of `body`.
  Result<std::string> Call(const std::string& path, const std::string& body);

  std::string text_;
  std::vector<HostPort> members_;
  size_t next_ = 0;  // the one that answered last
};

// What comes after `prefix` in the keys of etcd's answer to a range request; keys without it are
// left out. DATA_LOSS for what is no such answer.
Result<std::vector<std::string>> ParseEtcdKeys(std::string_view answer, std::string_view prefix);

// The prefix of the registrations of one kind of node: those that serve one model in one state
// format, so that several models can share an etcd.
std::string EtcdPrefix(std::string_view model);

class EtcdMembershipSource final : public MembershipSource {
 public:
  EtcdMembershipSource(EtcdClient client, std::string prefix);
  std::string name() const override { return "etcd at " + client_.urls(); }
  Result<std::vector<std::string>> Look() override;

 private:
  EtcdClient client_;
  const std::string prefix_;
};

class EtcdRegistration {
 public:
  static constexpr int64_t kLeaseSeconds = 10;

  // Registers `address` at once and for as long as it lives; trouble is logged and tried again.
  EtcdRegistration(EtcdClient client, const std::string& prefix, std::string address,
                   int64_t lease_s = kLeaseSeconds);
  // Takes the registration back; waits for etcd at most a few seconds.
  ~EtcdRegistration();

  bool registered() const TANDEM_EXCLUDES(mutex_);

 private:
  void Loop() TANDEM_EXCLUDES(mutex_);
  Status Renew();

  EtcdClient client_;
  const std::string key_;
  const std::string address_;
  const int64_t lease_s_;
  int64_t lease_ = 0;  // of the thread; 0: none

  mutable Mutex mutex_;
  CondVar ending_changed_;
  bool ending_ TANDEM_GUARDED_BY(mutex_) = false;
  bool registered_ TANDEM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
