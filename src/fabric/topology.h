// What: Topology: where this machine's network interfaces and processors are to each other, and the
//   choice by distance: which interfaces for work on some processors, which processor for an
//   interface's thread.
// Not here: opening interfaces (libfabric/fi_nic.h), their addresses.
// Threads: one at a time.
// Invariants: distance = processors below the lowest common part of the machine; smaller is nearer.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

struct hwloc_topology;

namespace tandem {

class Topology {
 public:
  // This machine's.
  static Result<Topology> Load();
  // A recorded one (lstopo --of xml).
  static Result<Topology> FromXml(const std::string& xml);

  // Names of network interfaces ("eth0", "mlx5_0"), without loopback, in the machine's order.
  std::vector<std::string> Interfaces() const;
  // Those that are nearest to any of the processors; several when they are equally near.
  std::vector<std::string> NearestInterfaces(std::span<const int> cpus) const;
  // The processor nearest to the interface that is not among `taken`, the highest of those equally
  // near; none when all are taken or there is no such interface.
  std::optional<int> WorkerCpu(const std::string& interface, std::span<const int> taken) const;

 private:
  struct Deleter {
    void operator()(hwloc_topology* topology) const;
  };
  explicit Topology(hwloc_topology* topology) : topology_(topology) {}
  static Result<Topology> Make(const std::string* xml);
  // None for unknown names or numbers.
  std::optional<int> Distance(const std::string& interface, int cpu) const;

  std::unique_ptr<hwloc_topology, Deleter> topology_;
};

}  // namespace tandem
