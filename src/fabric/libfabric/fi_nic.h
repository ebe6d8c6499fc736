// What: FiNic: a Nic over libfabric (FI_EP_RDM with RMA), one address of one interface.
// Not here: which interfaces to use (topology.h), the policy of reconnecting (transfer_core.h).
// Threads: as Nic. libfabric makes progress only in Poll: this process's as a target too.
// Invariants:
//   - Every write asks for FI_DELIVERY_COMPLETE and carries FI_REMOTE_CQ_DATA: with the default
//     completion a write to a closed region succeeds, and a page may be written after its reuse.
//   - A link has an endpoint of its own, so that closing it ends its posts and nobody else's. A
//     remote region has one too: closing its registration stops writes that begin later, closing
//     its endpoint those that are half written. It lives in a domain of its own, which goes with
//     it: libfabric 1.17 uses freed memory when a domain makes progress after an endpoint of it was
//     closed while somebody was connecting to that.
//   - Contexts name slots with generations, in bits where no pointer has any: completions with
//     contexts of the provider's own, of closed links, or none, are told apart.
//   - The address vector may give a number again (fi_addr_t): no number outlives its link.
// Based on: measurements of libfabric 1.17 (docs/fabric.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fabric/libfabric/fi_handles.h"
#include "fabric/nic.h"

namespace tandem {

// The provider for endpoints at `host` (an address of this machine): the first of kFiProviders that
// can do it. UNAVAILABLE when there is none.
Result<fi::Info> FindProvider(const std::string& host);
// By preference. "tcp" means exactly that name, which is a native RDM provider from libfabric 1.18
// on; before, it was called "net", and asking for "tcp" gives "tcp;ofi_rxm".
inline constexpr std::string_view kFiProviders[] = {"efa", "verbs;ofi_rxm", "tcp", "net",
                                                    "tcp;ofi_rxm"};

class FiNic final : public Nic {
 public:
  // UNAVAILABLE when no provider serves `host`.
  static Result<std::unique_ptr<FiNic>> Open(const std::string& host);
  ~FiNic() override;

  std::string kind() const override { return name_; }
  std::string address() const override { return address_; }
  bool Reaches(std::string_view address) const override;
  bool is_same_host() const override { return false; }
  uint32_t link_depth() const override { return link_depth_; }
  Result<NicRegionId> RegisterLocal(std::span<std::byte> memory) override;
  Result<NicRegionId> RegisterRemote(std::span<std::byte> memory,
                                     RemoteRegion::Nic* remote) override;
  void CloseRegion(NicRegionId region) override;
  Result<NicLinkId> OpenLink(std::string_view address) override;
  void CloseLink(NicLinkId link) override;
  Taken Write(NicLinkId link, const NicWrite& write) override;
  Taken Send(NicLinkId link, std::span<const std::byte> message, uint64_t context) override;
  bool Poll(std::vector<NicEvent>* events) override;
  int wait_fd() const override { return epoll_fd_; }
  bool PrepareWait() override;

 private:
  // An endpoint and all that it needs, in the order in which they depend on each other.
  struct Port {
    fi::Domain domain;
    fi::Av av;
    // Only of "net": its fi_trywait does nothing, and a descriptor that was readable stays so.
    fi::WaitSet wait_set;
    fi::Cq cq;
    int wait_fd = -1;
    fi::Ep ep;
  };
  struct Region {
    Port port;  // of remote regions
    fi::Mr mr;  // null for local memory where the provider wants none
  };
  struct Link {
    std::string address;
    fi::Ep ep;
    fi_addr_t main = FI_ADDR_UNSPEC;
    std::unordered_map<std::string, fi_addr_t> endpoints;  // of remote regions
    bool hello_wanted = true;                              // not posted yet
    bool lost = false;                                     // told so
  };
  // A message on its way out.
  struct Outgoing {
    uint32_t generation = 1;
    bool used = false;
    NicLinkId link;
    uint64_t context = 0;  // 0: a hello
    std::vector<std::byte> bytes;
    fi::Mr mr;
  };
  struct Incoming {
    std::vector<std::byte> bytes;
    fi::Mr mr;
  };

  FiNic() = default;
  Status Start(fi::Info info);
  Result<Port> OpenPort();
  Status OpenQueue(Port* port);
  Result<fi::Ep> OpenEndpoint(const Port& port);
  static Result<std::string> NameOfEndpoint(fid_ep* ep);
  Result<fi::Mr> RegisterMemory(const Port& port, std::span<std::byte> memory, uint64_t access);
  bool local_mr() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  void PostReceive(size_t index);
  fi_addr_t Resolve(Link* link, const std::string& endpoint);
  Taken PostMessage(NicLinkId id, Link* link, char kind, std::span<const std::byte> message,
                    uint64_t context);
  void FreeOutgoing(size_t index);
  bool PollPort(const Port& port, std::vector<NicEvent>* events);
  bool PostHellos(std::vector<NicEvent>* events);
  void OnCompletion(const fi_cq_data_entry& entry, std::vector<NicEvent>* events);
  void OnReceived(size_t index, size_t size, std::vector<NicEvent>* events);
  void OnSent(uint64_t slot, const Status& status, std::vector<NicEvent>* events);
  bool ReadErrors(const Port& port, std::vector<NicEvent>* events);
  void OnError(const fi_cq_err_entry& error, std::vector<NicEvent>* events);
  void Lose(NicLinkId id, const Status& why, std::vector<NicEvent>* events);

  std::string name_;
  std::string address_;
  uint32_t link_depth_ = 0;
  int epoll_fd_ = -1;  // of all ports' descriptors

  // In the order in which they depend on each other.
  fi::Info info_;
  fi::Fabric fabric_;
  Port main_;  // its endpoint gets messages; links send from theirs
  std::vector<Incoming> incoming_;
  std::vector<Outgoing> outgoing_;
  std::unordered_map<NicRegionId, Region> regions_;
  std::unordered_map<NicLinkId, Link> links_;

  // Which link a posted write belongs to, for the error that ends the link.
  std::unordered_map<uint64_t, NicLinkId> writes_;
  uint32_t last_region_ = 0;
  uint32_t last_link_ = 0;
  uint32_t hellos_wanted_ = 0;
};

}  // namespace tandem
