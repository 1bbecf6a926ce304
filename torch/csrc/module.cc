// SPDX-License-Identifier: MIT
// The extension module hologram_torch._C: registrations run when it is loaded; its functions are
// what the Python side of the package needs.
#include <c10/core/AutogradState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>
#include <torch/version.h>

#include <map>
#include <string>

#include "device/generator.h"
#include "device/graph_function.h"
#include "device/openmp.h"
#include "dispatch/functional.h"
#include "hologram/device.h"
#include "hologram/dtype.h"
#include "hologram/error.h"
#include "hologram/gemm.h"
#include "hologram/memory.h"
#include "hologram/op.h"
#include "hologram/recorder.h"
#include "hologram/version.h"
#include "host/fallback.h"
#include "host/op_info.h"
#include "host/wider_dtypes.h"
#include "observe/memory_history.h"
#include "observe/profiler.h"
#include "ops/custom/program.h"
#include "ops/matmul/matmul_blas.h"
#include "recording/native_common.h"

namespace py = pybind11;

namespace {

at::Generator generator_of(int64_t index) {
  hologram_torch::check_index(index);
  return hologram_torch::default_generator();
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const hologram::BackendType backend : hologram::list_available_backends()) {
    names.emplace_back(hologram::backend_name(backend));
  }
  return names;
}

// Who computes large products, by dtype.
std::map<std::string, std::string> gemm_providers() {
  std::map<std::string, std::string> names;
  for (const hologram::Dtype dtype : {hologram::Dtype::kFloat32, hologram::Dtype::kFloat64,
                                      hologram::Dtype::kBFloat16, hologram::Dtype::kFloat16}) {
    names[std::string(hologram::dtype_name(dtype))] = hologram::gemm_provider_name(dtype);
  }
  return names;
}

py::dict device_properties(int index) {
  const hologram::DeviceProperties p = hologram::device(index).properties();
  py::dict result;
  result["name"] = p.name;
  result["backend"] = hologram::backend_name(p.backend);
  result["architecture"] = p.architecture;
  result["total_memory"] = p.total_memory;
  result["multi_processor_count"] = p.processors;
  return result;
}

hologram::Device& current_device() {
  return hologram_torch::memory_device(hologram_torch::index_of({}));
}

// Of the current device.
py::dict recorder_stats() {
  const hologram::RecorderStats s = hologram::recorder_stats(current_device());
  py::dict result;
  result["ops_recorded"] = s.ops_recorded;
  result["circuits"] = s.circuits;
  result["kernels"] = s.kernels;
  result["plan_hits"] = s.plan_hits;
  result["plan_misses"] = s.plan_misses;
  result["plans"] = s.plans;
  result["bytes_moved"] = s.bytes_moved;
  result["bytes_unfused"] = s.bytes_unfused;
  result["host_kernels"] = s.host_kernels;
  result["host_bytes"] = s.host_bytes;
  return result;
}

// Running what is recorded takes no lock of Python's, but may take long.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

// While it lives, backwards run on the threads that ask for them.
class BackwardHere {
 public:
  BackwardHere() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~BackwardHere() { c10::AutogradState::get_tls_state().set_multithreading_enabled(before_); }
  BackwardHere(const BackwardHere&) = delete;
  BackwardHere& operator=(const BackwardHere&) = delete;

 private:
  const bool before_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
};

// To be asked before anything else of the library, whose interface may differ.
void check_headers(const std::string& built_with) {
  const char* const running = hologram::headers_id();
  if (built_with == running) return;
  throw py::import_error("hologram_torch was built with the headers " + built_with +
                         " of libhologram, but the library that is loaded was built with " +
                         running +
                         ". Install the distributions hologram and hologram-torch of one version, "
                         "or rebuild the second: pip install --no-build-isolation hologram-torch");
}

}  // namespace

// Generators cross into Python through an operator, which needs no part of libtorch_python.
TORCH_LIBRARY_FRAGMENT(hologram, m) {
  m.def("_default_generator(int index) -> Generator?", &generator_of);
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native part of hologram_torch.";
  check_headers(HOLOGRAM_HEADERS_ID);
  m.def("_check_headers", &check_headers);
  hologram_torch::register_torch_gemm();
  hologram_torch::read_fallback_setting();
  hologram_torch::register_wider_composites();
  hologram_torch::register_fallback_over_composites();
  hologram_torch::lend_openmp_threads();
  m.attr("torch_version") = TORCH_VERSION;
  m.def("fallback_counts", [] {
    py::dict counts;
    for (const auto& [name, calls] : hologram_torch::fallback_counts())
      counts[py::str(name)] = calls;
    return counts;
  });
  m.def("reset_fallback_counts", &hologram_torch::reset_fallback_counts);
  m.def("_native_ops", &hologram_torch::native_ops);
  m.def("_op_rows", [] {
    std::vector<std::string> rows;
    for (const hologram::OpInfo& row : hologram::ops()) rows.emplace_back(row.name);
    return rows;
  });
  m.def("device_count", &hologram_torch::device_count);
  m.def("list_available_backends", &available_backends);
  m.def("gemm_providers", &gemm_providers);
  m.def("why_unavailable", [](const std::string& name) { return hologram::why_unavailable(name); });
  m.def("get_backend",
        [] { return hologram::backend_name(hologram::device(hologram::current_device()).kind()); });
  m.def("set_backend", [](const std::string& name) {
    hologram::set_current_device(hologram::device(hologram::parse_backend(name)).index());
  });
  // Whether this version of PyTorch tells a device before its memory is looked at.
  m.attr("can_defer") = hologram_torch::kCanDefer;
  if (!hologram_torch::kCanDefer) hologram::set_deferring(false);
  m.def("is_deferring", &hologram_torch::is_deferring);
  m.def(
      "set_deferring",
      [](bool deferring) { hologram::set_deferring(deferring && hologram_torch::kCanDefer); },
      WithoutGil());
  m.def("flush", &hologram_torch::flush_recorded, WithoutGil());
  // Of the current device. Quicker than by way of PyTorch's functions for accelerators.
  m.def("synchronize", torch::wrap_pybind_function_no_gil([] {
          c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->synchronizeDevice(-1);
        }));
  // Here, not in Python, where Ctrl-C could come between a change of the setting and its end.
  m.def("backward_here", [](const py::object& run, const py::args& args, const py::kwargs& kwargs) {
    const BackwardHere scope;
    return run(*args, **kwargs);
  });
  m.def("notice_foreign_operators", &hologram_torch::notice_foreign_operators);
  m.def("begin_naming", &hologram_torch::begin_naming);
  m.def("end_naming", &hologram_torch::end_naming);
  m.def("recorder_stats", &recorder_stats);
  m.def("is_capturing_graph", &hologram::is_capturing_graph);
  m.def("reset_recorder_stats", [] { hologram::reset_recorder_stats(current_device()); });
  hologram_torch::show_launches_to_profilers();
  hologram_torch::bind_profiler(m);
  hologram_torch::bind_memory_history(m);
  hologram_torch::bind_graph_function(m);
  m.def("device_properties", &device_properties, py::arg("index"));
  if (PyModule_AddFunctions(m.ptr(), hologram_torch::kFunctionalMethods) != 0 ||
      PyModule_AddFunctions(m.ptr(), hologram_torch::kProgramMethods) != 0) {
    throw py::error_already_set();
  }
  m.def("set_memory_limit", &hologram::set_memory_limit, py::arg("nbytes"));
}
