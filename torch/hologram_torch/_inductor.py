# SPDX-License-Identifier: MIT
"""What Inductor has to know of the device. PyTorch 2.15 asks for it at the first compilation.

The memory of ``hologram:0`` is host memory, so Inductor's C++ for the CPU computes on it, without
copies and on the OpenMP threads that PyTorch keeps and lends to the library. Other indices have
memory of their own and are refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch._inductor import utils as inductor_utils
from torch._inductor.codegen.common import (
    register_backend_for_device,
    register_device_op_overrides,
)
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.virtualized import V

from hologram_torch import _C

_device: Any = torch.get_device_module("hologram")


class HologramInterface(DeviceInterface):
    """The device as Dynamo and Inductor ask for it."""

    Event = torch.Event  # type: ignore[assignment]
    device = _device.device
    current_device = staticmethod(_device.current_device)
    set_device = staticmethod(_device.set_device)
    device_count = staticmethod(_device.device_count)
    is_available = staticmethod(_device.is_available)
    synchronize = staticmethod(_device.synchronize)
    get_device_properties = staticmethod(_device.get_device_properties)
    is_bf16_supported = staticmethod(_device.is_bf16_supported)
    exchange_device = staticmethod(_device._exchange_device)
    maybe_exchange_device = staticmethod(_device._maybe_exchange_device)

    class Worker:
        """The same in the processes that compile."""

        current_device = staticmethod(_device.current_device)
        get_device_properties = staticmethod(_device.get_device_properties)
        set_device = staticmethod(_device.set_device)

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        """Return nothing: there are no generations of the device."""
        return ""

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        """Return 0: kernels run at their calls."""
        return 0


class HologramOverrides(CpuDeviceOpOverrides):
    """Names in generated code."""

    def aten_device_type(self) -> str:
        """Return the device type in C++."""
        return "at::kPrivateUse1"


class HologramScheduling(CppScheduling):
    """Inductor's C++ for the CPU, where the host can read the memory that it is for."""

    def __init__(self, scheduler: Any) -> None:
        if scheduler is not None:  # Inductor asks an object without one what it can do
            _refuse_memory_of_devices()
        super().__init__(scheduler)


def _refuse_memory_of_devices() -> None:
    """Raise NotImplementedError where the graph is on an index with memory of its own."""
    for place in V.graph.device_node_mapping:
        if place.type != "hologram":
            continue
        properties = _device.get_device_properties(place)
        if properties.backend != "cpu":
            index = _device.current_device() if place.index is None else place.index
            raise NotImplementedError(
                f"torch.compile(backend='inductor') cannot compile for hologram:{index} "
                f"({properties.name}): it writes C++ for memory of the host, and that device has "
                "memory of its own. Use torch.compile(backend='hologram'), or move the model to "
                "hologram:0, which is the CPU"
            )


class HologramWrapper(PythonWrapperCodegen):
    """The Python function that Inductor makes of a graph: its kernels borrow addresses."""

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> PythonWrapperCodegen:
        """Make one; parts of graphs have their own kind."""
        if args[0]:
            return PythonWrapperCodegen.create(*args, **kwargs)
        return HologramWrapper()

    def _generate_kernel_call_helper(self, kernel_name: str, call_args: Any, **_: Any) -> None:
        self.writeline(self.wrap_kernel_call(kernel_name, call_args))

    def write_async_compile_wait(self) -> None:
        """Take the kernels when they are compiled."""
        super().write_async_compile_wait()
        self.prefix.splice("from hologram_torch._inductor import lend_addresses")
        self.prefix.splice("lend_addresses(globals())")


class HologramCppWrapper(CppWrapperCpu):
    """What AOTInductor and ``cpp_wrapper`` ask for: there is none."""

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> PythonWrapperCodegen:
        """Raise NotImplementedError, which says what to do instead."""
        raise NotImplementedError(
            "AOTInductor and its C++ wrapper cannot compile for device 'hologram': PyTorch's "
            "runtime of such packages knows its own devices only. Save the program with "
            "torch.export.save, and compile what torch.export.load returns with torch.compile; or "
            "export the model on 'cpu' and package that"
        )


def lend_addresses(names: dict[str, Any]) -> None:
    """Have the kernels among a module's names give addresses back after each call.

    A kernel asks tensors for their addresses. Code that keeps one may look at any time, so ops on
    such memory would run at their calls from then on. A kernel keeps none.
    """
    for name, value in names.items():
        if name.startswith("cpp_") and callable(value):
            names[name] = _lending(value)


def _lending(kernel: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        _C.begin_naming()
        try:
            kernel(*args)
        finally:
            _C.end_naming()

    return call


def register() -> None:
    """Register the device."""
    register_interface_for_device("hologram", HologramInterface)
    register_device_op_overrides("hologram", HologramOverrides())
    register_backend_for_device("hologram", HologramScheduling, HologramWrapper, HologramCppWrapper)
    _take_backend_of_cpu()


def _take_backend_of_cpu() -> None:
    # Inductor takes each device that it does not know for one of Triton, and its C++ then lacks the
    # dtypes of intermediate values. There is no registration for this. Both functions answer for
    # other devices as they did.
    original = inductor_utils.get_current_backend

    def get_current_backend(device_type: str | None = None) -> str:
        kind = device_type or V.graph.get_current_device_or_throw().type
        return original("cpu" if kind == "hologram" else device_type)

    for name, module in list(sys.modules.items()):
        if name.startswith("torch._inductor") and hasattr(module, "get_current_backend"):
            module.get_current_backend = get_current_backend  # type: ignore[attr-defined]

    # Nor for this: what is good for memory of the host is asked of the scheduler's nodes.
    original_is_cpu = BaseSchedulerNode.is_cpu

    def is_cpu(node: Any) -> bool:
        place = node.get_device()
        if place is not None and place.type == "hologram":
            return True
        return original_is_cpu(node)

    BaseSchedulerNode.is_cpu = is_cpu  # type: ignore[assignment, method-assign]
