// SPDX-License-Identifier: MIT
// In which order the elements of a new tensor lie in memory: what NumPy's order= says.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "hologram/tensor.h"
#include "objects.h"

namespace hologram::python {

// Row-major, column-major, column-major where the source is that and not row-major, as the source.
enum class Order : char { kRows = 'C', kColumns = 'F', kAny = 'A', kKeep = 'K' };

// Nothing for None. ValueError for another string (or bytes), TypeError for another object.
std::optional<Order> parse_order(nb::handle order);

Tensor reversed_dims(const Tensor& tensor);
// Whether the elements lie side by side in row-major or column-major order, for kAny in one of
// them; true of kKeep.
bool is_in_order(const Tensor& tensor, Order order);
// The dimensions of a tensor made like `source`, from the outermost in memory to the innermost.
std::vector<int> dims_in_order(const Tensor& source, Order order);
// A view of a row-major tensor whose dimension i is dimension dims[i] of the result.
Tensor laid_out(const Tensor& rows, const std::vector<int>& dims);

// A copy in another dtype or the same, all of its memory.
Tensor copy_in_order(const Tensor& source, Order order, Dtype dtype);
// The elements in one dimension as `order` reads them: of ravel() a view where that is dense.
nb::object flatten_in_order(const TensorObject& self, nb::handle order, bool copies);
nb::object reshape_in_order(const TensorObject& self, const Shape& shape, nb::handle order);

}  // namespace hologram::python
