# SPDX-License-Identifier: MIT
"""Programs written for CUDA, unmodified, on the device: ``python -m hologram_torch run script.py``.

The program says ``cuda`` and is told ``cuda``; PyTorch's own code goes on seeing ``hologram``.
Three things make it so. What takes a device takes ``cuda`` as ``hologram``. ``Tensor.device`` and
``Tensor.is_cuda`` answer by who asks. Functions of ``torch.cuda`` are those of ``torch.hologram``,
where there is one, unless PyTorch itself calls them. The rest raises and says so.

``cuda:0`` is the first GPU, ``hologram:1``, where there is one, and else the CPU, ``hologram:0``.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

# Children of a program, which start with an import of torch, run as it does.
VARIABLE = "HOLOGRAM_AS_CUDA"
# Who is told the truth.
_INSIDE = ("torch", "functorch", "hologram_torch", "hologram")
# Of the same name, but another thing.
_OTHERS = ("get_device_capability",)
_NOTHING = ("ipc_collect", "_sleep", "init", "_lazy_init")
_METHODS = (
    "is_pinned",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_tensor",
    "new_zeros",
    "pin_memory",
)
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like")
_AUTOCAST = (
    "get_autocast_dtype",
    "is_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
)


def _is_inside(depth: int = 2) -> bool:
    """Whether the caller of the function that asks is PyTorch or this package."""
    name = sys._getframe(depth).f_globals.get("__name__") or ""
    return name.partition(".")[0] in _INSIDE


# The index of the device that is ``cuda:0``; install() finds it.
_first = 0


def _index_of(number: int | None) -> int:
    """Return the index of ``cuda:number``, or of ``cuda``, which is a GPU where there is one."""
    if number is not None:
        return number + _first if number >= 0 else number
    return max(torch._C._accelerator_getDeviceIndex(), _first)


def ours(value: Any) -> Any:
    """Return ``hologram`` where a value names ``cuda``, as a string or as a device."""
    if isinstance(value, str):
        if value == "cuda" or value.startswith("cuda:"):
            return str(ours(torch.device(value))) if _first else "hologram" + value[4:]
    elif isinstance(value, torch.device) and value.type == "cuda":
        is_plain = not _first and str(value) == "cuda"
        return _PLAIN if is_plain else torch.device("hologram", _index_of(value.index))
    return value


_PLAIN = torch.device("hologram")


def _numbered(value: Any) -> Any:
    """Return what an argument that is a device means: a number is one of ``cuda``."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _index_of(value) if is_number else ours(value)


def theirs(place: torch.device) -> torch.device:
    """Return ``cuda`` where a device is ``hologram``, but for the CPU beside GPUs."""
    if place.type != "hologram" or (place.index is not None and place.index < _first):
        return place
    return torch.device("cuda", None if place.index is None else place.index - _first)


def _taking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes ``cuda`` as ``hologram`` in all its arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {name: ours(value) for name, value in kwargs.items()}
        return function(*[ours(value) for value in args], **kwargs)

    return call


def _by_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory, which names its device, if any, as `device`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = _numbered(kwargs["device"])
        return function(*args, **kwargs)

    return call


