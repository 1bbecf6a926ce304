# SPDX-License-Identifier: MIT
"""The module ``torch.hologram``: devices, streams, memory and random state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.types import Device

from hologram_torch import _C, memory
from hologram_torch._indices import current_device, device_count
from hologram_torch._indices import device_index as _index
from hologram_torch.graphs import make_graphed_callables
from hologram_torch.memory import (
    MemPool,
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    use_mem_pool,
)

__all__ = [
    "Event",
    "MemPool",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "use_mem_pool",
]


# `import torch.hologram.memory` finds it, as torch.cuda.memory is found.
sys.modules["torch.hologram.memory"] = memory

# --- Devices ---------------------------------------------------------------------------------

# Checkpointing saves the random state of devices that say they are in use.
_initialized = True


def is_available() -> bool:
    """Tell whether the device can be used: always, for the CPU is one of its backends."""
    return True


def is_initialized() -> bool:
    """Tell whether the device is ready; it has no lazy start."""
    return True


def init() -> None:
    """Do nothing: there is no lazy start."""


def _lazy_init() -> None:
    pass


def _lazy_call(function: Callable[[], Any], **kwargs: Any) -> None:
    function()


def _is_in_bad_fork() -> bool:
    # Memory of the host is as good in a child as in its parent.
    return False


def set_device(device: Device) -> None:
    """Make a device the current one."""
    torch._C._accelerator_setDeviceIndex(_index(device))


def _exchange_device(device: int) -> int:
    previous = current_device()
    if device >= 0:
        set_device(device)
    return previous


_maybe_exchange_device = _exchange_device


class device:
    """Context manager that makes a device the current one; None or -1 leaves it."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None or device == -1 else _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor the current one."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if getattr(obj, "is_hologram", False) else -1)


@dataclass(frozen=True)
class DeviceProperties:
    """What ``get_device_properties`` returns."""

    name: str
    backend: str
    architecture: str
    total_memory: int
    multi_processor_count: int


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Return name, backend, instruction set, memory in bytes and number of processors."""
    return DeviceProperties(**_C.device_properties(_index(device)))


def get_device_name(device: Device = None) -> str:
    """Return the name of the processor behind a device."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> dict[str, Any]:
    """Return what the device can do, as ``torch.accelerator.get_device_capability``."""
    return torch.accelerator.get_device_capability(_index(device))


def synchronize(device: Device = None) -> None:
    """Run everything that was recorded on a device and wait until it is done."""
    if device is None:
        _C.synchronize()
    else:
        torch._C._accelerator_synchronizeDevice(_index(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Tell whether bfloat16 can be computed with: yes."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types autocast may use."""
    return [torch.bfloat16, torch.float16]


# --- Streams and events ----------------------------------------------------------------------


class Stream(torch.Stream):
    """A queue of work on the device. To wait for one, or to mark it, runs all that was recorded."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        """Take a stream of the device's pool; negative priorities are urgent."""
        if kwargs:  # an existing stream, by its identity
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device("hologram", _index(device)), priority=priority)


class _EventType(type):
    # torch.Event.elapsed_time takes that exact class, so an Event made here is one.
    def __call__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        return torch.Event(
            "hologram", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "hologram"


class Event(metaclass=_EventType):
    """A mark in a stream; ``enable_timing=True`` makes ``elapsed_time`` usable."""


def current_stream(device: Device = None) -> torch.Stream:
    """Return the stream that new work of this thread goes to."""
    return torch._C._accelerator_getStream(_index(device))


def default_stream(device: Device = None) -> torch.Stream:
    """Return the stream a thread starts with."""
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=_DEVICE_TYPE)


def set_stream(stream: torch.Stream | None) -> None:
    """Send this thread's new work to a stream; None leaves it where it goes."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Context manager that sends work to a stream; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self.previous: torch.Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self.previous = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            set_stream(self.previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context manager that sends work to a stream."""
    return StreamContext(stream)


_DEVICE_TYPE = int(torch._C._autograd.DeviceType.PrivateUse1)  # type: ignore[call-overload]

# --- Random state ----------------------------------------------------------------------------


def _generator(device: Device = None) -> torch.Generator:
    # Modes that watch operators have nothing to do with it.
    with torch._C.DisableTorchFunction():
        return torch.ops.hologram._default_generator(_index(device))


def _get_generator(device: torch.device) -> torch.Generator:
    return _generator(device)


class _Generators:
    """The default generator of each device, looked up when asked for."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        if not 0 <= index < len(self):
            raise IndexError(f"no device hologram:{index}; there are {len(self)}")
        return _generator(index)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[i] for i in range(len(self)))


default_generators = _Generators()


def get_rng_state(device: Device = "hologram") -> torch.Tensor:
    """Return the random state of a device as a byte tensor: seed and offset of its Philox."""
    return _generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "hologram") -> None:
    """Set the random state of a device to what ``get_rng_state`` returned."""
    with torch._C._DisableFuncTorch():
        new_state = new_state.clone(memory_format=torch.contiguous_format)
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the random state of every device."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the random state of every device."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the current device from the operating system's randomness."""
    _generator().seed()


def seed_all() -> None:
    """Seed every device alike from the operating system's randomness."""
    value = _generator(0).seed()
    manual_seed_all(value)


def initial_seed() -> int:
    """Return the seed of the current device."""
    return _generator().initial_seed()


# --- Inductor --------------------------------------------------------------------------------


def _inductor_backend_init() -> None:
    # Imported when Inductor is: `import torch` must stay quick.
    from hologram_torch import _inductor

    _inductor.register()
