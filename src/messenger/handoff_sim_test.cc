// The hand-off end to end on the simulated network: by seed, with every fault that it knows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "messenger/testing/cluster.h"

namespace tandem::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// TANDEM_SIM_SEED=n runs that seed alone, TANDEM_SIM_SEEDS=n the first n of each profile.
struct Seeds {
  explicit Seeds(uint64_t usual) {
    first = 1;
    count = kSanitized ? usual / 20 : usual;
    if (const char* many = std::getenv("TANDEM_SIM_SEEDS")) count = std::strtoull(many, nullptr, 0);
    if (const char* one = std::getenv("TANDEM_SIM_SEED")) {
      first = std::strtoull(one, nullptr, 0);
      count = 1;
    }
  }
  uint64_t first = 0;
  uint64_t count = 0;
};

// A broken invariant aborts; the seed is the bug report.
char g_seed_note[128];

void PrintSeed(int) {
  if (::write(STDERR_FILENO, g_seed_note, std::strlen(g_seed_note)) < 0) std::_Exit(1);
}

void NoteSeed(const char* test, uint64_t seed) {
  std::snprintf(g_seed_note, sizeof(g_seed_note),
                "\nto repeat: TANDEM_SIM_SEED=%llu messenger_test --gtest_filter=%s\n",
                static_cast<unsigned long long>(seed), test);
  std::signal(SIGABRT, PrintSeed);
}

// ---------------------------------------------------------------- by seed

struct Profile {
  const char* test;
  double drop = 0;
  double duplicate = 0;
  double slow = 0;
  double lag = 0;
  double step_fails = 0;
  double refuse = 0;
  double cancels = 0;
  bool small_pools = false;
  bool partitions = false;
  bool processes = false;  // die, stop, restart, become strangers
};

class RandomRun {
 public:
  RandomRun(const Profile& profile, uint64_t seed)
      : profile_(profile), cluster_(seed, Faults(profile, seed)), random_(cluster_.world.random()) {
    cluster_.world.faults().stopped_nodes_receive = random_.Below(2) == 0;
    prefills_ = 1 + static_cast<int32_t>(random_.Below(3));
    const auto decodes = 1 + static_cast<int32_t>(random_.Below(2));
    for (int32_t n = 0; n < prefills_; ++n) cluster_.Add(MakePrefill());
    for (int32_t n = 0; n < decodes; ++n) cluster_.Add(MakeDecode());
  }

  void Run() {
    const auto requests = 3 + random_.Below(10);
    for (uint64_t i = 0; i < requests; ++i) {
      cluster_.world.At(Time(60 * kNsPerMs), [this] { Arrival(); });
    }
    if (profile_.partitions || profile_.processes) {
      const auto faults = 1 + random_.Below(4);
      for (uint64_t i = 0; i < faults; ++i) {
        cluster_.world.At(Time(70 * kNsPerMs), [this] { Fault(); });
      }
    }
    cluster_.world.RunUntil(400 * kNsPerMs);
    const TimeNs end = 6 * kNsPerS;
    while (!cluster_.idle() && cluster_.world.now() < end) {
      cluster_.world.RunUntil(cluster_.world.now() + 10 * kNsPerMs);
    }
    TANDEM_CHECK(cluster_.idle());  // every request ends
    cluster_.CheckIdle();
    const FakeDecoder::Counts counts = cluster_.Counts();
    total.arrived += counts.arrived;
    total.failed += counts.failed;
    total.cancelled += counts.cancelled;
    total.local += counts.local;
    total.finished += counts.finished;
  }

  static FakeDecoder::Counts total;

 private:
  static SimFaults Faults(const Profile& profile, uint64_t seed) {
    SplitMix64 random(seed * 77);
    SimFaults faults;
    faults.drop = profile.drop * random.NextDouble();
    faults.duplicate = profile.duplicate * random.NextDouble();
    faults.slow = profile.slow * random.NextDouble();
    faults.lag = profile.lag * random.NextDouble();
    return faults;
  }

