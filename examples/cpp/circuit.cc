// SPDX-License-Identifier: MIT
// Ops on tensors, and a circuit recorded by hand: what it becomes, and what it computes.
#include <hologram/circuit.h>
#include <hologram/error.h>
#include <hologram/executor.h>
#include <hologram/functions.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using hologram::Dtype;
using hologram::Tensor;

Tensor from(const std::vector<float>& values, const hologram::Executor& executor) {
  const hologram::Shape shape{static_cast<int64_t>(values.size())}, strides{1};
  return hologram::from_host(
      {const_cast<float*>(values.data()), Dtype::kFloat32, 1, shape.data(), strides.data()},
      executor.device());
}

std::vector<float> to_vector(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  const hologram::Shape strides = hologram::contiguous_strides(tensor.shape());
  hologram::read(tensor, {values.data(), Dtype::kFloat32, tensor.ndim(), tensor.shape().data(),
                          strides.data()});
  return values;
}

}  // namespace

int main() {
  const auto executor = hologram::Executor::automatic();
  constexpr int64_t kElements = 100'000;

  // Ops are recorded when they are called and run when a result is read: here one fused kernel.
  std::vector<float> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const Tensor x = from(values, *executor),
               y = hologram::full({kElements}, 0.5, Dtype::kFloat32, executor->device());
  const Tensor z = add(mul(relu(add(mul(x, y), x)), 2.0), y);
  std::printf("z[1] = %f, by hand %f\n", to_vector(z)[1],
              2 * std::fmax(values[1] * 1.5f, 0.0f) + 0.5f);

  // The same as a circuit that runs on whatever it is given.
  hologram::Circuit circuit(executor->device());
  const Tensor a = circuit.input({kElements}, Dtype::kFloat32);
  const Tensor b = circuit.input({kElements}, Dtype::kFloat32);
  circuit.record([&] { circuit.output(add(mul(relu(add(mul(a, b), a)), 2.0), b)); });
  circuit.compile();
  std::printf("\n%s\n", circuit.print().c_str());
  const hologram::CircuitStats stats = circuit.stats();
  std::printf("%d ops became %d kernel, %lld bytes became %lld\n", stats.ops, stats.kernels,
              static_cast<long long>(stats.bytes_unfused),
              static_cast<long long>(stats.bytes_moved));

  if (to_vector(circuit.run({x, y})[0]) != to_vector(z)) {
    std::fprintf(stderr, "the circuit computed something else\n");
    return 1;
  }
  try {
    circuit.run({x});
  } catch (const hologram::Error& error) {
    std::printf("a mistake is an exception: %s\n", error.what());
    return 0;
  }
  return 1;
}
