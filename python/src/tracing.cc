// SPDX-License-Identifier: MIT
// Traces as Python objects (hologram/trace.h), and what NumPy computes as notes in them.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <map>
#include <mutex>
#include <string>
#include <unordered_set>

#include "convert.h"
#include "hologram/recorder.h"
#include "hologram/trace.h"
#include "looks.h"
#include "objects.h"

namespace hologram::python {

void Look::begin(const char* what) {
  outer_ = internal::exchange_cause(what);
  if (outer_ != nullptr) internal::exchange_cause(outer_);
}
void Look::end() const { internal::exchange_cause(outer_); }

namespace {

template <class Values>
nb::list list_of(const Values& values) {
  nb::list list;
  for (const auto value : values) list.append(uint64_t{value});
  return list;
}

nb::dict shape_dict(const CircuitShape& shape) {
  nb::list launches;
  for (const LaunchInfo& launch : shape.launches) {
    launches.append(nb::make_tuple(launch.name, launch.launch, launch.kernels, launch.bytes));
  }
  nb::dict d;
  d["ops_json"] = shape.ops_json;
  d["plan_json"] = shape.plan_json;
  d["ops_text"] = shape.ops_text;
  d["plan_text"] = shape.plan_text;
  d["slot_states"] = list_of(shape.slot_states);
  d["launches"] = launches;
  return d;
}

nb::dict circuit_dict(const CircuitTrace& circuit, size_t shape) {
  nb::list times, numbers;
  for (const LaunchTime& time : circuit.times) {
    times.append(nb::make_tuple(time.begin_ns, time.end_ns, time.first));
  }
  for (size_t i = 0; i < circuit.numbers.size(); ++i) {
    numbers.append(number_text(circuit.shape->number_dtypes[i], circuit.numbers[i]));
  }
  nb::dict d;
  d["shape"] = shape;
  d["cause"] = circuit.cause;
  d["plan_hit"] = circuit.plan_hit;
  d["failed"] = circuit.failed;
  d["circuit"] = circuit.circuit;
  d["thread"] = circuit.thread;
  d["sealed_ns"] = circuit.sealed_ns;
  d["begin_ns"] = circuit.begin_ns;
  d["end_ns"] = circuit.end_ns;
  d["times"] = times;
  d["numbers"] = numbers;
  d["buffers"] = list_of(circuit.buffers);
  d["buffer_bytes"] = list_of(circuit.buffer_bytes);
  return d;
}

const char* reason_name(AtCall why) {
  switch (why) {
    case AtCall::kSmall:
      return "small";
    case AtCall::kElement:
      return "element";
    case AtCall::kShared:
      return "shared";
    case AtCall::kValues:
      return "values";
    case AtCall::kForm:
      return "form";
    case AtCall::kEager:
      return "eager";
    case AtCall::kNumpy:
      return "NumPy";
  }
  return "unknown";
}

nb::dict stop(uint64_t trace) {
  const std::vector<CallNote> calls = call_notes(trace);
  const auto circuits = stop_tracing(trace);
  std::map<uint64_t, size_t> known;
  nb::list shapes, runs, notes;
  for (const auto& circuit : circuits) {
    const auto [at, fresh] = known.emplace(circuit->shape->id, known.size());
    if (fresh) shapes.append(shape_dict(*circuit->shape));
    runs.append(circuit_dict(*circuit, at->second));
  }
  for (const CallNote& note : calls) {
    notes.append(
        nb::make_tuple(note.op, reason_name(note.why), note.buffer, note.circuit, note.count));
  }
  nb::dict result;
  result["shapes"] = shapes;
  result["circuits"] = runs;
  result["notes"] = notes;
  return result;
}

// A name that lives as long as the process, as causes of circuits have to: they may run later.
const char* lasting(const std::string& name) {
  static auto& names = *new std::unordered_set<std::string>;
  static auto& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

// A function of NumPy that runs on our memory: what it makes run, it is the cause of.
struct NumpyCall {
  const char* name;
  const char* outer = nullptr;
};

uint64_t buffer_id(nb::handle object) {
  const Buffer* buffer = nullptr;
  if (const TensorObject* tensor = tensor_of(object.ptr()))
    buffer = tensor->tensor().buffer().get();
  if (const BufferObject* held = buffer_of(object.ptr())) buffer = held->buffer.get();
  return reinterpret_cast<uintptr_t>(buffer);
}

}  // namespace

void register_tracing(nb::module_& m) {
  m.def(
      "_start_tracing",
      [](int index, bool at_call) {
        return start_tracing(index < 0 ? default_device() : device(index), at_call);
      },
      nb::arg("device") = -1, nb::arg("at_call") = false,
      "Begin to trace a device of this index, or that of arrays; with `at_call` ops run at their\n"
      "calls as ever and are noted, else all are recorded. Return the number of the trace.");
  m.def("_stop_tracing", &stop, nb::arg("trace"),
        nb::sig("def _stop_tracing(trace: int) -> dict[str, typing.Any]"),
        "End a trace and return its shapes, circuits and notes. ValueError for another number.");
  m.def(
      "_flush",
      [] {
        const Unlocked unlocked;
        flush(default_device());
      },
      "Run what is recorded on the device of arrays.");
  m.def("_buffer_id", &buffer_id, nb::arg("x"), nb::sig("def _buffer_id(x: typing.Any) -> int"),
        "Return the number by which traces call the memory of a Tensor or Buffer; 0 for others.");
  nb::class_<NumpyCall>(m, "_NumpyCall", "A call of a function of NumPy's, as traces see it.")
      .def(
          "__init__",
          [](NumpyCall* self, const std::string& name) { new (self) NumpyCall{lasting(name)}; },
          nb::arg("name"))
      .def("__enter__",
           [](NumpyCall& self) {
             note_at_call(default_device(), self.name, AtCall::kNumpy);
             self.outer = internal::exchange_cause(self.name);
           })
      .def(
          "__exit__",
          [](NumpyCall& self, nb::handle, nb::handle, nb::handle) {
            internal::exchange_cause(self.outer);
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none());
}

}  // namespace hologram::python