  NodeOptions MakePrefill() {
    NodeOptions options = PrefillNode();
    options.prefill.blocks = profile_.small_pools ? 20 : 64;
    options.prefill.chunk_most = 1 + static_cast<int32_t>(random_.Below(24));
    options.prefill.step_fails = profile_.step_fails;
    options.prefill.refuse = profile_.refuse;
    options.limits.transfers = 1 + static_cast<int32_t>(random_.Below(12));
    options.limits.pieces = 1 + static_cast<int32_t>(random_.Below(8));
    options.limits.slots = 16;
    return options;
  }
  NodeOptions MakeDecode() {
    NodeOptions options = DecodeNode();
    options.decode.blocks = profile_.small_pools ? 24 : 64;
    options.decode.cancels = profile_.cancels;
    options.limits.slots = 1 + static_cast<uint32_t>(random_.Below(8));
    return options;
  }

  TimeNs Time(TimeNs most) { return cluster_.world.now() + cluster_.world.Between(0, most); }
  SimNodeId Any() {
    return SimNodeId(static_cast<int32_t>(random_.Below(static_cast<uint64_t>(cluster_.size()))));
  }

  void Arrival() {
    const auto decodes = static_cast<uint64_t>(cluster_.size() - prefills_);
    const SimNodeId node(prefills_ + static_cast<int32_t>(random_.Below(decodes)));
    if (!cluster_.world.alive(node) || strange_.contains(node)) return;
    std::vector<TokenId> prompt = RandomPrompt(&random_, 56);
    std::string salt(random_.Below(4) == 0 ? "x" : "");
    cluster_.world.WhenRunning(
        node, [this, node, prompt, salt] { cluster_.At(node)->decoder()->Arrive(prompt, salt); });
  }

  void Fault() {
    const SimNodeId node = Any();
    const TimeNs until = Time(120 * kNsPerMs);
    const uint64_t kind = profile_.processes ? random_.Below(6) : random_.Below(2);
    switch (kind) {
      case 0: return Partition(node, until);
      case 1: return Slow(node, until);
      case 2: return Die(node, until, false);
      case 3: return Die(node, until, true);
      case 4: return Stop(node, until);
      default: return Leave(node, until);
    }
  }
  void Partition(SimNodeId node, TimeNs until) {
    const SimNodeId other = Any();
    if (other == node) return;
    cluster_.world.SetPartitioned(node, other, true);
    cluster_.world.At(until, [=, this] { cluster_.world.SetPartitioned(node, other, false); });
  }
  void Slow(SimNodeId node, TimeNs until) {
    if (!cluster_.world.alive(node)) return;
    cluster_.At(node)->SetTurnMost(15 * kNsPerMs);
    cluster_.world.At(until, [=, this] {
      if (cluster_.world.alive(node)) cluster_.At(node)->SetTurnMost(20 * kNsPerUs);
    });
  }
  // Comes back at the same address; `strange`: for a while with what makes it another node.
  void Die(SimNodeId node, TimeNs until, bool strange) {
    if (!cluster_.world.alive(node)) return;
    cluster_.Kill(node);
    cluster_.world.At(until, [=, this] {
      if (cluster_.world.alive(node)) return;
      const NodeOptions right = cluster_.options(node);
      if (strange && strange_.insert(node).second) {
        Estrange(&cluster_.options(node));
        cluster_.world.At(Time(100 * kNsPerMs), [=, this] {
          if (cluster_.world.alive(node)) cluster_.Kill(node);
          cluster_.options(node) = right;
          strange_.erase(node);
          cluster_.Restart(node);
        });
      }
      cluster_.Restart(node);
    });
  }
  void Estrange(NodeOptions* options) {
    HandoffFormat& format = options->config.format;
    switch (random_.Below(4)) {
      case 0: options->secret = "another"; break;
      case 1: format.identity.low ^= 1; break;
      case 2: format.numerics = "fast"; break;
      default: format.groups[0].shard = {.rank = 1, .world = 2}; break;
    }
  }
  void Stop(SimNodeId node, TimeNs until) {
    if (!cluster_.world.alive(node) || cluster_.world.stopped(node)) return;
    cluster_.world.Stop(node);
    const uint32_t life = cluster_.world.incarnation(node);
    cluster_.world.At(until, [=, this] {
      if (cluster_.world.incarnation(node) == life) cluster_.world.Continue(node);
    });
  }
  // A decode node lets go of a prefill node for a while.
  void Leave(SimNodeId node, TimeNs until) {
    if (node.value() < prefills_) return;
    const SimNodeId other(static_cast<int32_t>(random_.Below(static_cast<uint64_t>(prefills_))));
    const std::string address = SimControl::AddressOf(other);
    Tell(node, [address](Messenger& m) { m.RemovePrefillNode(address); });
    cluster_.world.At(until, [=, this] {
      Tell(node, [address](Messenger& m) { TANDEM_CHECK(m.AddPrefillNode(address).ok()); });
    });
  }
  template <typename F>
  void Tell(SimNodeId node, F what) {
    if (!cluster_.world.alive(node)) return;
    cluster_.world.WhenRunning(node, [this, node, what] {
      what(cluster_.At(node)->messenger());
      cluster_.At(node)->Wake();
    });
  }

