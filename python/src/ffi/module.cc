// SPDX-License-Identifier: MIT
// The module hologram._ffi: the handle interface of hologram.h, function by function.
#include "call.h"

namespace hologram_ffi {
namespace {

constexpr const char* kBinary = "\n\nfloat32 buffers of at least n elements; c may be a or b.";
constexpr const char* kUnary = "\n\nfloat32 buffers of at least n elements; y may be x.";
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

void add_floats(Functions& f) {
  const auto binary = [](const char* what) { return std::string(what) + kBinary; };
  const auto unary = [](const char* what) { return std::string(what) + kUnary; };
  const auto loss = [](const char* what) { return std::string(what) + kLoss; };
  f.add<hologram_vector_add_f32>("vector_add_f32", "ex, a, b, c, n", binary("c = a + b."));
  f.add<hologram_vector_sub_f32>("vector_sub_f32", "ex, a, b, c, n", binary("c = a - b."));
  f.add<hologram_vector_mul_f32>("vector_mul_f32", "ex, a, b, c, n", binary("c = a * b."));
  f.add<hologram_vector_div_f32>("vector_div_f32", "ex, a, b, c, n", binary("c = a / b."));
  f.add<hologram_vector_min_f32>("vector_min_f32", "ex, a, b, c, n",
                                 binary("c = the smaller of a and b; NaN if either is."));
  f.add<hologram_vector_max_f32>("vector_max_f32", "ex, a, b, c, n",
                                 binary("c = the larger of a and b; NaN if either is."));
  f.add<hologram_vector_abs_f32>("vector_abs_f32", "ex, x, y, n", unary("y = |x|."));
  f.add<hologram_vector_neg_f32>("vector_neg_f32", "ex, x, y, n", unary("y = -x."));
  f.add<hologram_vector_relu_f32>("vector_relu_f32", "ex, x, y, n", unary("y = max(x, 0)."));
  f.add<hologram_sigmoid_f32>("sigmoid_f32", "ex, x, y, n", unary("y = 1 / (1 + exp(-x))."));
  f.add<hologram_tanh_f32>("tanh_f32", "ex, x, y, n", unary("y = tanh(x)."));
  f.add<hologram_gelu_f32>("gelu_f32", "ex, x, y, n",
                           unary("y = x * Phi(x), Phi the normal distribution function."));
  f.add<hologram_vector_clip_f32>("vector_clip_f32", "ex, x, y, n, low, high",
                                  unary("y = x, not below low and not above high."));
  f.add<hologram_scalar_add_f32>("scalar_add_f32", "ex, x, y, n, scalar", unary("y = x + scalar."));
  f.add<hologram_scalar_mul_f32>("scalar_mul_f32", "ex, x, y, n, scalar", unary("y = x * scalar."));
  f.add<hologram_softmax_f32>("softmax_f32", "ex, x, y, n", unary("y = softmax of x[0:n]."));
  f.add<hologram_reduce_sum_f32>("reduce_sum_f32", "ex, x, y, n", "y[0] = sum of x[0:n].");
  f.add<hologram_reduce_min_f32>("reduce_min_f32", "ex, x, y, n", "y[0] = smallest of x[0:n].");
  f.add<hologram_reduce_max_f32>("reduce_max_f32", "ex, x, y, n", "y[0] = largest of x[0:n].");
  f.add<hologram_mse_loss_f32, Gil::kReleased>("mse_loss_f32", "ex, pred, target, loss, n",
                                               loss("Mean of (pred - target)^2."));
  f.add<hologram_cross_entropy_loss_f32, Gil::kReleased>(
      "cross_entropy_loss_f32", "ex, pred, target, loss, n",
      loss("Mean of -target * log(pred), for probabilities; logarithms not below -100."));
  f.add<hologram_binary_cross_entropy_loss_f32, Gil::kReleased>(
      "binary_cross_entropy_loss_f32", "ex, pred, target, loss, n",
      loss("Mean of -(target * log(pred) + (1 - target) * log(1 - pred)); logarithms not below "
           "-100."));
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
  add_floats(f);
#define HOLOGRAM_NAMES_1 "x"
#define HOLOGRAM_NAMES_2 "x, y"
#define HOLOGRAM_NAMES_3 "x, y, z"
#define HOLOGRAM_NAMES_4 "x, y, z, w"
#define HOLOGRAM_OP(name, id, arity, ...)                                 \
  f.add<hologram_##name>(#name, "ex, " HOLOGRAM_NAMES_##arity ", out, n", \
                         std::string("out = " #name "(" HOLOGRAM_NAMES_##arity ").") + kRow);
#include "hologram/elementwise.def"
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
