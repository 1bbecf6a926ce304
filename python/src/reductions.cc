// SPDX-License-Identifier: MIT
// Methods of tensors that reduce dimensions, and softmax: NumPy's names and arguments.
#include "reductions.h"

#include <array>
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
  if (out.is_none()) return wrap_result(std::move(result));
  TensorObject* target = tensor_of(out.ptr());
  if (target == nullptr) {
    fail(ErrorKind::kTypeMismatch, name, ": out is a Tensor or None, not ", name_of_type(out));
  }
  target->check_writable(name);
  if (target->tensor().shape() != result.shape()) {
    fail(ErrorKind::kInvalidArgument, name, ": out has shape ", text(target->tensor().shape()),
         " and the result ", text(result.shape()));
  }
  if (changes_kind(result.dtype(), target->tensor().dtype())) {
    fail(ErrorKind::kTypeMismatch, name, ": the result is ", dtype_name(result.dtype()),
         ", which does not go into an out of ", dtype_name(target->tensor().dtype()));
  }
  copy_into(result, target->tensor());
  return nb::borrow(out);
}

// NumPy's function for what complex numbers do not have here, null where NumPy has none either.
const char* numpy_name(Reduction op) {
  switch (op) {
    case Reduction::prod:
      return "prod";
    case Reduction::amin:
      return "amin";
    case Reduction::amax:
      return "amax";
    case Reduction::argmin:
      return "argmin";
    case Reduction::argmax:
      return "argmax";
    case Reduction::var:
      return "var";
    case Reduction::std:
      return "std";
    default:
      return nullptr;
  }
}

nb::object reduce_in_numpy(const char* name, const TensorObject& self, nb::handle axis,
                           const ReduceSpec& spec, nb::handle out) {
  nb::dict options;
  options["axis"] = axis;
  options["out"] = out;
  options["keepdims"] = spec.keepdim;
  if (spec.dtype) options["dtype"] = report_dtype(*spec.dtype);
  if (*name == 'v' || *name == 's') options["ddof"] = spec.correction;
  return nb::module_::import_("hologram._lazy")
      .attr("through_numpy")(name, wrap(self.tensor()), **options);
}

nb::object reduce_as(Reduction op, const TensorObject& self, nb::handle axis, ReduceSpec spec,
                     nb::handle out) {
  std::vector<int> dims;
  const Tensor& in = self.tensor();
  if (is_complex(in.dtype()) && numpy_name(op) != nullptr) {
    return reduce_in_numpy(numpy_name(op), self, axis, spec, out);
  }
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
  // NumPy converts first: a sum of floats as integers is one of their whole parts.
  if ((op == Reduction::sum || op == Reduction::prod) && spec.dtype &&
      is_floating(self.tensor().dtype()) && is_integer(*spec.dtype)) {
    return reduce_as(op, {cast(self.tensor(), *spec.dtype), false}, axis, spec, out);
  }
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
  const Tensor& in = self.tensor();
  if (is_complex(in.dtype())) {
    const std::array<Operand, 1> operand = {Operand(in)};
    return reduce_as(Reduction::norm, {apply(OpId::abs, operand, Rules::numpy), false}, axis, spec,
                     nb::none());
  }
  if (is_integer(in.dtype()) || in.dtype() == Dtype::kBool) spec.dtype = Dtype::kFloat64;
  return reduce_as(Reduction::norm, self, axis, spec, nb::none());
}

// A function of floats along one dimension.
template <Tensor (*function)(const Tensor&, int)>
nb::object along(const TensorObject& self, int axis) {
  const Tensor& in = self.tensor();
  Tensor result;
  {
    const Unlocked unlocked(is_long(in));
    result = function(is_floating(in.dtype()) ? in : cast(in, Dtype::kFloat64), axis);
  }
  return wrap_result(std::move(result));
}

nb::object cumulate(const TensorObject& self, nb::handle axis, nb::handle dtype, nb::handle out) {
  Tensor in = self.tensor();
  const int dim = axis.is_none() ? 0 : to_int(axis);
  // As NumPy does with a single number, too.
  if (axis.is_none() || in.ndim() == 0) in = reshaped(in, Shape{-1});
  const std::optional<Dtype> wanted = maybe_dtype(dtype);
  if (wanted) in = cast(in, *wanted);
  Tensor result = cumsum(in, dim, Rules::numpy);
  // The sums of narrow integers are wide; their low bits are those of narrow sums.
  if (wanted) result = cast(result, *wanted);
  return store(std::move(result), out, "cumsum");
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
    result = matmul(self.tensor(), argument.tensor(), Rules::numpy);
  }
  return wrap_result(std::move(result));
}

