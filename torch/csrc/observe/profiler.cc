// SPDX-License-Identifier: MIT
// Reports launches as events of PyTorch's profiler.
#include "observe/profiler.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <memory>
#include <new>

#include "device/tensor.h"
#include "hologram/trace.h"
#include "observe/kineto.h"
#include "observe/op_marks.h"

namespace hologram_torch {
namespace {

namespace py = pybind11;

// The line of Python that this thread is at, if it runs any.
std::string python_line() {
  if (!Py_IsInitialized()) return {};
  const py::gil_scoped_acquire gil;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string line;
  while (frame) {
    auto* const at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
    const auto file = py::cast<std::string>(code.attr("co_filename"));
    // The program's own line says more than one of PyTorch's; the innermost is better than none.
    const bool is_theirs = is_library_file(file);
    if (line.empty() || !is_theirs) line = file + ":" + std::to_string(PyFrame_GetLineNumber(at));
    if (!is_theirs) break;
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(at)));
  }
  return line;
}

constexpr at::RecordScope kScope = at::RecordScope::FUNCTION;

// The state that makes a thread a profiled one. It holds nothing of Python: the thread that holds
// the GIL may be waiting for the one that takes this over.
class Profiled {
 public:
  // Gives what it holds to this thread and takes what that had.
  void exchange() {
    at::RecordFunctionTLS before = at::get_record_function_tls_();
    at::set_record_function_tls_(functions_);
    functions_ = std::move(before);
    std::shared_ptr<c10::ThreadLocalDebugInfo> info = c10::ThreadLocalDebugInfo::current();
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(info_));
    info_ = std::move(info);
  }

 private:
  at::RecordFunctionTLS functions_ = at::get_record_function_tls_();
  std::shared_ptr<c10::ThreadLocalDebugInfo> info_ = c10::ThreadLocalDebugInfo::current();
};

// A launch as a profiler sees it: an event of the device, or, for a profiler that collects none of
// those, of the thread that runs it.
struct ShownLaunch {
  void* on_timeline = nullptr;
  std::unique_ptr<at::RecordFunction> on_thread;
};

const hologram::LaunchObserver kObserver = {
    [] { return is_timeline_on() || at::getStepCallbacksUnlessEmpty(kScope).has_value(); },
    [](const hologram::Launch& launch) -> void* {
      try {
        auto shown = std::make_unique<ShownLaunch>();
        if (is_timeline_on()) {
          shown->on_timeline = begin_on_timeline(launch);
        } else {
          shown->on_thread = std::make_unique<at::RecordFunction>(kScope);
          if (shown->on_thread->isActive()) {
            shown->on_thread->before(std::string("hologram::") + launch.name);
          }
        }
        return shown.release();
      } catch (const std::bad_alloc&) {
        return nullptr;
      }
    },
    [](void* token) {
      const std::unique_ptr<ShownLaunch> shown(static_cast<ShownLaunch*>(token));
      if (shown != nullptr && shown->on_timeline != nullptr) end_on_timeline(shown->on_timeline);
    },
    []() -> void* { return new (std::nothrow) Profiled(); },
    [](void* profiled) { static_cast<Profiled*>(profiled)->exchange(); },
    [](void* profiled) {
      static_cast<Profiled*>(profiled)->exchange();
      delete static_cast<Profiled*>(profiled);
    },
    &mark_op,
};

// The number by which traces call the memory of a tensor, 0 for memory that is not ours.
int64_t buffer_id(const at::Tensor& t) {
  if (!t.has_storage() || !is_ours(t)) return 0;
  return reinterpret_cast<intptr_t>(
      buffer_of(*t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()));
}

}  // namespace

void show_launches_to_profilers() {
  std::vector<std::string> folders;
  for (const char* package : {"torch", "hologram_torch"}) {
    const py::object path = py::module_::import(package).attr("__path__");
    folders.push_back(py::cast<std::string>(path.attr("__getitem__")(0)) + "/");
  }
  set_library_folders(std::move(folders));
  hologram::set_launch_observer(&kObserver);
  hologram::set_record_site(&python_line);
}

void bind_profiler(py::module_& m) {
  m.def("profiles_on", [] { return g_profiles.load(); });
}

// Tensors cross from Python through an operator, as in module.cc.
TORCH_LIBRARY_FRAGMENT(hologram, m) { m.def("_buffer_id(Tensor t) -> int", &buffer_id); }

}  // namespace hologram_torch
