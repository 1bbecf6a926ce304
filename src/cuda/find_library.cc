// SPDX-License-Identifier: MIT
// See find_library.h.
#include "src/cuda/find_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

namespace hologram::cuda {
namespace {

namespace fs = std::filesystem;

// The folders of Python packages that loaded libraries lie in: this one does, and PyTorch.
std::set<fs::path> package_folders() {
  std::set<fs::path> folders;
  const auto look = [](dl_phdr_info* info, size_t, void* found) {
    const std::string_view path = info->dlpi_name;
    for (const std::string_view name : {"/site-packages/", "/dist-packages/"}) {
      const size_t at = path.rfind(name);
      if (at == path.npos) continue;
      static_cast<std::set<fs::path>*>(found)->insert(path.substr(0, at + name.size()));
    }
    return 0;
  };
  dl_iterate_phdr(look, &folders);
  return folders;
}

std::vector<std::string> in_wheels(std::initializer_list<const char*> names) {
  std::error_code none;
  std::vector<std::string> found;
  for (const fs::path& folder : package_folders()) {
    for (const fs::directory_entry& part : fs::directory_iterator(folder / "nvidia", none)) {
      for (const char* name : names) {
        const fs::path path = part.path() / "lib" / name;
        if (fs::exists(path, none)) found.push_back(path);
      }
    }
  }
  std::sort(found.rbegin(), found.rend(), [](const std::string& a, const std::string& b) {
    return a.substr(a.rfind('.')) < b.substr(b.rfind('.'));
  });
  return found;
}

void* open(const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); }

}  // namespace

FoundLibrary find_library(const char* variable, std::initializer_list<const char*> names,
                          WheelsCome wheels) {
  FoundLibrary found;
  const char* const named = std::getenv(variable);
  if (named != nullptr && *named != '\0') {
    found.what = std::string(variable) + "=" + named;
    found.library = open(named);
  } else {
    found.what = *names.begin();
    std::vector<std::string> all(names.begin(), names.end());
    const std::vector<std::string> brought = in_wheels(names);
    all.insert(wheels == WheelsCome::kFirst ? all.begin() : all.end(), brought.begin(),
               brought.end());
    for (const std::string& name : all) {
      if (found.library == nullptr) found.library = open(name);
    }
    if (found.library == nullptr) open(found.what);  // for its error
  }
  if (found.library == nullptr) {
    const char* const error = dlerror();
    found.why = found.what + " cannot be loaded: " + (error != nullptr ? error : "no reason given");
  }
  return found;
}

}  // namespace hologram::cuda
