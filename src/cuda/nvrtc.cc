// SPDX-License-Identifier: MIT
// See nvrtc.h. Names and numbers are those of NVRTC's documentation.
#include "src/cuda/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hologram/error.h"
#include "src/cuda/find_library.h"
#include "src/cuda/prologue.h"

namespace hologram::cuda {
namespace {

using Program = struct NvrtcProgram*;

// F(name, parameters) for every function, named as in the library without the "nvrtc".
#define HOLOGRAM_NVRTC_FUNCTIONS(F)                                                    \
  F(Version, (int*, int*))                                                             \
  F(GetNumSupportedArchs, (int*))                                                      \
  F(GetSupportedArchs, (int*))                                                         \
  F(CreateProgram,                                                                     \
    (Program*, const char*, const char*, int, const char* const*, const char* const*)) \
  F(DestroyProgram, (Program*))                                                        \
  F(CompileProgram, (Program, int, const char* const*))                                \
  F(GetCUBINSize, (Program, size_t*))                                                  \
  F(GetCUBIN, (Program, char*))                                                        \
  F(GetProgramLogSize, (Program, size_t*))                                             \
  F(GetProgramLog, (Program, char*))

struct Nvrtc {
#define HOLOGRAM_NVRTC_POINTER(name, parameters) int(*name) parameters = nullptr;
  HOLOGRAM_NVRTC_FUNCTIONS(HOLOGRAM_NVRTC_POINTER)
#undef HOLOGRAM_NVRTC_POINTER
  const char* (*GetErrorString)(int) = nullptr;
};

struct Loaded {
  const Nvrtc* api = nullptr;  // for the life of the process, like the library
  std::string why;             // there is none
  int version = 0;
  std::vector<int> architectures;
};

void check(const Nvrtc& api, int code, const char* call) {
  if (code == 0) return;
  fail(ErrorKind::kInternal, "cuda: nvrtc", call, " returned ", code, " (",
       api.GetErrorString(code), ")");
}

Loaded load() {
  Loaded loaded;
  const FoundLibrary found =
      find_library("HOLOGRAM_NVRTC_LIBRARY", {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
                   WheelsCome::kLast);
  if (found.library == nullptr) {
    loaded.why = found.why;
    return loaded;
  }
  auto api = std::make_unique<Nvrtc>();
  const auto find = [&](const char* name, auto& pointer) {
    pointer =
        reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(found.library, name));
    if (pointer == nullptr && loaded.why.empty()) {
      loaded.why = found.what + " is no NVRTC of version 11.1 or later: it has no function " + name;
    }
  };
#define HOLOGRAM_NVRTC_LOAD(name, parameters) find("nvrtc" #name, api->name);
  HOLOGRAM_NVRTC_FUNCTIONS(HOLOGRAM_NVRTC_LOAD)
#undef HOLOGRAM_NVRTC_LOAD
  find("nvrtcGetErrorString", api->GetErrorString);
  if (!loaded.why.empty()) return loaded;
  int major = 0, minor = 0, count = 0;
  check(*api, api->Version(&major, &minor), "Version");
  loaded.version = major * 1000 + minor;
  check(*api, api->GetNumSupportedArchs(&count), "GetNumSupportedArchs");
  loaded.architectures.resize(static_cast<size_t>(count));
  check(*api, api->GetSupportedArchs(loaded.architectures.data()), "GetSupportedArchs");
  loaded.api = api.release();
  return loaded;
}

const Loaded& loaded() {
  static const Loaded& found = *new Loaded(load());  // errors name its text to the end
  return found;
}

// What the library says of a program, by a function of the size and one of the bytes.
template <class SizeOf, class Get>
std::string bytes_of(const Nvrtc& api, Program program, SizeOf size_of, Get get, const char* call) {
  size_t size = 0;
  check(api, size_of(program, &size), call);
  std::string bytes(size, '\0');
  if (size != 0) check(api, get(program, bytes.data()), call);
  return bytes;
}

}  // namespace

bool has_nvrtc() { return loaded().api != nullptr; }
const std::string& why_no_nvrtc() { return loaded().why; }
int nvrtc_version() { return loaded().version; }

bool supports(int architecture) {
  const std::vector<int>& known = loaded().architectures;
  return std::find(known.begin(), known.end(), architecture) != known.end();
}

Image compile(const std::string& text, int architecture, std::span<const char* const> more) {
  if (!has_nvrtc()) fail(ErrorKind::kNotSupported, "cuda: no compiler: ", why_no_nvrtc());
  const Nvrtc& api = *loaded().api;
  const std::string source = std::string(kPrologue) + text;
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  std::vector<const char*> options = {target.c_str(),    "--std=c++17",      "--fmad=false",
                                      "--prec-div=true", "--prec-sqrt=true", "--ftz=false"};
  options.insert(options.end(), more.begin(), more.end());
  Program made = nullptr;
  check(api, api.CreateProgram(&made, source.c_str(), "hologram.cu", 0, nullptr, nullptr),
        "CreateProgram");
  const auto destroy = [&api](Program program) { api.DestroyProgram(&program); };
  const std::unique_ptr<NvrtcProgram, decltype(destroy)> program(made, destroy);
  const int code = api.CompileProgram(made, static_cast<int>(options.size()), options.data());
  Image image;
  image.log = bytes_of(api, made, api.GetProgramLogSize, api.GetProgramLog, "GetProgramLog");
  while (!image.log.empty() && image.log.back() == '\0') image.log.pop_back();
  if (code != 0) {
    fail(ErrorKind::kInternal, "cuda: the compiler refuses a program for sm_", architecture, " (",
         api.GetErrorString(code), "): ", image.log, "\n", source);
  }
  image.bytes = bytes_of(api, made, api.GetCUBINSize, api.GetCUBIN, "GetCUBIN");
  return image;
}

}  // namespace hologram::cuda
