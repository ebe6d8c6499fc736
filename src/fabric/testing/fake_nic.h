// What: FakeNic: a Nic whose network is the test: posts wait until it ends them, in any order,
//   late, twice, or never.
// Not here: a network of several engines in virtual time (sim/).
// Threads: one.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "fabric/nic.h"

namespace tandem {

class FakeNic final : public Nic {
 public:
  struct Post {
    NicLinkId link;
    uint64_t context = 0;
    Immediate immediate = 0;
  };
  explicit FakeNic(std::string name, uint32_t depth = 8) : name_(std::move(name)), depth_(depth) {}

  // The test's side.
  bool answers = true;  // links come up at the next Poll
  bool takes = true;    // posts; otherwise kLater
  std::vector<Post> posts;
  int opened = 0;
  int closed = 0;
  void End(const Post& post, const Status& status) {
    NicEvent event;
    event.kind = status.ok() ? NicEvent::Kind::kDone : NicEvent::Kind::kFailed;
    event.context = post.context;
    event.status = status;
    events_.push_back(std::move(event));
  }
  // Ends all posts in an order of the seed's; each `times` times.
  void EndAll(SplitMix64* random, const Status& status, int times) {
    std::vector<Post> ending = std::exchange(posts, {});
    for (size_t i = ending.size(); i > 1; --i) std::swap(ending[i - 1], ending[random->Below(i)]);
    for (int k = 0; k < times; ++k) {
      for (const Post& post : ending) End(post, status);
    }
  }
  void LoseLinks() {
    for (const auto& [link, up] : links_) {
      NicEvent event;
      event.kind = NicEvent::Kind::kLinkLost;
      event.link = link;
      event.status = UnavailableError("lost");
      events_.push_back(std::move(event));
    }
  }

  std::string kind() const override { return "fake"; }
  std::string address() const override { return name_; }
  bool Reaches(std::string_view /*address*/) const override { return true; }
  bool is_same_host() const override { return false; }
  uint32_t link_depth() const override { return depth_; }
  Result<NicRegionId> RegisterLocal(std::span<std::byte> /*memory*/) override {
    return NicRegionId(++last_);
  }
  Result<NicRegionId> RegisterRemote(std::span<std::byte> /*memory*/,
                                     RemoteRegion::Nic* remote) override {
    remote->key = 1;
    return NicRegionId(++last_);
  }
  void CloseRegion(NicRegionId /*region*/) override {}
  Result<NicLinkId> OpenLink(std::string_view /*address*/) override {
    ++opened;
    links_[NicLinkId(++last_)] = false;
    return NicLinkId(last_);
  }
  void CloseLink(NicLinkId link) override {
    ++closed;
    links_.erase(link);
  }
  Taken Write(NicLinkId link, const NicWrite& write) override {
    if (!takes) return Taken::kLater;
    posts.push_back({link, write.context, write.immediate});
    return Taken::kYes;
  }
  Taken Send(NicLinkId link, std::span<const std::byte> /*message*/, uint64_t context) override {
    if (!takes) return Taken::kLater;
    posts.push_back({link, context, 0});
    return Taken::kYes;
  }
  bool Poll(std::vector<NicEvent>* events) override {
    for (auto& [link, up] : links_) {
      if (up || !answers) continue;
      up = true;
      NicEvent event;
      event.kind = NicEvent::Kind::kLinkUp;
      event.link = link;
      events_.push_back(std::move(event));
    }
    const bool any = !events_.empty();
    std::move(events_.begin(), events_.end(), std::back_inserter(*events));
    events_.clear();
    return any;
  }
  int wait_fd() const override { return -1; }
  bool PrepareWait() override { return true; }

 private:
  const std::string name_;
  const uint32_t depth_;
  std::map<NicLinkId, bool> links_;  // whether it is up
  std::vector<NicEvent> events_;
  uint32_t last_ = 0;
};

}  // namespace tandem
