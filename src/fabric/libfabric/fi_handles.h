// What: owners of libfabric's objects (fi::Info, fi::Fabric, fi::Domain, fi::Av, fi::WaitSet,
//   fi::Cq, fi::Mr, fi::Ep), closed when destroyed; and its errors as Status.
// Not here: what is done with them (fi_nic.h).
// Threads: values of one owner.
// Invariants: an object is destroyed before what it was made from: declare members in the order
//   Info, Fabric, Domain, Av, WaitSet, Cq, Mr, Ep.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <string_view>

#include "base/log.h"
#include "base/status.h"

namespace tandem::fi {

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

// Any object that begins with a fid.
struct Closer {
  template <typename Object>
  void operator()(Object* object) const {
    const int result = fi_close(&object->fid);
    if (result != 0) LogError("libfabric did not close an object: {}", fi_strerror(-result));
  }
};
using Fabric = std::unique_ptr<fid_fabric, Closer>;
using Domain = std::unique_ptr<fid_domain, Closer>;
using Av = std::unique_ptr<fid_av, Closer>;
using Cq = std::unique_ptr<fid_cq, Closer>;
using WaitSet = std::unique_ptr<fid_wait, Closer>;
using Mr = std::unique_ptr<fid_mr, Closer>;
using Ep = std::unique_ptr<fid_ep, Closer>;

// OK for 0 or more; else UNAVAILABLE with `what` and libfabric's text.
inline Status ToStatus(int64_t result, std::string_view what) {
  if (result >= 0) return OkStatus();
  return UnavailableError("{}: {}", what, fi_strerror(static_cast<int>(-result)));
}

}  // namespace tandem::fi
