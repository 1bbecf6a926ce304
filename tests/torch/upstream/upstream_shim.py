# SPDX-License-Identifier: MIT
"""Gives PyTorch's testing modules the names that the tests of an earlier PyTorch import."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.attention.flex_attention as flex_attention
from functorch.experimental import control_flow
from torch._higher_order_ops.utils import UnsupportedAliasMutationException
from torch.testing._internal import (
    common_cuda,
    common_device_type,
    common_methods_invocations,
    common_mkldnn,
    common_nn,
    inductor_utils,
)


def _give(module: ModuleType, name: str, make: Callable[[], Any]) -> None:
    """Define a name in a module that lacks it."""
    if not hasattr(module, name):
        setattr(module, name, make())


def _tf32_is_not_fp32() -> bool:
    """Whether a CUDA device would round float32 products to tf32; asked by tests of cuda alone."""
    return False


def _bf32_on_and_off(precision: float = 1e-2) -> Callable[[Any], Any]:
    """Run a test with oneDNN's products in float32, and again in bfloat16 on cpu."""
    return common_mkldnn.reduced_f32_on_and_off(bf32_precision=precision)


def _create_nested_block_mask(*args: Any, **kwargs: Any) -> None:
    """Stand for a function that went away; only tests of cuda call it."""
    raise unittest.SkipTest("this PyTorch has no create_nested_block_mask")


def _skip_ops(*arguments: Any) -> Callable[[Any], Any]:
    """Take the names of class and test, too, which the newer function reads off the test."""
    return common_device_type.skipOps(arguments[-1])


def _binary_ufuncs_and_refs() -> list[Any]:
    ops = common_methods_invocations
    return [op for op in ops.ops_and_refs if isinstance(op, ops.BinaryUfuncInfo)]


def _without_absent_cuda(has_memory: Callable[[Any, int], bool]) -> Callable[[Any, int], bool]:
    """Say that a CUDA device which is not there lacks memory.

    PyTorch asks the current accelerator; if that is another one, memory of cuda is said to suffice.
    """

    def has_sufficient_memory(device: Any, size: int) -> bool:
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            return False
        return has_memory(device, size)

    return has_sufficient_memory


def _without_flags_of_cuda(instantiate: Callable[..., None]) -> Callable[..., None]:
    """Take away a `setUp` and `tearDown` that call `super(self.__class__, self)`.

    They call themselves, now that the class made for a device is derived from the one that the
    test's author wrote. All that they do is to set flags of CUDA, which PyTorch's class does, too.
    """

    def instantiate_device_type_tests(written: type, *args: Any, **kwargs: Any) -> None:
        for name in ("setUp", "tearDown"):
            function = vars(written).get(name)
            if isinstance(function, FunctionType) and "__class__" in function.__code__.co_names:
                delattr(written, name)
        instantiate(written, *args, **kwargs)

    return instantiate_device_type_tests


def _of_known_ops(decorate: Callable[..., Any], known: set[tuple[str, str]]) -> Callable[..., Any]:
    """Pass on what a test says of ops that this PyTorch's database has."""

    def decorate_known(case: str, test: str, given: Any) -> Any:
        def names_of(item: Any) -> tuple[str, str]:
            if isinstance(item, tuple) and not hasattr(item, "op_name"):
                return item[0], item[1]
            return item.op_name, item.variant_name

        return decorate(case, test, [item for item in given if names_of(item) in known])

    return decorate_known


def install_functorch(folder: Path) -> None:
    """Let the tests in `folder`, which bring a module of their own, name ops that went away."""
    sys.path.insert(0, str(folder))
    import common_utils

    databases = ("op_db", "additional_op_db", "autograd_function_db", "custom_op_db")
    ops = [op for name in databases for op in getattr(common_utils, name)]
    known = {(op.name, op.variant_test_name) for op in ops}
    for name in ("skipOps", "opsToleranceOverride"):
        setattr(common_utils, name, _of_known_ops(getattr(common_utils, name), known))


def install() -> None:
    """Add what is missing; names that this PyTorch has stay as they are."""
    common_device_type.instantiate_device_type_tests = _without_flags_of_cuda(
        common_device_type.instantiate_device_type_tests
    )
    common_device_type._has_sufficient_memory = _without_absent_cuda(
        common_device_type._has_sufficient_memory
    )
    _give(common_cuda, "tf32_is_not_fp32", lambda: _tf32_is_not_fp32)
    _give(common_mkldnn, "bf32_on_and_off", lambda: _bf32_on_and_off)
    _give(common_nn, "new_module_tests", lambda: common_nn.get_new_module_tests())
    _give(common_methods_invocations, "binary_ufuncs_and_refs", _binary_ufuncs_and_refs)
    _give(common_methods_invocations, "xfail", lambda: common_device_type.xfail)
    _give(common_methods_invocations, "skip", lambda: common_device_type.skip)
    _give(common_methods_invocations, "skipOps", lambda: _skip_ops)
    _give(inductor_utils, "HAS_CUDA", lambda: False)
    _give(
        control_flow, "UnsupportedAliasMutationException", lambda: UnsupportedAliasMutationException
    )
    _give(flex_attention, "create_nested_block_mask", lambda: _create_nested_block_mask)
