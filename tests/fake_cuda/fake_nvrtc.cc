// SPDX-License-Identifier: MIT
// libnvrtc_fake.so, see fake_cuda.h: a program's machine code is a line that names its
// architecture, and its text. A line "#error ..." is what it refuses.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

namespace {

constexpr int kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5, kCompilation = 6;
constexpr int kArchitectures[] = {80, 90};

struct Program {
  std::string text;
  std::string image;
  std::string log;
};

int give(const std::string& bytes, char* to) {
  std::memcpy(to, bytes.c_str(), bytes.size() + 1);
  return 0;
}

}  // namespace

#define FAKE_API extern "C" __attribute__((visibility("default")))

FAKE_API int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
FAKE_API int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(kArchitectures));
  return 0;
}
FAKE_API int nvrtcGetSupportedArchs(int* found) {
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), found);
  return 0;
}
FAKE_API const char* nvrtcGetErrorString(int code) {
  return code == kCompilation ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_OF_THE_FAKE";
}
FAKE_API int nvrtcCreateProgram(Program** made, const char* text, const char* name, int headers,
                                const char* const*, const char* const*) {
  if (text == nullptr || name == nullptr || headers != 0) return kInvalidInput;
  *made = new Program{text, {}, {}};
  return 0;
}
FAKE_API int nvrtcDestroyProgram(Program** program) {
  if (*program == nullptr) return kInvalidProgram;
  delete *program;
  *program = nullptr;
  return 0;
}
FAKE_API int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  constexpr std::string_view kTarget = "--gpu-architecture=sm_";
  std::string target;
  bool exact = false;
  for (int i = 0; i < count; ++i) {
    const std::string_view option = options[i];
    if (option.starts_with(kTarget)) target = option.substr(kTarget.size());
    exact = exact || option == "--fmad=false";
  }
  if (target.empty() || !exact) {
    program->log = "the architecture, or --fmad=false, is missing";
    return kInvalidOption;
  }
  const size_t error = program->text.find("#error ");
  if (error != std::string::npos) {
    const size_t end = std::min(program->text.find('\n', error), program->text.size());
    program->log = "hologram.cu: error: " + program->text.substr(error, end - error);
    return kCompilation;
  }
  program->image = "fake sm_" + target + "\n" + program->text;
  return 0;
}
FAKE_API int nvrtcGetCUBINSize(Program* program, size_t* size) {
  *size = program->image.size() + 1;
  return 0;
}
FAKE_API int nvrtcGetCUBIN(Program* program, char* to) { return give(program->image, to); }
FAKE_API int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  *size = program->log.size() + 1;
  return 0;
}
FAKE_API int nvrtcGetProgramLog(Program* program, char* to) { return give(program->log, to); }
