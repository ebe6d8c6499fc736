// The bytes that cross the control connection.
#include <gtest/gtest.h>

#include "fabric/engine_address.h"
#include "fabric/remote_region.h"

namespace tandem {
namespace {

TEST(RemoteRegion, ReadsWhatItWritesAndNothingElse) {
  RemoteRegion region;
  region.bytes = uint64_t{1} << 40;
  region.nics = {{1, 2, ""}, {UINT64_MAX, 3, std::string(RemoteRegion::kMaxEndpointBytes, 'e')}};
  const std::string bytes = region.Encode();
  auto read = RemoteRegion::Decode(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, region);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(RemoteRegion::Decode(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(RemoteRegion::Decode(bytes + "x").ok());
}

TEST(EngineAddress, ReadsWhatItWritesAndNothingElse) {
  EngineAddress address;
  address.engine = 77;
  address.nics = {{"host", "here"}, {"tcp", std::string(16, '\0')}};
  const std::string bytes = address.Encode();
  auto read = EngineAddress::Decode(bytes);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, address);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(EngineAddress::Decode(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(EngineAddress::Decode(bytes + "x").ok());
}

}  // namespace
}  // namespace tandem