// What all of the table's take.
constexpr const char* kArgumentsDoc =
    R"(`axis` is None for all dimensions, an int or a tuple of ints; `keepdims` leaves those with size 1;
`out` is a Tensor of the result's shape. The result depends on the shape alone, never on threads.
IndexError for an axis out of range, ValueError where no elements have no result.)";
constexpr const char* kDtypeDoc =
    R"(`dtype` is that of the result: by default the Tensor's, of bool and signed integers int64, of
unsigned integers uint64, of the mean of either float64.
)";
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
promoted. ValueError for shapes that do not fit.)";

// --- From the table -----------------------------------------------------------------------------

// Which arguments a reduction takes, see hologram/reductions.def.
enum Arguments : int { BY_HAND, DTYPE, AXIS };

std::string python_name(Reduction op) {
  std::string name(reduction_info(op).c_name);
  for (char& c : name) c = static_cast<char>(c + ('a' - 'A'));
  return name;
}

// Adds the reduction as a method of tensors, or as a function to a module.
template <Reduction op, int arguments, class Scope>
void add_reduction(Scope& scope) {
  constexpr bool is_method = !std::is_same_v<Scope, nb::module_>;
  if constexpr (arguments != BY_HAND) {
    // Kept for nanobind as long as the process lives.
    static const std::string name = python_name(op);
    static const std::string signature =
        "def " + name + (is_method ? "(self" : "(x: typing.Any") +
        ", axis: int | tuple[int, ...] | None = None, " +
        (arguments == DTYPE ? "dtype: typing.Any = None, " : "") +
        "out: Tensor | None = None, keepdims: bool = False) -> Tensor";
    static const std::string doc = std::string(reduction_info(op).doc) + ".\n\n" +
                                   (arguments == DTYPE ? kDtypeDoc : "") + kArgumentsDoc;
    const auto add = [&](auto function, auto... names) {
      scope.def(name.c_str(), function, names..., nb::sig(signature.c_str()), doc.c_str());
    };
    const auto axis = nb::arg("axis") = nb::none(), out = nb::arg("out") = nb::none();
    const auto keepdims = nb::arg("keepdims") = false;
    if constexpr (!is_method) {
      if constexpr (arguments == DTYPE) {
        add(
            [](nb::handle x, nb::handle axis, nb::handle dtype, nb::handle out, bool keepdims) {
              return with_dtype<op>(make_tensor(x), axis, dtype, out, keepdims);
            },
            nb::arg("x"), axis, nb::arg("dtype") = nb::none(), out, keepdims);
      } else {
        add([](nb::handle x, nb::handle axis, nb::handle out,
               bool keepdims) { return plain<op>(make_tensor(x), axis, out, keepdims); },
            nb::arg("x"), axis, out, keepdims);
      }
    } else if constexpr (arguments == DTYPE) {
      add(&with_dtype<op>, axis, nb::arg("dtype") = nb::none(), out, keepdims);
    } else {
      add(&plain<op>, axis, out, keepdims);
    }
  }
}

}  // namespace

void register_reductions(nb::module_& m) {
  nb::module_ reductions = m.def_submodule("reductions", "The reductions of the table.");
  nb::list table;
#define HOLOGRAM_REDUCTION(name, id, c, inputs, result, empty, traits, python, aten, doc) \
  add_reduction<Reduction::name, python>(reductions);                                     \
  table.append(nb::make_tuple(python_name(Reduction::name), id, doc));
#include "hologram/reductions.def"
  reductions.attr("_table") = table;
}

void add_reduction_methods(nb::class_<TensorObject>& type) {
#define HOLOGRAM_REDUCTION(name, id, c, inputs, result, empty, traits, python, ...) \
  add_reduction<Reduction::name, python>(type);
#include "hologram/reductions.def"
  type.def("logsumexp", &plain<Reduction::logsumexp>, nb::arg("axis") = nb::none(),
           nb::arg("out") = nb::none(), nb::arg("keepdims") = false,
           nb::sig("def logsumexp(self, axis: int | tuple[int, ...] | None = None, "
                   "out: Tensor | None = None, keepdims: bool = False) -> Tensor"),
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
