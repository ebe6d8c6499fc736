#include "plan/event_recorder.h"

#include <fmt/format.h>

#include <numeric>
#include <span>

namespace tandem {

TokenRenaming::TokenRenaming(int32_t vocab_size, HashKey key)
    : names_(static_cast<size_t>(vocab_size)), salt_key_{~key.k0, key.k1} {
  // A shuffle whose draws are a keyed hash of the place.
  std::iota(names_.begin(), names_.end(), 0);
  for (size_t i = names_.size(); i > 1; --i) {
    std::swap(names_[i - 1], names_[KeyedHash(key, i, {}) % i]);
  }
}

TokenId TokenRenaming::CodeToken(TokenId token) const {
  const auto at = static_cast<size_t>(static_cast<uint32_t>(token.value()));
  return at < names_.size() ? TokenId(names_[at]) : token;
}

std::string TokenRenaming::CodeSalt(std::string_view salt) const {
  if (salt.empty()) return std::string();
  return fmt::format("{:016x}", KeyedHash(salt_key_, 0, std::as_bytes(std::span(salt))));
}

EventRecorder::EventRecorder(const TokenCoder* coder, size_t ring_bytes)
    : coder_(coder), ring_(ring_bytes) {}

void EventRecorder::OnEvent(const EngineEvent& event, StatusCode outcome) {
  AppendEvent(event, outcome, *coder_, &buffer_);
  Push();
}

void EventRecorder::OnAdvance(TimeNs now) {
  AppendAdvance(now, &buffer_);
  Push();
}

void EventRecorder::OnPlan(const StepPlan& plan, StatusCode outcome) {
  AppendPlan(plan, outcome, &buffer_);
  Push();
}

void EventRecorder::Push() {
  if (lost_ > 0) {  // first say what is missing
    std::string loss;
    AppendLoss(lost_, &loss);
    buffer_.insert(0, loss);
  }
  if (ring_.TryWrite(buffer_)) {
    lost_ = 0;
  } else {
    ++lost_;
    lost_total_.fetch_add(1, std::memory_order_relaxed);
  }
  buffer_.clear();
}

}  // namespace tandem
