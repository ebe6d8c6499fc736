#include "fabric/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two packages of two processors each; two interfaces at the first, one at the second.
constexpr const char* kTwoPackages = R"xml(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
<object type="Machine" os_index="0" cpuset="0xf" complete_cpuset="0xf" nodeset="0x3" complete_nodeset="0x3" allowed_cpuset="0xf" allowed_nodeset="0x3" gp_index="1">
<object type="Package" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="2">
<object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="3" local_memory="1024"/>
<object type="Core" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="4">
<object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="5"/></object>
<object type="Core" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="6">
<object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="7"/></object>
<object type="Bridge" gp_index="8" bridge_type="0-1" depth="0" bridge_pci="0000:[00-ff]">
<object type="PCIDev" gp_index="9" pci_busid="0000:10:00.0" pci_type="0200 [15b3:1017] [0000:0000] 00" pci_link_speed="1.0">
<object type="OSDev" gp_index="10" name="near0" osdev_type="2"/></object>
<object type="PCIDev" gp_index="11" pci_busid="0000:11:00.0" pci_type="0200 [15b3:1017] [0000:0000] 00" pci_link_speed="1.0">
<object type="OSDev" gp_index="12" name="near1" osdev_type="2"/></object>
</object></object>
<object type="Package" os_index="1" cpuset="0xc" complete_cpuset="0xc" nodeset="0x2" complete_nodeset="0x2" gp_index="13">
<object type="NUMANode" os_index="1" cpuset="0xc" complete_cpuset="0xc" nodeset="0x2" complete_nodeset="0x2" gp_index="14" local_memory="1024"/>
<object type="Core" os_index="0" cpuset="0x4" complete_cpuset="0x4" nodeset="0x2" complete_nodeset="0x2" gp_index="15">
<object type="PU" os_index="2" cpuset="0x4" complete_cpuset="0x4" nodeset="0x2" complete_nodeset="0x2" gp_index="16"/></object>
<object type="Core" os_index="1" cpuset="0x8" complete_cpuset="0x8" nodeset="0x2" complete_nodeset="0x2" gp_index="17">
<object type="PU" os_index="3" cpuset="0x8" complete_cpuset="0x8" nodeset="0x2" complete_nodeset="0x2" gp_index="18"/></object>
<object type="Bridge" gp_index="19" bridge_type="0-1" depth="0" bridge_pci="0001:[00-ff]">
<object type="PCIDev" gp_index="20" pci_busid="0001:20:00.0" pci_type="0200 [15b3:1017] [0000:0000] 00" pci_link_speed="1.0">
<object type="OSDev" gp_index="21" name="far0" osdev_type="2"/></object>
</object></object>
</object>
</topology>
)xml";

TEST(Topology, NearestInterfacesAreThoseOfTheProcessorsPackage) {
  auto topology = Topology::FromXml(kTwoPackages);
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  EXPECT_THAT(topology->Interfaces(), ElementsAre("near0", "near1", "far0"));
  EXPECT_THAT(topology->NearestInterfaces(std::vector{0}), ElementsAre("near0", "near1"));
  EXPECT_THAT(topology->NearestInterfaces(std::vector{2, 3}), ElementsAre("far0"));
  EXPECT_THAT(topology->NearestInterfaces(std::vector{99}), IsEmpty());
}

TEST(Topology, WorkerRunsNearItsInterfaceWhereNobodyComputes) {
  auto topology = Topology::FromXml(kTwoPackages);
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->WorkerCpu("near0", {}), 1);
  EXPECT_EQ(topology->WorkerCpu("near0", std::vector{1}), 0);
  EXPECT_EQ(topology->WorkerCpu("near0", std::vector{0, 1}), 3);
  EXPECT_EQ(topology->WorkerCpu("far0", {}), 3);
  EXPECT_EQ(topology->WorkerCpu("far0", std::vector{0, 1, 2, 3}), std::nullopt);
  EXPECT_EQ(topology->WorkerCpu("none", {}), std::nullopt);
}

TEST(Topology, ThisMachineHasOneAndNonsenseIsRefused) {
  EXPECT_TRUE(Topology::Load().ok());
  EXPECT_FALSE(Topology::FromXml("<nonsense>").ok());
}

}  // namespace
}  // namespace tandem
