#include "sched/handoff_ledger.h"

#include <utility>

#include "base/check.h"

namespace tandem {

FetchId HandoffLedger::OpenFetch(Owner owner, std::span<const std::vector<BlockId>> blocks) {
  Entry<FetchId>& fetch = fetches_.emplace_back();
  fetch.id = FetchId(++last_fetch_);
  fetch.owner = owner;
  for (size_t g = 0; g < blocks.size(); ++g) {
    for (const BlockId block : blocks[g]) {
      const GroupId group(static_cast<int32_t>(g));
      pools_->BeginUse(group, block, UseAgent::kInboundWrite);
      fetch.uses.push_back({group, block});
    }
  }
  return fetch.id;
}

std::optional<HandoffLedger::Owner> HandoffLedger::Settle(FetchId id) {
  Entry<FetchId>* fetch = Find(fetches_, id);
  if (fetch == nullptr || fetch->settled) return std::nullopt;
  fetch->settled = true;
  return fetch->owner;
}

void HandoffLedger::DrainFetch(FetchId id) { Drain(&fetches_, id, UseAgent::kInboundWrite); }

void HandoffLedger::OpenSend(SendId id, Owner owner) {
  TANDEM_CHECK(!has_send(id));
  sends_.push_back({id, owner, false, {}});
}

void HandoffLedger::Lend(SendId id, GroupId group, BlockId block) {
  Entry<SendId>* send = Find(sends_, id);
  TANDEM_CHECK(send != nullptr);
  pools_->BeginUse(group, block, UseAgent::kOutboundWrite);
  send->uses.push_back({group, block});
}

std::optional<HandoffLedger::Owner> HandoffLedger::DrainSend(SendId id) {
  return Drain(&sends_, id, UseAgent::kOutboundWrite);
}

template <typename Id>
std::optional<HandoffLedger::Owner> HandoffLedger::Drain(std::vector<Entry<Id>>* entries, Id id,
                                                         UseAgent agent) {
  Entry<Id>* entry = Find(*entries, id);
  if (entry == nullptr) return std::nullopt;
  const Owner owner = entry->owner;
  for (const Use& use : entry->uses) pools_->EndUse(use.group, use.block, agent);
  entries->erase(entries->begin() + (entry - entries->data()));
  return owner;
}

template <typename Id>
Status HandoffLedger::CheckUses(const std::vector<Entry<Id>>& entries, UseAgent agent) const {
  for (int32_t g = 0; g < pools_->num_groups(); ++g) {
    const BlockPool& pool = pools_->pool(GroupId(g));
    std::vector<int32_t> counted(static_cast<size_t>(pool.total()), 0);
    for (const Entry<Id>& entry : entries) {
      for (const Use& use : entry.uses) {
        if (use.group == GroupId(g)) ++counted[static_cast<size_t>(use.block.value())];
      }
    }
    for (int32_t b = 0; b < pool.total(); ++b) {
      if (counted[static_cast<size_t>(b)] == pool.uses(BlockId(b), agent)) continue;
      return InternalError("group {}: block {} has {} use-tokens, {} hand-offs touch it", g, b,
                           pool.uses(BlockId(b), agent), counted[static_cast<size_t>(b)]);
    }
  }
  return OkStatus();
}

Status HandoffLedger::CheckIntegrity() const {
  TANDEM_RETURN_IF_ERROR(CheckUses(fetches_, UseAgent::kInboundWrite));
  return CheckUses(sends_, UseAgent::kOutboundWrite);
}

}  // namespace tandem