def _moving(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Return a ``to``, whose argument at `place` may be the number of a device."""

    @functools.wraps(function)
    def to(*args: Any, **kwargs: Any) -> Any:
        given = [_numbered(value) if i == place else ours(value) for i, value in enumerate(args)]
        named = {k: _numbered(v) if k == "device" else ours(v) for k, v in kwargs.items()}
        return function(*given, **named)

    return to


def _about_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ``torch.hologram`` that counts devices as ``cuda`` does."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return _taking(function)
    if "device" not in parameters:
        return _taking(function)
    place = list(parameters).index("device")
    default = parameters["device"].default

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [ours(value) for value in args]
        if place < len(args):
            given[place] = _numbered(args[place])
        elif "device" in kwargs:
            kwargs["device"] = _numbered(kwargs["device"])
        elif _first and default is None:
            kwargs["device"] = _index_of(None)
        return function(*given, **kwargs)

    return call


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            f"torch.cuda.{name} has no counterpart on the device 'hologram', which stands for "
            f"'cuda' in this program (python -m hologram_torch run)"
        )

    return refuse


def _for_programs(original: Any, replacement: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is the original to PyTorch and another to programs."""

    @functools.wraps(replacement)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (original if _is_inside() else replacement)(*args, **kwargs)

    return call


def _patch_tensors() -> None:
    base = torch._C.TensorBase
    device_of = base.device.__get__
    tensor = torch.Tensor

    def device(self: torch.Tensor) -> torch.device:
        found = device_of(self)
        return found if found.type != "hologram" or _is_inside() else theirs(found)

    def is_cuda(self: torch.Tensor) -> bool:
        found = device_of(self).type
        return found == "cuda" or (found == "hologram" and not _is_inside())

    def cuda(
        self: torch.Tensor, device: Any = None, non_blocking: bool = False, **more: Any
    ) -> Any:
        place = "cuda" if device is None else device
        place = f"cuda:{place}" if isinstance(place, int) else place
        return self.to(ours(place), non_blocking=non_blocking, **more)

    get_device = tensor.get_device

    @functools.wraps(get_device)
    def index(self: torch.Tensor) -> int:
        found = get_device(self)
        return found - _first if found >= _first and not _is_inside() else found

    tensor.device, tensor.is_cuda = property(device), property(is_cuda)  # type: ignore[assignment]
    tensor.cuda = cuda  # type: ignore[assignment, method-assign]
    tensor.get_device = index  # type: ignore[assignment, method-assign]
    tensor.to = _moving(tensor.to, 1)  # type: ignore[assignment, method-assign]
    for name in _METHODS:
        setattr(tensor, name, _taking(getattr(tensor, name)))


def _patch_makers() -> None:
    from torch.utils import _device

    constructors = _device._device_constructors()  # found before anything is replaced
    for module in (torch, torch.fft, torch.nested, torch.sparse):
        for name, value in list(vars(module).items()):
            if isinstance(value, Callable) and value in constructors:  # type: ignore[arg-type]
                setattr(module, name, _by_device(value))
    for name in _LIKE:
        setattr(torch, name, _by_device(getattr(torch, name)))
    for name in _AUTOCAST:
        setattr(torch, name, _autocast_of(getattr(torch, name)))
    torch._C._nn._parse_to = _moving(torch._C._nn._parse_to, 0)
    _device.DeviceContext.__init__ = _taking(_device.DeviceContext.__init__)  # type: ignore
    torch.Generator = _taking_class(torch.Generator)  # type: ignore[assignment, misc]
    torch.random.fork_rng = _fork_rng(torch.random.fork_rng)


def _autocast_of(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs and not _is_inside():
            args = ("hologram",)  # no device meant CUDA
        return function(*[ours(a) for a in args], **{k: ours(v) for k, v in kwargs.items()})

    return call


def _fork_rng(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def fork_rng(devices: Any = None, *args: Any, **kwargs: Any) -> Any:
        if len(args) < 3:  # enabled, and two names that appear in a warning
            kwargs["device_type"] = ours(kwargs.get("device_type", "cuda"))
        if devices is not None:
            devices = [_numbered(d) for d in devices]
        return function(devices, *args, **kwargs)

    return fork_rng


def _taking_class(cls: Any, make: Callable[..., Any] | None = None) -> Any:
    """Return what stands for a class of PyTorch's: it makes the same objects, or calls `make`."""
    maker = make or _taking(cls)

    class Maker(type):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return maker(*args, **kwargs)

        def __instancecheck__(self, instance: object) -> bool:
            return isinstance(instance, cls)

        def __subclasscheck__(self, subclass: type) -> bool:
            return issubclass(subclass, cls)

    return Maker(cls.__name__, (), {"__doc__": cls.__doc__, "__module__": cls.__module__})


def _patch_cuda() -> None:
    """Make functions of ``torch.cuda`` those of ``torch.hologram`` where programs call them."""
    hologram: Any = torch.get_device_module("hologram")
    for module, source in ((torch.cuda, hologram), (torch.cuda.memory, hologram.memory)):
        for name in dict.fromkeys((*module.__all__, *vars(module))):
            original = getattr(module, name, None)
            public = not name.startswith("_") or hasattr(source, name) or name in _NOTHING
            defined = str(getattr(original, "__module__", "")).startswith("torch.")
            if not callable(original) or not public or not defined:
                continue
            if name in _NOTHING:
                replacement: Any = lambda *_, **__: None  # noqa: E731
            elif hasattr(source, name) and name not in _OTHERS:
                replacement = getattr(source, name)
                if isinstance(replacement, type) and not isinstance(original, type):
                    continue
            elif name not in module.__all__:
                continue
            elif isinstance(original, type):
                if issubclass(original, BaseException):
                    continue
                replacement = _taking_class(original, _refusing(name))
            else:
                replacement = _refusing(name)
            if isinstance(replacement, type):
                # PyTorch's code has its own names for these.
                setattr(module, name, replacement)
            else:
                setattr(module, name, _for_programs(original, _about_device(replacement)))
    torch.cuda.default_generators = hologram.default_generators
    _number_devices(hologram)


def _number_devices(hologram: Any) -> None:
    """Have what counts devices count those that are ``cuda``."""

    def device_count() -> int:
        return int(hologram.device_count()) - _first

    def current_device() -> int:
        return _index_of(None) - _first

    def get_rng_state_all() -> list[torch.Tensor]:
        return [hologram.get_rng_state(i) for i in range(_first, hologram.device_count())]

    def set_rng_state_all(new_states: Any) -> None:
        for i, state in enumerate(new_states):
            hologram.set_rng_state(state, i + _first)

    for function in (device_count, current_device, get_rng_state_all, set_rng_state_all):
        name = function.__name__
        original = getattr(torch.cuda, name)
        setattr(torch.cuda, name, _for_programs(original, function))
    make_device = _taking_class(hologram.device, lambda device: hologram.device(_numbered(device)))
    vars(torch.cuda)["device"] = make_device
    if _first:
        stream = _taking_class(hologram.Stream, _about_device(hologram.Stream))
        vars(torch.cuda)["Stream"] = stream
        torch.cuda.default_generators = tuple(hologram.default_generators)[_first:]


def _patch_amp() -> None:
    from torch.amp import autocast_mode, grad_scaler

    autocast, scaler = autocast_mode.autocast, grad_scaler.GradScaler
    start_autocast, start_scaler = autocast.__init__, scaler.__init__

    @functools.wraps(start_autocast)
    def __init__(
        self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any
    ) -> None:
        if device_type == "cuda":
            device_type = "hologram"
            dtype = torch.float16 if dtype is None else dtype  # which is CUDA's
        start_autocast(self, device_type, dtype, *args, **kwargs)

    @functools.wraps(start_scaler)
    def start(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        start_scaler(self, ours(device), *args, **kwargs)

    autocast.__init__ = __init__  # type: ignore[method-assign]
    scaler.__init__ = start  # type: ignore[method-assign]


def _patch_distributed() -> None:
    import torch.distributed as dist

    if not dist.is_available():
        return

    def with_gloo(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = list(args)
            for holder, key in ((given, place), (kwargs, "backend")):
                try:
                    wish = holder[key]  # type: ignore[index, call-overload]
                except (IndexError, KeyError):
                    continue
                if isinstance(wish, str) and "nccl" in wish.lower():
                    holder[key] = "gloo"  # type: ignore[index, call-overload]
            if kwargs.get("device_id") is not None:
                kwargs["device_id"] = None  # which binds NCCL to a device
            return function(*given, **kwargs)

        return call

    places = {"init_process_group": 0, "new_group": 2}
    for module in (dist, dist.distributed_c10d):
        for name, place in places.items():
            setattr(module, name, with_gloo(getattr(module, name), place))

    from torch.nn.parallel import DistributedDataParallel

    start = DistributedDataParallel.__init__

    @functools.wraps(start)
    def __init__(self: Any, module: Any, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
        # The module is where it is; indices would mean CUDA's.
        kwargs.pop("output_device", None)
        start(self, module, None, *((None, *args[1:]) if args else ()), **kwargs)

    DistributedDataParallel.__init__ = __init__  # type: ignore[method-assign]


def _patch_files() -> None:
    """Put what a file says was on ``cuda``, or is asked there, on the device."""

    def restore(storage: Any, location: str) -> Any:
        if location == "cuda" or location.startswith("cuda:"):
            return torch.serialization.default_restore_location(storage, ours(location))
        return None

    # Before CUDA's own, whose number is 20.
    torch.serialization.register_package(15, lambda _: None, restore)


def install() -> None:
    """Let this process, and those that it starts, say ``cuda``; once."""
    if getattr(torch.Tensor.cuda, "__module__", "") == __name__:
        return
    os.environ[VARIABLE] = "1"
    global _first
    hologram: Any = torch.get_device_module("hologram")
    _first = 1 if hologram.device_count() > 1 else 0
    _patch_makers()
    _patch_tensors()
    _patch_cuda()
    _patch_amp()
    _patch_distributed()
    _patch_files()


def run(arguments: list[str]) -> int:
    """Run ``script.py [args]`` or ``-m module [args]`` as the program of this process."""
    import runpy

    is_module = arguments[:1] == ["-m"]
    program = arguments[1:] if is_module else arguments
    if not program or program[0].startswith("-"):
        print("usage: python -m hologram_torch run (script.py | -m module) [arguments]")
        return 2
    if not is_module and not os.path.exists(program[0]):
        print(f"python -m hologram_torch run: there is no file {program[0]}", file=sys.stderr)
        return 2
    install()
    sys.argv = list(program)
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
    return 0
