// SPDX-License-Identifier: MIT
// Methods of tensors that reduce dimensions, and softmax: NumPy's names and arguments.
#include "reductions.h"

#include <string>
#include <vector>

#include "convert.h"
#include "dtype.h"
#include "hologram/functions.h"

namespace hologram::python {
namespace {

// The dimensions that `axis` names; false for the empty tuple, which reduces nothing.
bool parse_axes(nb::handle axis, std::vector<int>& dims) {
  if (axis.is_none()) return true;
  const Shape given = parse_shape(axis);
  for (const int64_t dim : given) {
    if (dim < INT32_MIN || dim > INT32_MAX) {
      fail(ErrorKind::kIndex, "axis ", dim, " is out of range");
    }
    dims.push_back(static_cast<int>(dim));
  }
  return !given.empty();
}

nb::object store(Tensor result, nb::handle out, const char* name) {
  if (out.is_none()) return wrap(std::move(result));
  TensorObject* target = tensor_of(out.ptr());
  if (target == nullptr) {
    fail(ErrorKind::kTypeMismatch, name, ": out is a Tensor or None, not ", name_of_type(out));
  }
  target->check_writable(name);
  if (target->tensor.shape() != result.shape()) {
    fail(ErrorKind::kInvalidArgument, name, ": out has shape ", text(target->tensor.shape()),
         " and the result ", text(result.shape()));
  }
  if (!is_floating(target->tensor.dtype()) && is_floating(result.dtype())) {
    fail(ErrorKind::kTypeMismatch, name, ": the result is ", dtype_name(result.dtype()),
         ", which does not go into an out of ", dtype_name(target->tensor.dtype()));
  }
  copy_into(result, target->tensor);
  return nb::borrow(out);
}

nb::object reduce_as(Reduction op, const TensorObject& self, nb::handle axis, ReduceSpec spec,
                     nb::handle out) {
  std::vector<int> dims;
  const Tensor& in = self.tensor;
  spec.rules = Rules::numpy;
  const bool reduces = parse_axes(axis, dims);
  Tensor result;
  {
    const Unlocked unlocked(is_long(in));
    if (reduces) {
      spec.dims = dims;
      result = reduce(op, in, spec);
    } else {
      // Each element by itself, over a dimension of size 1.
      const std::vector<int> last = {in.ndim()};
      spec.dims = last;
      spec.keepdim = false;
      result = reduce(op, in.unsqueeze(in.ndim()), spec);
    }
  }
  return store(std::move(result), out, std::string(reduction_name(op)).c_str());
}

std::optional<Dtype> maybe_dtype(nb::handle dtype) {
  return dtype.is_none() ? std::nullopt : std::optional<Dtype>(parse_dtype(dtype));
}

// sum(axis=None, dtype=None, out=None, keepdims=False) and its like.
template <Reduction op>
nb::object with_dtype(const TensorObject& self, nb::handle axis, nb::handle dtype, nb::handle out,
                      bool keepdims) {
  ReduceSpec spec;
  spec.keepdim = keepdims;
  spec.dtype = maybe_dtype(dtype);
  return reduce_as(op, self, axis, spec, out);
}

// min(axis=None, out=None, keepdims=False).
template <Reduction op>
nb::object plain(const TensorObject& self, nb::handle axis, nb::handle out, bool keepdims) {
  ReduceSpec spec;
  spec.keepdim = keepdims;
  return reduce_as(op, self, axis, spec, out);
}

template <Reduction op>
nb::object spread(const TensorObject& self, nb::handle axis, nb::handle dtype, nb::handle out,
                  double ddof, bool keepdims, nb::handle correction) {
  ReduceSpec spec;
  spec.keepdim = keepdims;
  spec.dtype = maybe_dtype(dtype);
  spec.correction = correction.is_none() ? ddof : to_double(correction);
  return reduce_as(op, self, axis, spec, out);
}

nb::object norm(const TensorObject& self, nb::handle axis, double p, bool keepdims) {
  ReduceSpec spec;
  spec.keepdim = keepdims;
  spec.p = p;
  const Tensor& in = self.tensor;
  if (is_integer(in.dtype()) || in.dtype() == Dtype::kBool) spec.dtype = Dtype::kFloat64;
  return reduce_as(Reduction::norm, self, axis, spec, nb::none());
}

// A function of floats along one dimension.
template <Tensor (*function)(const Tensor&, int)>
nb::object along(const TensorObject& self, int axis) {
  const Tensor& in = self.tensor;
  Tensor result;
  {
    const Unlocked unlocked(is_long(in));
    result = function(is_floating(in.dtype()) ? in : cast(in, Dtype::kFloat64), axis);
  }
  return wrap(std::move(result));
}

nb::object cumulate(const TensorObject& self, nb::handle axis, nb::handle dtype, nb::handle out) {
  Tensor in = self.tensor;
  if (axis.is_none()) in = reshaped(in, Shape{-1});
  const int dim = axis.is_none() ? 0 : to_int(axis);
  if (const std::optional<Dtype> wanted = maybe_dtype(dtype)) in = cast(in, *wanted);
  return store(cumsum(in, dim), out, "cumsum");
}

nb::object product(const TensorObject& self, nb::handle other) {
  Argument argument;
  argument.require(other.ptr(), "matmul");
  if (!argument.is_tensor()) {
    fail(ErrorKind::kInvalidArgument, "matmul: the operand is a number; multiply with *");
  }
  Tensor result;
  {
    const Unlocked unlocked;
    result = matmul(self.tensor, argument.tensor(), Rules::numpy);
  }
  return wrap(std::move(result));
}

constexpr const char* kSumDoc = R"(Return the sum of the elements, or of those along `axis`.

`axis` is None for all dimensions, an int or a tuple of ints; `keepdims` leaves those with size 1;
`dtype` is that of the result, int64 for bool and integers and that of the Tensor otherwise; `out` is
a Tensor of the result's shape. The order of additions depends on the shape alone, never on threads.
IndexError for an axis out of range.)";
constexpr const char* kProdDoc = "Return the product of the elements; arguments as for sum.";
constexpr const char* kMeanDoc =
    "Return the mean; arguments as for sum, float64 for bool and integers. NaN of no elements.";
constexpr const char* kMinDoc =
    "Return the smallest element; NaN if any is. ValueError of no elements. Arguments as for sum.";
constexpr const char* kMaxDoc =
    "Return the largest element; NaN if any is. ValueError of no elements. Arguments as for sum.";
constexpr const char* kAnyDoc = "Return whether any element is not zero; arguments as for sum.";
constexpr const char* kAllDoc = "Return whether no element is zero; arguments as for sum.";
constexpr const char* kArgminDoc =
    "Return the position (int64) of the smallest element along `axis`, or in row-major order.";
constexpr const char* kArgmaxDoc =
    "Return the position (int64) of the largest element along `axis`, or in row-major order.";
constexpr const char* kVarDoc = R"(Return the variance, sum((x - mean)^2) / (n - ddof).

Arguments as for sum; `correction` is another name of `ddof`, whose default is NumPy's 0.)";
constexpr const char* kStdDoc = "Return the standard deviation, the square root of var.";
constexpr const char* kLogsumexpDoc =
    "Return log(sum(exp(x))) without overflow; float dtypes. Arguments as for sum.";
constexpr const char* kNormDoc =
    "Return the p-norm (sum |x|^p)^(1/p) of the elements along `axis`; p may be 0, inf or -inf.";
constexpr const char* kSoftmaxDoc =
    "Return exp(x) / sum(exp(x)) along `axis`; at least float dtypes, of the Tensor's shape.";
constexpr const char* kLogSoftmaxDoc =
    "Return x - log(sum(exp(x))) along `axis`; at least float dtypes, of the Tensor's shape.";
constexpr const char* kCumsumDoc =
    "Return the sums up to each element along `axis`, or in row-major order.";
constexpr const char* kMatmulDoc = R"(Return the matrix product, with NumPy's rules for `@`.

Vectors are rows on the left and columns on the right; leading dimensions broadcast; dtypes are
promoted. ValueError for shapes that do not fit, TypeError for complex.)";

}  // namespace

