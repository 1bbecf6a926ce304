// SPDX-License-Identifier: MIT
// The module hologram._ffi: the handle interface of hologram.h, function by function.
#include "call.h"

namespace hologram_ffi {
namespace {

constexpr const char* kFloat =
    "\n\nfloat32 buffers: operands of at least n elements, of which the result may be one.";
constexpr const char* kLoss =
    "\n\nWrites loss, sum and count (n) to the buffer `loss` of at least 3 elements; waits, and "
    "returns the\nloss. float32 buffers.";
constexpr const char* kRow = "\n\nBuffers of any dtype but complex, promoted as PyTorch does.";

void add_runtime(Functions& f) {
  f.add<hologram_get_version>("get_version", "", "Return the version of the library.");
  f.add<hologram_new_executor>("new_executor", "", "Return an executor on the CPU.");
  f.add<hologram_new_executor_auto>("new_executor_auto", "",
                                    "Return an executor on the default backend.");
  f.add<hologram_executor_cleanup>("executor_cleanup", "ex", "Free an executor; its buffers stay.");
  f.add<hologram_executor_synchronize, Gil::kReleased>("executor_synchronize", "ex",
                                                       "Wait for everything that is recorded.");
  f.add<hologram_executor_backend>("executor_backend", "ex", "Return the backend's name.");
  f.add<hologram_buffer_cleanup>("buffer_cleanup", "buf", "Free a buffer.");
  f.add<hologram_buffer_length>("buffer_length", "buf", "Return the number of elements.");
  f.add<hologram_buffer_as_ptr, Gil::kReleased>(
      "buffer_as_ptr", "ex, buf",
      "Return the address of the elements, for reading while the buffer is not freed.\n\n"
      "Waits for what is recorded on it; from then on ops on the buffer run at their calls.");
  f.add<hologram_buffer_as_mut_ptr, Gil::kReleased>("buffer_as_mut_ptr", "ex, buf",
                                                    "Return the address for reading and writing.");
  f.add<hologram_clear_all_registries>("clear_all_registries", "",
                                       "Free every handle of the process.");
}

void add_others(Functions& f) {
  f.add<hologram_softmax_f32>("softmax_f32", "ex, x, y, n",
                              std::string("y = softmax of x[0:n].") + kFloat);
  f.add<hologram_gemm_f32>("gemm_f32", "ex, a, b, c, m, n, k",
                           "c [m x n] = a [m x k] b [k x n], row-major float32 buffers.");
  f.add<hologram_matvec_f32>("matvec_f32", "ex, a, x, y, m, n",
                             "y [m] = a [m x n] x [n], row-major float32 buffers.");
  f.add<hologram_softmax>("softmax", "ex, x, y, rows, cols",
                          "Softmax of each of `rows` rows of `cols` elements, any floating dtype.");
  f.add<hologram_log_softmax>("log_softmax", "ex, x, y, rows, cols",
                              "Logarithm of the softmax of each of `rows` rows.");
  f.add<hologram_gemm>("gemm", "ex, a, b, c, m, n, k",
                       "c [m x n] = a [m x k] b [k x n], row-major buffers of one dtype.");
}

}  // namespace

void add_ops(Functions& f) {
  add_runtime(f);
  add_others(f);
#define HOLOGRAM_NAMES_OF(...) #__VA_ARGS__
#define HOLOGRAM_NAMES(...) HOLOGRAM_NAMES_OF(__VA_ARGS__)
#define HOLOGRAM_OP(name, id, arity, ...)                          \
  f.add<hologram_##name>(                                          \
      #name, HOLOGRAM_NAMES(ex, HOLOGRAM_C_GIVES_##arity, out, n), \
      std::string("out = " #name "(" HOLOGRAM_NAMES(HOLOGRAM_C_GIVES_##arity) ").") + kRow);
#include "hologram/elementwise.def"
#define HOLOGRAM_ADD(name, form, what, doc)                                  \
  f.add<hologram_##name>(#name, HOLOGRAM_NAMES(ex, HOLOGRAM_C_GIVES_##form), \
                         std::string(doc) + kFloat);
#define HOLOGRAM_ADD_LOSS(name, terms, doc)                                                \
  f.add<hologram_##name, Gil::kReleased>(#name, HOLOGRAM_NAMES(ex, HOLOGRAM_C_GIVES_LOSS), \
                                         std::string(doc) + kLoss);
  HOLOGRAM_C_FLOAT_FUNCTIONS(HOLOGRAM_ADD, HOLOGRAM_ADD_LOSS)
}

}  // namespace hologram_ffi

PyMODINIT_FUNC PyInit__ffi() {
  using namespace hologram_ffi;  // NOLINT: one function stands outside
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   "hologram._ffi",
                                   "The handle interface of hologram.h.",
                                   -1,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  // Specs are filled once, also where the module is imported again.
  static PyMethodDef* const methods = [] {
    Functions functions;
    add_ops(functions);
    add_calls(functions);
    add_transfers(functions);
    add_tensors(functions);
    return functions.finish();
  }();
  definition.m_methods = methods;
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr || make_tensor_type(module) == nullptr) {
    Py_XDECREF(module);
    return nullptr;
  }
  return module;
}
