# SPDX-License-Identifier: MIT
"""What of PyTorch's op database no device but cpu can meet, op by op, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator

import torch

# Ops whose values are random: all else of their results is compared.
RANDOM = {
    "bernoulli": "random",
    "cauchy": "random",
    "exponential": "random",
    "geometric": "random",
    "log_normal": "random",
    "multinomial": "random",
    "nn.functional.fractional_max_pool2d": "random",
    "nn.functional.fractional_max_pool3d": "random",
    "nn.functional.rrelu": "random",
    "normal": "random",
    "pca_lowrank": "random projections",
    "rand_like": "random",
    "randint": "random",
    "randint_like": "random",
    "randn": "random",
    "randn_like": "random",
    "svd_lowrank": "random projections",
    "uniform": "random",
}

# Ops whose results are memory that nothing was written to.
UNSPECIFIED = {
    "empty": "unspecified contents",
    "empty_like": "unspecified contents",
    "empty_permuted": "unspecified contents",
    "empty_strided": "unspecified contents",
    "new_empty": "unspecified contents",
    "new_empty_strided": "unspecified contents",
}

# Ops that make tensors: where a sample names no device, on PyTorch's default device.
FACTORIES = {"arange", "linspace", "logspace"}

# Ops whose results lie farther from double precision's than a few roundings of inputs and result
# explain: how many units of those they may be off, and why.
UNITS: dict[str, tuple[float, str]] = {
    "nn.functional.scaled_dot_product_attention": (
        16,
        "probabilities are made again from a rounded log-sum-exp, which the samples take to 200; "
        "cpu's kernel for three dimensions keeps them instead",
    ),
    "torch.ops.aten._safe_softmax.default": (
        8,
        "where one element has nearly all the weight, its gradient is what is left of 1 - y, in "
        "which y's own rounding counts and no rounding of the inputs does",
    ),
    "cdist": (8, "squared distances by products are differences of sums, whose order counts"),
    "linalg.householder_product": (
        8,
        "products of reflections, in which cpu's own error is nearly as large",
    ),
    "linalg.pinv.singular": (8, "small singular values, of which cpu's error is nearly as large"),
    "_foreach_tanh": (8, "where y is nearly 1, its gradient 1 - y * y is y's own rounding"),
    "nn.functional.linear_cross_entropy.chunked": (32, "a loss near 0 is the log of a sum near 1"),
    "nn.functional.linear_cross_entropy.chunked_none": (32, "as above"),
}

# In place of a dtype: the inputs that the database says are wrong.
ERRORS = "errors"
_DIRTY = "the function writes into x.cpu(), which is the argument itself on cpu alone"
_OVERFLOWS = (
    "PyTorch's gradient is a product of several ops, one of which overflows float16's range"
)
_NARROW = "cpu alone has a kernel of its own, with checks of its own; cuda's are those of narrow()"

# By what differs (a kind that opinfo_harness reports): op, dtypes and reason.
EXCEPTIONS: dict[str, dict[str, tuple[tuple[torch.dtype | str, ...], str]]] = {
    "values": {
        f"nn.functional.linear_cross_entropy.{variant}": (
            (torch.bfloat16, torch.float16),
            "PyTorch accumulates in float32 only where the device's name is cpu or cuda",
        )
        for variant in ("chunked", "chunked_none")
    }
    | dict.fromkeys(("logaddexp", "pow"), ((torch.complex32,), _OVERFLOWS))
    | {
        "NumpyExpMarkDirtyAutogradFunction": (
            (torch.float16, torch.float32, torch.float64),
            _DIRTY,
        )
    },
    "raises": {
        "NumpyExpMarkDirtyAutogradFunction": ((torch.float64,), _DIRTY),
        "sparse.sampled_addmm": (
            (torch.bfloat16, torch.float16),
            "PyTorch's cpu kernel on CSR tensors knows no half types; no wider copy is made",
        ),
    },
    "samples": {
        "NumpyNonzeroCustomOp": (
            (torch.bool,),
            "the database draws its samples by an op that PyTorch refuses for bool, on cpu, too",
        )
    },
    "dtype": {
        "native_layer_norm": (
            (torch.bfloat16, torch.float16),
            "statistics are float32, as torch._refs has them on every device but cpu",
        )
    },
    "error": {"narrow_copy": ((ERRORS,), _NARROW)},
    "message": {"narrow_copy": ((ERRORS,), _NARROW)},
}


_CUDAS = "cuda takes the dtype, and the device takes what either of cpu and cuda takes"
# Ops that raise elsewhere than cpu does where an argument is wrong: for which changes, and why.
WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(
        ("abs", "ldexp", "nn.functional.softsign", "trace"), (("truth values",), _CUDAS)
    ),
    "histc": (("integers",), _CUDAS),
    **dict.fromkeys(("nanmean", "nansum"), (("complex numbers",), _CUDAS)),
    "native_batch_norm": (
        ("a dimension less", "one element", "a longer one", "an empty one"),
        "cpu reads beyond the end of parameters that are too short",
    ),
    "narrow_copy": (("negative numbers",), _NARROW),
}
# Ops that take a tensor of the CPU beside those of a device, as they do on cuda. It only lends its
# sizes, indices or lengths, or is copied.
TAKE_BOTH = {
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "broadcast_tensors",
    "diagonal_scatter",
    "expand_as",
    "index_put",
    "nn.functional.ctc_loss",
    "reshape_as",
    "resize_as_",
    "select_scatter",
    "slice_scatter",
    "tensor_split",
    "view_as",
}

# What stands for UNITS among the kinds of what differs.
UNITS_KIND = "units"


def listed() -> Iterator[tuple[str, str, str]]:
    """Yield every entry that a run can need: kind, op, and dtype, "" where it has none."""
    for kind, ops in EXCEPTIONS.items():
        for op, (dtypes, _) in ops.items():
            for dtype in dtypes:
                yield kind, op, dtype_name(dtype)
    for op in UNITS:
        yield UNITS_KIND, op, ""


def dtype_name(dtype: torch.dtype | str | None) -> str:
    """Return "float32" of torch.float32; what stands in place of a dtype as it is."""
    return str(dtype).removeprefix("torch.")