void add_reduction_methods(nb::class_<TensorObject>& type) {
  const auto add_with_dtype = [&](const char* name, auto function, const char* sig,
                                  const char* doc) {
    type.def(name, function, nb::arg("axis") = nb::none(), nb::arg("dtype") = nb::none(),
             nb::arg("out") = nb::none(), nb::arg("keepdims") = false, nb::sig(sig), doc);
  };
#define HOLOGRAM_DTYPE_SIG(name)                                                               \
  "def " name                                                                                  \
  "(self, axis: int | tuple[int, ...] | None = None, dtype: typing.Any = None, out: Tensor | " \
  "None = None, keepdims: bool = False) -> Tensor"
  add_with_dtype("sum", &with_dtype<Reduction::sum>, HOLOGRAM_DTYPE_SIG("sum"), kSumDoc);
  add_with_dtype("prod", &with_dtype<Reduction::prod>, HOLOGRAM_DTYPE_SIG("prod"), kProdDoc);
  add_with_dtype("mean", &with_dtype<Reduction::mean>, HOLOGRAM_DTYPE_SIG("mean"), kMeanDoc);

  const auto add_plain = [&](const char* name, auto function, const char* sig, const char* doc) {
    type.def(name, function, nb::arg("axis") = nb::none(), nb::arg("out") = nb::none(),
             nb::arg("keepdims") = false, nb::sig(sig), doc);
  };
#define HOLOGRAM_PLAIN_SIG(name)                                                            \
  "def " name                                                                               \
  "(self, axis: int | tuple[int, ...] | None = None, out: Tensor | None = None, keepdims: " \
  "bool = False) -> Tensor"
  add_plain("min", &plain<Reduction::amin>, HOLOGRAM_PLAIN_SIG("min"), kMinDoc);
  add_plain("max", &plain<Reduction::amax>, HOLOGRAM_PLAIN_SIG("max"), kMaxDoc);
  add_plain("any", &plain<Reduction::any>, HOLOGRAM_PLAIN_SIG("any"), kAnyDoc);
  add_plain("all", &plain<Reduction::all>, HOLOGRAM_PLAIN_SIG("all"), kAllDoc);
  add_plain("argmin", &plain<Reduction::argmin>, HOLOGRAM_PLAIN_SIG("argmin"), kArgminDoc);
  add_plain("argmax", &plain<Reduction::argmax>, HOLOGRAM_PLAIN_SIG("argmax"), kArgmaxDoc);
  add_plain("logsumexp", &plain<Reduction::logsumexp>, HOLOGRAM_PLAIN_SIG("logsumexp"),
            kLogsumexpDoc);

  const auto add_spread = [&](const char* name, auto function, const char* sig, const char* doc) {
    type.def(name, function, nb::arg("axis") = nb::none(), nb::arg("dtype") = nb::none(),
             nb::arg("out") = nb::none(), nb::arg("ddof") = 0.0, nb::arg("keepdims") = false,
             nb::kw_only(), nb::arg("correction") = nb::none(), nb::sig(sig), doc);
  };
#define HOLOGRAM_SPREAD_SIG(name)                                                              \
  "def " name                                                                                  \
  "(self, axis: int | tuple[int, ...] | None = None, dtype: typing.Any = None, out: Tensor | " \
  "None = None, ddof: float = 0, keepdims: bool = False, *, correction: float | None = None) " \
  "-> Tensor"
  add_spread("var", &spread<Reduction::var>, HOLOGRAM_SPREAD_SIG("var"), kVarDoc);
  add_spread("std", &spread<Reduction::std>, HOLOGRAM_SPREAD_SIG("std"), kStdDoc);

  type.def("norm", &norm, nb::arg("axis") = nb::none(), nb::arg("p") = 2.0,
           nb::arg("keepdims") = false,
           nb::sig("def norm(self, axis: int | tuple[int, ...] | None = None, p: float = 2, "
                   "keepdims: bool = False) -> Tensor"),
           kNormDoc)
      .def("softmax", &along<&softmax>, nb::arg("axis") = -1,
           nb::sig("def softmax(self, axis: int = -1) -> Tensor"), kSoftmaxDoc)
      .def("log_softmax", &along<&log_softmax>, nb::arg("axis") = -1,
           nb::sig("def log_softmax(self, axis: int = -1) -> Tensor"), kLogSoftmaxDoc)
      .def("cumsum", &cumulate, nb::arg("axis") = nb::none(), nb::arg("dtype") = nb::none(),
           nb::arg("out") = nb::none(),
           nb::sig("def cumsum(self, axis: int | None = None, dtype: typing.Any = None, "
                   "out: Tensor | None = None) -> Tensor"),
           kCumsumDoc)
      .def("matmul", &product, nb::arg("other"),
           nb::sig("def matmul(self, other: typing.Any) -> Tensor"), kMatmulDoc);
}

}  // namespace hologram::python
