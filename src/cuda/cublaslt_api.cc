// SPDX-License-Identifier: MIT
// Finds cuBLASLt.
#include "src/cuda/cublaslt_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "src/cuda/find_library.h"

namespace hologram::cuda::lt {
namespace {

constexpr char kVariable[] = "HOLOGRAM_CUBLASLT_LIBRARY";

struct Library {
  const Api* api = nullptr;  // for the life of the process, like the library
  std::string why;           // there is none
};

Library load_library() {
  const char* const named = std::getenv(kVariable);
  if (named != nullptr && std::string_view(named) == "none") {
    return {nullptr, std::string(kVariable) + "=none"};
  }
  const FoundLibrary found =
      find_library(kVariable, {"libcublasLt.so.13", "libcublasLt.so.12"}, WheelsCome::kFirst);
  if (found.library == nullptr) return {nullptr, found.why};
  auto api = std::make_unique<Api>();
  std::string missing;
  const auto find = [&](const char* name, auto& pointer) {
    pointer =
        reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(found.library, name));
    if (pointer == nullptr && missing.empty()) missing = name;
  };
#define HOLOGRAM_LT_LOAD(name, parameters) find("cublasLt" #name, api->name);
  HOLOGRAM_LT_FUNCTIONS(HOLOGRAM_LT_LOAD)
#undef HOLOGRAM_LT_LOAD
  find("cublasLtGetStatusName", api->GetStatusName);
  if (!missing.empty()) {
    return {nullptr,
            found.what + " is no cuBLASLt of CUDA 12 or later: it has no function " + missing};
  }
  return {api.release(), {}};
}

const Library& library() {
  static const Library& found = *new Library(load_library());
  return found;
}

}  // namespace

const Api* api() { return library().api; }
const std::string& why_no_api() { return library().why; }

}  // namespace hologram::cuda::lt
