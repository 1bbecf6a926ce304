// SPDX-License-Identifier: MIT
// The extension module hologram_torch._C: registrations run when it is loaded; its functions are
// what the Python side of the package needs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/library.h>
#include <torch/version.h>

#include "fallback.h"
#include "generator.h"
#include "hologram/device.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/op.h"
#include "load.h"
#include "native_common.h"
#include "op_info.h"

namespace py = pybind11;

namespace {

at::Generator generator_of(int64_t index) {
  TORCH_CHECK(index == 0, "hologram: no device hologram:", index, "; there is 1 (hologram:0)");
  return hologram_torch::default_generator();
}

std::vector<std::string> available_backends() {
  std::vector<std::string> names;
  for (const hologram::BackendType backend : hologram::list_available_backends()) {
    names.emplace_back(hologram::backend_name(backend));
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

}  // namespace

// Generators cross into Python through an operator, which needs no part of libtorch_python.
TORCH_LIBRARY_FRAGMENT(hologram, m) {
  m.def("_default_generator(int index) -> Generator?", &generator_of);
}

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native part of hologram_torch.";
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
  m.def("list_available_backends", &available_backends);
  m.def("get_backend",
        [] { return hologram::backend_name(hologram::device(hologram::current_device()).kind()); });
  m.def("set_backend", [](const std::string& name) {
    hologram::set_current_device(hologram::device(hologram::parse_backend(name)).index());
  });
  m.def("device_properties", &device_properties, py::arg("index"));
  m.def("set_memory_limit", &hologram::set_memory_limit, py::arg("nbytes"));
}
