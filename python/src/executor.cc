// SPDX-License-Identifier: MIT
// hologram.Executor, and what hologram.backend asks the library.
#include "hologram/executor.h"

#include <string>
#include <utility>

#include "dtype.h"
#include "hologram/device.h"
#include "hologram/recorder.h"
#include "looks.h"
#include "objects.h"

namespace hologram::python {

PyTypeObject* executor_type = nullptr;

namespace {

nb::str to_str(BackendType backend) { return nb::str(backend_name(backend)); }

BackendType parse(nb::handle name) {
  // A hologram.backend.BackendType is a str as well.
  if (!nb::isinstance<nb::str>(name)) {
    fail(ErrorKind::kTypeMismatch, "a backend is named by a str or a BackendType, not ",
         name_of_type(name));
  }
  return parse_backend(nb::cast<std::string>(name));
}

nb::object allocate(ExecutorObject& self, nb::handle size, nb::handle dtype) {
  Shape shape = parse_shape(size);
  BufferObject buffer;
  buffer.dtype = parse_dtype(dtype, Dtype::kFloat32);
  buffer.buffer = self.executor->allocate(shape_numel(shape), buffer.dtype);
  buffer.shape = std::move(shape);
  return wrap_as(buffer_type, std::move(buffer));
}

nb::dict stats(ExecutorObject& self) {
  const ExecutorStats own = self.executor->stats();
  const RecorderStats recorded = recorder_stats(self.executor->device());
  nb::dict all;
  all["allocations"] = own.allocations;
  all["boundary_allocations"] = own.boundary_allocations;
  all["bytes_requested"] = own.bytes_requested;
  all["boundary_classes_free"] = own.boundary_classes_free;
  all["work_submitted"] = own.work_submitted;
  all["ops_recorded"] = recorded.ops_recorded;
  all["circuits"] = recorded.circuits;
  all["kernels"] = recorded.kernels;
  all["plan_hits"] = recorded.plan_hits;
  all["plan_misses"] = recorded.plan_misses;
  all["bytes_moved"] = recorded.bytes_moved;
  all["bytes_unfused"] = recorded.bytes_unfused;
  all["host_kernels"] = recorded.host_kernels;
  all["host_bytes"] = recorded.host_bytes;
  return all;
}

void synchronize(ExecutorObject& self) {
  const Look look("synchronize()");
  const Unlocked unlocked;
  self.executor->synchronize();
}

constexpr const char* kExecutorDoc =
    R"(Where ops run: a backend, and the pools that its buffers come from.

    Executor(backend='auto')

`backend` is 'auto' (see hologram.backend.get_default_backend), 'cpu', or another name of
hologram.backend.list_available_backends(); ValueError lists those for any other. Threads may share
an executor. Used as a context manager it waits for its work and closes. Buffers outlive it; every
use of a closed executor but close() raises RuntimeError.)";

constexpr const char* kAllocateDoc = R"(Return a Buffer with undefined contents.

`shape_or_size` is a number of elements or a tuple of sizes. Small buffers come from the executor's
boundary pool while it has room, others from the linear pool; their number has no limit. ValueError
for negative sizes, MemoryError where there is no memory.)";

constexpr const char* kStatsDoc = R"(Return counts as a dict.

Of this executor: allocations, boundary_allocations, bytes_requested, boundary_classes_free,
work_submitted. Of the device that it shares with all others: ops_recorded, circuits and kernels
run, plan_hits, plan_misses, bytes_moved by kernels, bytes_unfused that the ops would have moved one
by one, host_kernels that the host ran for want of one on the device, host_bytes copied for those.)";

}  // namespace

void register_executor(nb::module_& m) {
  nb::class_<ExecutorObject> type(m, "Executor", nb::is_final(), kExecutorDoc);
  executor_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  type.def(
          "__init__",
          [](ExecutorObject* self, nb::handle backend) {
            const BackendType kind = parse(backend);
            new (self) ExecutorObject{Executor::with_backend(kind)};
          },
          nb::arg("backend") = "auto", nb::sig("def __init__(self, backend: str = 'auto') -> None"))
      .def("allocate", &allocate, nb::arg("shape_or_size"), nb::arg("dtype") = nb::none(),
           nb::sig("def allocate(self, shape_or_size: int | collections.abc.Sequence[int], "
                   "dtype: typing.Any = 'float32') -> Buffer"),
           kAllocateDoc)
      .def("synchronize", &synchronize,
           "Wait for all work, and raise the first error that it met since the last time.")
      .def(
          "close", [](ExecutorObject& self) { self.executor->close(); },
          "Refuse all further use. Closing twice is fine; buffers stay usable.")
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, int]"), kStatsDoc)
      .def_prop_ro(
          "backend",
          [](ExecutorObject& self) {
            return helper("hologram.backend", "BackendType", to_str(self.executor->backend()));
          },
          nb::sig("def backend(self) -> hologram.backend.BackendType"),
          "The BackendType, which equals its name: ex.backend == 'cpu'.")
      .def_prop_ro(
          "closed", [](ExecutorObject& self) { return self.executor->closed(); },
          "Whether close() was called.")
      .def(
          "__enter__",
          [](nb::handle self) {
            self_as<ExecutorObject>(self.ptr(), executor_type).executor->check_open("__enter__");
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> Executor"))
      .def(
          "__exit__",
          [](ExecutorObject& self, nb::handle type, nb::handle, nb::handle) {
            // An exception of the body is more useful than one of the work that waited.
            if (type.is_none() && !self.executor->closed()) synchronize(self);
            self.executor->close();
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: typing.Any, value: typing.Any, traceback: typing.Any) "
                  "-> None"))
      .def("_check_open", [](ExecutorObject& self,
                             const std::string& name) { self.executor->check_open(name.c_str()); })
      .def("__repr__", [](ExecutorObject& self) {
        return std::string("<hologram.Executor ") + backend_name(self.executor->backend()) +
               (self.executor->closed() ? ", closed>" : ">");
      });

  m.def(
      "list_available_backends",
      [] {
        nb::list names;
        for (const BackendType kind : list_available_backends()) names.append(to_str(kind));
        return names;
      },
      nb::sig("def list_available_backends() -> list[str]"), "Names of the backends found here.");
  m.def(
      "_why_unavailable", [](const std::string& name) { return why_unavailable(name); },
      nb::arg("name"), nb::sig("def _why_unavailable(name: str) -> str"),
      "Why the backend of a name has no device here; empty where it has one.");
  m.def(
      "default_backend", [] { return to_str(default_backend()); },
      nb::sig("def default_backend() -> str"), "The backend that 'auto' stands for.");
}

}  // namespace hologram::python