  const Profile profile_;
  Cluster cluster_;
  SplitMix64& random_;
  int32_t prefills_ = 0;
  std::set<SimNodeId> strange_;
};
FakeDecoder::Counts RandomRun::total;

void RunSeeds(const Profile& profile, uint64_t usual) {
  SetLogLevel(LogLevel::kOff);
  RandomRun::total = {};
  const Seeds seeds(usual);
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    NoteSeed(profile.test, seed);
    RandomRun(profile, seed).Run();
  }
  SetLogLevel(LogLevel::kInfo);
  const FakeDecoder::Counts& sum = RandomRun::total;
  std::printf(
      "%llu seeds: %lld prompts arrived, %lld fetches failed, %lld requests cancelled, "
      "%lld computed here, %lld finished\n",
      static_cast<unsigned long long>(seeds.count), static_cast<long long>(sum.arrived),
      static_cast<long long>(sum.failed), static_cast<long long>(sum.cancelled),
      static_cast<long long>(sum.local), static_cast<long long>(sum.finished));
  if (seeds.count < 100) return;
  EXPECT_GT(sum.arrived, static_cast<int64_t>(seeds.count)) << "hardly anything was tested";
}

TEST(HandoffSeeds, AnyOrderTwiceAndCancelled) {
  RunSeeds({.test = "HandoffSeeds.AnyOrderTwiceAndCancelled",
            .duplicate = 0.3,
            .slow = 0.2,
            .lag = 0.3,
            .cancels = 0.3},
           3000);
}

TEST(HandoffSeeds, FullPoolsRefusalsAndFailedSteps) {
  RunSeeds({.test = "HandoffSeeds.FullPoolsRefusalsAndFailedSteps",
            .slow = 0.1,
            .step_fails = 0.05,
            .refuse = 0.1,
            .cancels = 0.2,
            .small_pools = true},
           2000);
}

TEST(HandoffSeeds, LossPartitionsAndSlowReaders) {
  RunSeeds({.test = "HandoffSeeds.LossPartitionsAndSlowReaders",
            .drop = 0.3,
            .duplicate = 0.2,
            .slow = 0.3,
            .cancels = 0.2,
            .partitions = true},
           2500);
}

TEST(HandoffSeeds, DeathStopsRestartsAndStrangers) {
  RunSeeds({.test = "HandoffSeeds.DeathStopsRestartsAndStrangers",
            .drop = 0.05,
            .duplicate = 0.2,
            .slow = 0.2,
            .lag = 0.1,
            .step_fails = 0.02,
            .refuse = 0.02,
            .cancels = 0.2,
            .small_pools = true,
            .partitions = true,
            .processes = true},
           3500);
}

}  // namespace
}  // namespace tandem::testing
