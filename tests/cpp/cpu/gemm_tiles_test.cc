// SPDX-License-Identifier: MIT
// Into how many tiles products are cut on large machines and in containers.
#include "src/cpu/gemm/gemm_tiles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hologram/parallel.h"

namespace hologram::cpu {
namespace {

namespace fs = std::filesystem;

std::atomic<int> g_tiles{0};

// Ends the process with the number of tiles of a product of 2048 cubed on a machine with that many
// processors and this file cpu.max, or with 255 if the number of threads changes it.
void count_tiles(const char* online, const char* cpu_max) {
  std::string root = (fs::temp_directory_path() / "hologram_tiles_XXXXXX").string();
  if (mkdtemp(root.data()) == nullptr) std::exit(254);
  for (const char* folder : {"/proc/self", "/sys/fs/cgroup", "/sys/devices/system/cpu"}) {
    fs::create_directories(root + folder);
  }
  std::ofstream(root + "/proc/self/cgroup") << "0::/\n";
  std::ofstream(root + "/sys/fs/cgroup/cpu.max") << cpu_max;
  std::ofstream(root + "/sys/devices/system/cpu/online") << online;
  setenv("HOLOGRAM_SYSTEM_ROOT", root.c_str(), 1);

  const GemmProvider provider{.name = "counts",
                              .gemm = [](const GemmArgs&) { g_tiles.fetch_add(1); },
                              .tile_work = int64_t{1} << 20};
  float c = 0;
  GemmArgs args{.m = 2048, .n = 2048, .k = 2048, .c = &c, .ldc = 2048};
  const auto tiles = [&] {
    g_tiles.store(0);
    run_tiles(provider, args, 1, {});
    return g_tiles.load();
  };
  const int first = tiles();
  set_num_threads(1);
  const bool is_same = tiles() == first;
  fs::remove_all(root);
  std::exit(is_same ? first : 255);
}

TEST(GemmTiles, AreCutForTheProcessorsAtHandButNotForMoreThanSome) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // Two for each of 32, of 4, of 8 processors, and for one there is nothing to share.
  EXPECT_EXIT(count_tiles("0-191", "max 100000"), ::testing::ExitedWithCode(64), "");
  EXPECT_EXIT(count_tiles("0-191", "450000 100000"), ::testing::ExitedWithCode(8), "");
  EXPECT_EXIT(count_tiles("0-3,6-9", "max 100000"), ::testing::ExitedWithCode(16), "");
  EXPECT_EXIT(count_tiles("0-7", "100000 100000"), ::testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace hologram::cpu
