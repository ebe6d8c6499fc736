// What: how many processors this process may use: scheduling affinity and the CPU quota of its
//   cgroups (v1 and v2).
// Not here: instruction sets (kernels/), topology and NUMA.
// Threads: pure functions of the system's state at the call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// At least 1: the processors in the affinity mask, or fewer where a cgroup's quota is smaller (a
// fraction is rounded down: a team that is larger than its quota is stopped in the middle of work).
int NumUsableProcessors();

// The smallest quota, in processors, on the way from this process's cgroup to the root; none when
// unlimited or unreadable. `proc_cgroup` is the text of /proc/self/cgroup, `mount` where the
// hierarchies are mounted (normally /sys/fs/cgroup).
std::optional<double> CgroupCpuQuota(std::string_view proc_cgroup, const std::string& mount);

// "150000 100000" (the content of a v2 cpu.max) is 1.5; "max 100000", or text that is not a quota,
// is none.
std::optional<double> ParseCpuMax(std::string_view text);

}  // namespace tandem
