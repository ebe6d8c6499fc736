#include "fabric/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace tandem {
namespace {

bool IsNetwork(hwloc_obj_t device) {
  const auto type = device->attr->osdev.type;
  return type == HWLOC_OBJ_OSDEV_NETWORK || type == HWLOC_OBJ_OSDEV_OPENFABRICS;
}

}  // namespace

void Topology::Deleter::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

Result<Topology> Topology::Make(const std::string* xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return ResourceExhaustedError("no memory for a topology");
  Topology topology(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (xml != nullptr &&
      hwloc_topology_set_xmlbuffer(raw, xml->c_str(), static_cast<int>(xml->size()) + 1) != 0) {
    return InvalidArgumentError("not a recorded topology");
  }
  if (hwloc_topology_load(raw) != 0) {
    return UnavailableError("the machine's topology cannot be read: {}", strerror(errno));
  }
  return topology;
}

Result<Topology> Topology::Load() { return Make(nullptr); }
Result<Topology> Topology::FromXml(const std::string& xml) { return Make(&xml); }

std::vector<std::string> Topology::Interfaces() const {
  std::vector<std::string> names;
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(topology_.get(), device)) != nullptr) {
    if (IsNetwork(device) && device->name != nullptr && std::strcmp(device->name, "lo") != 0) {
      names.emplace_back(device->name);
    }
  }
  return names;
}

std::optional<int> Topology::Distance(const std::string& interface, int cpu) const {
  const hwloc_obj_t unit =
      cpu < 0 ? nullptr : hwloc_get_pu_obj_by_os_index(topology_.get(), static_cast<unsigned>(cpu));
  if (unit == nullptr) return std::nullopt;
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(topology_.get(), device)) != nullptr) {
    if (!IsNetwork(device) || device->name == nullptr || interface != device->name) continue;
    const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology_.get(), device);
    if (place == nullptr) return std::nullopt;
    const hwloc_obj_t common = hwloc_get_common_ancestor_obj(topology_.get(), unit, place);
    return hwloc_bitmap_weight(common->cpuset);
  }
  return std::nullopt;
}

std::vector<std::string> Topology::NearestInterfaces(std::span<const int> cpus) const {
  int nearest = INT_MAX;
  std::vector<std::string> names;
  for (const std::string& name : Interfaces()) {
    int distance = INT_MAX;
    for (const int cpu : cpus) distance = std::min(distance, Distance(name, cpu).value_or(INT_MAX));
    if (distance == INT_MAX || distance > nearest) continue;
    if (distance < nearest) names.clear();
    nearest = distance;
    names.push_back(name);
  }
  return names;
}

std::optional<int> Topology::WorkerCpu(const std::string& interface,
                                       std::span<const int> taken) const {
  std::optional<int> best;
  int nearest = INT_MAX;
  hwloc_obj_t unit = nullptr;
  while ((unit = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_PU, unit)) != nullptr) {
    const auto cpu = static_cast<int>(unit->os_index);
    if (std::find(taken.begin(), taken.end(), cpu) != taken.end()) continue;
    const std::optional<int> distance = Distance(interface, cpu);
    if (!distance || *distance > nearest || (*distance == nearest && best && cpu < *best)) continue;
    nearest = *distance;
    best = cpu;
  }
  return best;
}

}  // namespace tandem
