// SPDX-License-Identifier: MIT
// See programs.h.
#include "src/opencl/programs.h"

#include "src/opencl/kernel_text.h"

namespace hologram::opencl {
namespace {

std::string build_log(Program program, DeviceId device) {
  size_t bytes = 0;
  if (api()->GetProgramBuildInfo(program, device, kProgramBuildLog, 0, nullptr, &bytes) !=
      kSuccess) {
    return "no log";
  }
  std::string log(bytes, '\0');
  api()->GetProgramBuildInfo(program, device, kProgramBuildLog, bytes, log.data(), nullptr);
  return log;
}

}  // namespace

BuiltProgram::BuiltProgram(Context context, DeviceId device, const std::string& options,
                           const std::string& source) {
  Int code = kSuccess;
  const char* text = source.c_str();
  program_ = api()->CreateProgramWithSource(context, 1, &text, nullptr, &code);
  check(code, "clCreateProgramWithSource");
  code = api()->BuildProgram(program_, 1, &device, options.c_str(), nullptr, nullptr);
  if (code != kSuccess) {
    const std::string log = build_log(program_, device);
    api()->ReleaseProgram(program_);
    fail(ErrorKind::kInternal, "opencl: the driver's compiler refuses a program (", code,
         "): ", log, "\n", source);
  }
  kernel_ = api()->CreateKernel(program_, kKernelName, &code);
  if (code != kSuccess) api()->ReleaseProgram(program_);
  check(code, "clCreateKernel");
}

BuiltProgram::~BuiltProgram() {
  api()->ReleaseKernel(kernel_);
  api()->ReleaseProgram(program_);
}

std::shared_ptr<const BuiltProgram> Programs::get(const std::string& source) {
  std::lock_guard lock(mutex_);
  const auto at = known_.find(source);
  if (at != known_.end()) return at->second;
  if (known_.size() >= kKept) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  auto built = std::make_shared<BuiltProgram>(context_, device_, options_, source);
  return known_.emplace(source, std::move(built)).first->second;
}

}  // namespace hologram::opencl
