// SPDX-License-Identifier: MIT
// Reads /proc/self/cgroup and /proc/self/mountinfo, then the files of each group on the way up.
//
// In a container the process may see its group as "/", or by a path of the host that is not
// mounted. So a path counts from the root of its mount (the fourth field of mountinfo), and one
// that lies outside of it is the mount point itself.
#include "src/base/cgroups.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace hologram::internal {
namespace {

struct Mount {
  std::string root;  // the group that is mounted
  std::string point;
  std::string controllers;  // empty for version 2
  bool is_unified;
};

// A membership: of one group in the tree of version 2, or in one of those of version 1.
struct Membership {
  std::string path;
  bool is_unified;
};

bool is_listed(std::string_view list, std::string_view word) {
  while (true) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

// mountinfo writes a space, a tab, a line's end and a backslash as three octal digits.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '3') {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // "36 35 98:0 ROOT POINT options [optional fields] - TYPE source SUPER_OPTIONS"
    std::istringstream words(line);
    std::string skipped, from, point, type, options;
    words >> skipped >> skipped >> skipped >> from >> point;
    while (words >> skipped && skipped != "-") {
    }
    if (!(words >> type >> skipped >> options)) continue;
    if (type != "cgroup" && type != "cgroup2") continue;
    found.push_back({unescaped(from), unescaped(point), options, type == "cgroup2"});
  }
  // Where a sandbox hides its mounts, the usual place is tried.
  if (found.empty()) found.push_back({"/", "/sys/fs/cgroup", "", true});
  return found;
}

std::vector<Membership> memberships(const std::string& root, std::string_view controller) {
  std::vector<Membership> found;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      found.push_back({path, true});
    } else if (is_listed(controllers, controller)) {
      found.push_back({path, false});
    }
  }
  return found;
}

// The path of a group below its mount point, without a slash at the end.
std::string below(const Mount& mount, const std::string& path) {
  const std::string from = mount.root == "/" ? "" : mount.root;
  const bool is_inside = path.compare(0, from.size(), from) == 0 &&
                         (path.size() == from.size() || path[from.size()] == '/') &&
                         path.find("/..") == std::string::npos;
  std::string rest = is_inside ? path.substr(from.size()) : "";
  while (!rest.empty() && rest.back() == '/') rest.pop_back();
  return rest;
}

// Calls visit(folder, is_unified) for the group of a controller and each group around it.
template <class F>
void walk_up(const std::string& root, std::string_view controller, F&& visit) {
  const std::vector<Mount> all = mounts(root);
  for (const Membership& member : memberships(root, controller)) {
    for (const Mount& mount : all) {
      if (mount.is_unified != member.is_unified) continue;
      if (!mount.is_unified && !is_listed(mount.controllers, controller)) continue;
      std::string inside = below(mount, member.path);
      while (true) {
        visit(root + mount.point + inside, mount.is_unified);
        if (inside.empty()) break;
        inside.resize(inside.rfind('/'));
      }
    }
  }
}

// The number of a file that follows `skip` words; none where there is another word, such as "max".
std::optional<int64_t> number_in(const std::string& path, int skip = 0) {
  std::ifstream file(path);
  std::string word;
  while (skip-- > 0) file >> word;
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

size_t smallest(const std::string& root, const char* unified_name, const char* name) {
  size_t least = 0;
  walk_up(root, "memory", [&](const std::string& folder, bool is_unified) {
    const auto value = number_in(folder + "/" + (is_unified ? unified_name : name));
    if (!value.has_value() || *value <= 0) return;
    least = least == 0 ? static_cast<size_t>(*value) : std::min(least, static_cast<size_t>(*value));
  });
  return least;
}

}  // namespace

const std::string& system_root() {
  static const std::string root = [] {
    const char* named = std::getenv("HOLOGRAM_SYSTEM_ROOT");
    return std::string(named != nullptr ? named : "");
  }();
  return root;
}

int cgroup_processors(const std::string& root) {
  int64_t least = 0;
  walk_up(root, "cpu", [&](const std::string& folder, bool is_unified) {
    const auto quota =
        is_unified ? number_in(folder + "/cpu.max") : number_in(folder + "/cpu.cfs_quota_us");
    const auto period =
        is_unified ? number_in(folder + "/cpu.max", 1) : number_in(folder + "/cpu.cfs_period_us");
    if (!quota.has_value() || *quota <= 0 || !period.has_value() || *period <= 0) return;
    const int64_t whole = std::max<int64_t>(*quota / *period, 1);
    least = least == 0 ? whole : std::min(least, whole);
  });
  return static_cast<int>(std::min<int64_t>(least, std::numeric_limits<int>::max()));
}

size_t cgroup_memory_limit(const std::string& root) {
  return smallest(root, "memory.max", "memory.limit_in_bytes");
}
size_t cgroup_memory_used(const std::string& root) {
  return smallest(root, "memory.current", "memory.usage_in_bytes");
}

}  // namespace hologram::internal
