// SPDX-License-Identifier: MIT
// Limits of control groups, read from trees that were recorded on machines and in containers.
#include "src/base/cgroups.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace hologram::internal {
namespace {

namespace fs = std::filesystem;
using Files = std::map<std::string, std::string>;

class CgroupsTest : public ::testing::Test {
 protected:
  // A folder that holds these files, as root of a machine.
  std::string machine(const Files& files) {
    std::string name = (fs::temp_directory_path() / "hologram_cgroups_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folders_.push_back(name);
    for (const auto& [path, text] : files) {
      const fs::path file = name + path;
      fs::create_directories(file.parent_path());
      std::ofstream(file) << text;
    }
    return name;
  }
  void TearDown() override {
    for (const std::string& folder : folders_) fs::remove_all(folder);
  }

 private:
  std::vector<std::string> folders_;
};

constexpr const char* kUnified =
    "22 29 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n"
    "29 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

// Debian 12 without a container: no group on the way sets a limit, and the outermost has no files.
TEST_F(CgroupsTest, AMachineWithoutQuotasHasNone) {
  const std::string root = machine({
      {"/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n"},
      {"/proc/self/mountinfo", kUnified},
      {"/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/user.slice/memory.max", "max\n"},
      {"/sys/fs/cgroup/user.slice/user-1000.slice/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/cgroup.procs", "1\n"},
  });
  EXPECT_EQ(cgroup_processors(root), 0);
  EXPECT_EQ(cgroup_memory_limit(root), 0u);
  EXPECT_EQ(cgroup_memory_used(root), 0u);
}

// docker run --cpus 2.5 --memory 1g, version 2: the container sees its group as the outermost.
TEST_F(CgroupsTest, AContainerSeesItsOwnGroupAsTheOutermost) {
  const std::string root = machine({
      {"/proc/self/cgroup", "0::/\n"},
      {"/proc/self/mountinfo",
       "1093 1092 0:30 / /sys/fs/cgroup ro,nosuid,nodev,noexec - cgroup2 cgroup rw,nsdelegate\n"},
      {"/sys/fs/cgroup/cpu.max", "250000 100000\n"},
      {"/sys/fs/cgroup/memory.max", "1073741824\n"},
      {"/sys/fs/cgroup/memory.current", "7340032\n"},
  });
  EXPECT_EQ(cgroup_processors(root), 2);  // two and a half
  EXPECT_EQ(cgroup_memory_limit(root), size_t{1} << 30);
  EXPECT_EQ(cgroup_memory_used(root), 7340032u);
}

// Kubernetes with the host's groups in sight: the pod's quota is smaller than the container's.
TEST_F(CgroupsTest, TheSmallestQuotaOnTheWayUpCounts) {
  const std::string pod = "/sys/fs/cgroup/kubepods.slice/kubepods-pod1.slice";
  Files files{
      {"/proc/self/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n"},
      {"/proc/self/mountinfo", kUnified},
      {"/sys/fs/cgroup/kubepods.slice/cpu.max", "6400000 100000\n"},
      {"/sys/fs/cgroup/kubepods.slice/memory.max", "8589934592\n"},
      {pod + "/cpu.max", "400000 100000\n"},
      {pod + "/memory.max", "2147483648\n"},
      {pod + "/cri-containerd-2.scope/cpu.max", "800000 100000\n"},
      {pod + "/cri-containerd-2.scope/memory.max", "max\n"},
  };
  EXPECT_EQ(cgroup_processors(machine(files)), 4);
  EXPECT_EQ(cgroup_memory_limit(machine(files)), size_t{2} << 30);
  files[pod + "/cri-containerd-2.scope/cpu.max"] = "150000 50000\n";
  EXPECT_EQ(cgroup_processors(machine(files)), 3);
  files[pod + "/cri-containerd-2.scope/cpu.max"] = "20000 100000\n";  // a fifth of a processor
  EXPECT_EQ(cgroup_processors(machine(files)), 1);
}

// docker run --cpus 3 on version 1: what /proc names is the host's path, and the group is mounted.
TEST_F(CgroupsTest, VersionOneCountsFromTheRootOfItsMount) {
  Files files{
      {"/proc/self/cgroup",
       "11:memory:/docker/b0b1\n4:cpu,cpuacct:/docker/b0b1\n3:cpuset:/docker/b0b1\n"
       "1:name=systemd:/docker/b0b1\n"},
      {"/proc/self/mountinfo",
       "631 630 0:27 /docker/b0b1 /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
       "632 630 0:28 /docker/b0b1 /sys/fs/cgroup/memory ro master:14 - cgroup cgroup rw,memory\n"
       "633 630 0:29 /docker/b0b1 /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"},
      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n"},
      {"/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000\n"},  // another controller's
      {"/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n"},
  };
  const std::string root = machine(files);
  EXPECT_EQ(cgroup_processors(root), 3);
  EXPECT_EQ(cgroup_memory_limit(root), size_t{512} << 20);
  EXPECT_EQ(cgroup_memory_used(root), 4096u);
  files["/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us"] = "-1\n";
  EXPECT_EQ(cgroup_processors(machine(files)), 0);
}

// Version 1 nested, seen by the host: both groups have a quota.
TEST_F(CgroupsTest, VersionOneIsWalkedUpToo) {
  const std::string cpu = "/sys/fs/cgroup/cpu";
  EXPECT_EQ(cgroup_processors(machine({
                {"/proc/self/cgroup", "5:cpu:/batch/job7\n0::/batch.slice\n"},
                {"/proc/self/mountinfo",
                 "40 30 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                 "41 30 0:34 / /sys/fs/cgroup/cpu rw shared:19 - cgroup cgroup rw,cpu\n"},
                {cpu + "/cpu.cfs_quota_us", "-1\n"},
                {cpu + "/cpu.cfs_period_us", "100000\n"},
                {cpu + "/batch/cpu.cfs_quota_us", "200000\n"},
                {cpu + "/batch/cpu.cfs_period_us", "100000\n"},
                {cpu + "/batch/job7/cpu.cfs_quota_us", "1000000\n"},
                {cpu + "/batch/job7/cpu.cfs_period_us", "100000\n"},
            })),
            2);
}

// A process that was moved out of what its container can see; a mount point with a space; a mount
// whose name only begins like the path.
TEST_F(CgroupsTest, APathOutsideOfTheMountIsTheMountPoint) {
  EXPECT_EQ(cgroup_processors(machine({
                {"/proc/self/cgroup", "0::/../other\n"},
                {"/proc/self/mountinfo",
                 "35 24 0:30 /pod /mnt/control\\040groups rw - cgroup2 cgroup2 rw\n"},
                {"/mnt/control groups/cpu.max", "500000 100000\n"},
                {"/mnt/other/cpu.max", "100000 100000\n"},
            })),
            5);
  EXPECT_EQ(cgroup_processors(machine({
                {"/proc/self/cgroup", "0::/pod10/a\n"},
                {"/proc/self/mountinfo", "35 24 0:30 /pod1 /groups rw - cgroup2 cgroup2 rw\n"},
                {"/groups/cpu.max", "700000 100000\n"},
                {"/groups/0/a/cpu.max", "100000 100000\n"},
            })),
            7);
}

TEST_F(CgroupsTest, WhatCannotBeReadIsNoLimit) {
  EXPECT_EQ(cgroup_processors(machine({})), 0);
  EXPECT_EQ(cgroup_processors("/there/is/no/such/folder"), 0);
  EXPECT_EQ(cgroup_memory_limit(machine({{"/proc/self/cgroup", "0::/\n"}})), 0u);
  for (const char* text : {"", "\n", "none", "100000", "100000 0", "0 100000", "-5 100000"}) {
    EXPECT_EQ(
        cgroup_processors(machine({{"/proc/self/cgroup", "nonsense\n0::/\n"},
                                   {"/proc/self/mountinfo", "1 2\n- -\n" + std::string(kUnified)},
                                   {"/sys/fs/cgroup/cpu.max", text}})),
        0)
        << text;
  }
  // Where a sandbox hides its mounts, the usual place is read.
  EXPECT_EQ(cgroup_processors(machine(
                {{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/cpu.max", "900000 100000\n"}})),
            9);
}

}  // namespace
}  // namespace hologram::internal
