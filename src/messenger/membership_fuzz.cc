// Any bytes as an address, as a file of nodes' line and as etcd's answer: no crash, and what is
// accepted says the same when it is read again.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "messenger/membership.h"
#include "messenger/membership_etcd.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto address = tandem::ParseListenAddress(text); address.ok()) {
    const auto again = tandem::ParseListenAddress(address->ToString());
    TANDEM_CHECK(again.ok() && *again == *address);
    TANDEM_CHECK_EQ(tandem::ParseHostPort(text).ok(), address->port != 0);
  }
  (void)tandem::EtcdClient::Create(text.substr(0, 4096));
  const auto keys = tandem::ParseEtcdKeys(text, "/p/");
  if (keys.ok()) TANDEM_CHECK_LE(keys->size(), size);
  return 0;
}
