// SPDX-License-Identifier: MIT
// A place in a stream of random words that goes on with what is drawn; hologram.random is made of
// it. The draws are calls, which are recorded.
#include "hologram/random.h"

#include <optional>
#include <utility>

#include "convert.h"
#include "dtype.h"
#include "hologram/functions.h"
#include "objects.h"

namespace hologram::python {
namespace {

struct StreamObject {
  PhiloxStream next;

  // Takes the blocks of n elements. The GIL makes it one step.
  PhiloxStream take(int64_t n, int bits) {
    const PhiloxStream taken = next;
    next.offset += philox_blocks(n, bits);
    return taken;
  }
};

// Where numbers go: into `out` or, with its shape, into a new Tensor; a Scalar where the size is
// None.
struct Target {
  Tensor tensor;
  bool is_scalar = false;
  nb::object out;

  Target(nb::handle size, nb::handle dtype, Dtype otherwise, nb::handle given) {
    const Dtype wanted = parse_dtype(dtype, otherwise);
    if (given.is_none()) {
      is_scalar = size.is_none();
      tensor = empty(is_scalar ? Shape{} : parse_shape(size), wanted, default_device());
      return;
    }
    const TensorObject& held = self_of(given.ptr());
    held.check_writable("out");
    if (held.tensor().dtype() != wanted) {
      fail(ErrorKind::kTypeMismatch, "out has the wrong type: ", dtype_name(held.tensor().dtype()),
           " where dtype is ", dtype_name(wanted));
    }
    if (!size.is_none() && parse_shape(size) != held.tensor().shape()) {
      fail(ErrorKind::kInvalidArgument,
           "size must match out.shape when used together: ", text(parse_shape(size)), " and ",
           text(held.tensor().shape()));
    }
    tensor = held.tensor();
    out = nb::borrow(given);
  }

  nb::object result() && {
    if (out.is_valid()) return std::move(out);
    return is_scalar ? wrap_scalar(std::move(tensor)) : wrap(std::move(tensor));
  }
};

template <bool is_normal>
nb::object draw(StreamObject& self, nb::handle size, nb::handle dtype, nb::handle out, double first,
                double second) {
  Target target(size, dtype, Dtype::kFloat64, out);
  const int64_t n = target.tensor.numel();
  const PhiloxStream stream = self.take(n, float_random_bits(target.tensor.dtype()));
  {
    const Unlocked unlocked(is_long(target.tensor));
    (is_normal ? fill_normal : fill_uniform)(target.tensor, stream, first, second);
  }
  return std::move(target).result();
}

nb::object integers(StreamObject& self, nb::handle size, nb::handle dtype, uint64_t low,
                    uint64_t count) {
  Target target(size, dtype, Dtype::kInt64, nb::none());
  const PhiloxStream stream = self.take(target.tensor.numel(), integer_random_bits(count));
  {
    const Unlocked unlocked(is_long(target.tensor));
    fill_integers(target.tensor, stream, low, count);
  }
  return std::move(target).result();
}

nb::object integers_between(StreamObject& self, nb::handle low, nb::handle high, bool closed,
                            nb::handle dtype) {
  const Tensor first = self_of(low.ptr()).tensor(), last = self_of(high.ptr()).tensor();
  const Dtype wanted = parse_dtype(dtype);
  const PhiloxStream stream = self.take(first.numel(), 64);
  Tensor result;
  {
    const Unlocked unlocked;
    result = random_integers(stream, first, last, closed, wanted);
  }
  return wrap(std::move(result));
}

nb::object positions(StreamObject& self, int64_t batch, int64_t n, int64_t k) {
  const PhiloxStream stream = self.take(shape_numel(Shape{batch, k}), 64);
  Tensor result;
  {
    const Unlocked unlocked;
    result = random_positions(stream, batch, n, k, default_device());
  }
  return wrap(std::move(result));
}

}  // namespace

void register_random(nb::module_& m) {
  nb::class_<StreamObject>(m, "PhiloxStream",
                           "A place in a stream of blocks of 128 random bits: block b is Philox "
                           "4x32-10 of the key\n`key` and the counter `counter` + b. Draws move it "
                           "on; see include/hologram/random.h.")
      .def(
          "__init__",
          [](StreamObject* self, uint64_t key, uint64_t counter) {
            new (self) StreamObject{{key, counter}};
          },
          nb::arg("key"), nb::arg("counter"))
      .def_prop_ro("key", [](const StreamObject& self) { return self.next.seed; })
      .def_prop_ro("counter", [](const StreamObject& self) { return self.next.offset; })
      .def(
          "set",
          [](StreamObject& self, uint64_t key, uint64_t counter) {
            self.next = {key, counter};
          },
          nb::arg("key"), nb::arg("counter"), "Go to another place.")
      .def("uniform", &draw<false>, nb::arg("size").none(), nb::arg("dtype").none(),
           nb::arg("out").none(), nb::arg("low"), nb::arg("high"),
           nb::sig("def uniform(self, size: typing.Any, dtype: typing.Any, out: Tensor | None, "
                   "low: float, high: float) -> Tensor"),
           "Return numbers spread evenly over [low, high).")
      .def("normal", &draw<true>, nb::arg("size").none(), nb::arg("dtype").none(),
           nb::arg("out").none(), nb::arg("mean"), nb::arg("std"),
           nb::sig("def normal(self, size: typing.Any, dtype: typing.Any, out: Tensor | None, "
                   "mean: float, std: float) -> Tensor"),
           "Return normally distributed numbers.")
      .def("integers", &integers, nb::arg("size").none(), nb::arg("dtype").none(), nb::arg("low"),
           nb::arg("count"),
           nb::sig("def integers(self, size: typing.Any, dtype: typing.Any, low: int, count: int) "
                   "-> Tensor"),
           "Return integers from [low, low + count), both modulo 2^64; count 0 is 2^64.")
      .def("integers_between", &integers_between, nb::arg("low"), nb::arg("high"),
           nb::arg("closed"), nb::arg("dtype"),
           nb::sig("def integers_between(self, low: Tensor, high: Tensor, closed: bool, "
                   "dtype: typing.Any) -> Tensor"),
           "Return an integer of each range; bounds are int64 or uint64 and of one shape.")
      .def("positions", &positions, nb::arg("batch"), nb::arg("n"), nb::arg("k"),
           nb::sig("def positions(self, batch: int, n: int, k: int) -> Tensor"),
           "Return samples of k different numbers below n, [batch, k], in random orders.");
}

}  // namespace hologram::python
