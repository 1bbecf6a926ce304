# SPDX-License-Identifier: MIT
"""Share tensors between processes: through the queues of ``torch.multiprocessing``, and in place.

A storage that is sent, or asked to by ``share_memory_()``, moves into the memory of a shared cpu
storage, which PyTorch passes on. Other processes may write there at any time, so ops on it run at
their calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, cast

import torch
from torch.multiprocessing import reductions

from hologram_torch import _C  # noqa: F401  (defines the operators)

_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _remember(memory: torch.UntypedStorage, storage: torch.UntypedStorage) -> None:
    # The storage keeps `memory` alive, so while the first lives its address means nothing else.
    key = ("hologram", memory._cdata)
    reductions.shared_cache[key] = reductions.StorageWeakRef(storage)


def _memory_of(storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
    memory = torch.ops.hologram._shared_memory(_bytes_of(storage))
    return None if memory is None else memory.untyped_storage()


def _share(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Return the cpu storage whose memory `storage` shares; where there is none it moves there."""
    memory = _memory_of(storage)
    if memory is None:
        memory = torch.UntypedStorage._new_shared(storage.nbytes())
        torch.ops.hologram._move_to_shared_memory(_bytes_of(storage), _bytes_of(memory))
        _remember(memory, storage)
    return memory


def _rebuild_storage(memory: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    found = reductions.storage_from_cache(torch.UntypedStorage, ("hologram", memory._cdata))
    if found is not None:
        return cast("torch.UntypedStorage", found)
    storage = torch.ops.hologram._from_shared_memory(_bytes_of(memory), index).untyped_storage()
    _remember(memory, storage)
    return cast("torch.UntypedStorage", storage)


def _rebuild_empty(index: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=f"hologram:{index}")


def _reduce_storage(storage: torch.UntypedStorage) -> _Reduced:
    if storage.device.type != "hologram":
        return cast("_Reduced", reductions.reduce_storage(storage))
    index = storage.device.index or 0
    if storage.nbytes() == 0:
        return (_rebuild_empty, (index,))
    return (_rebuild_storage, (_share(storage), index))


def install() -> None:
    """Register the reduction, and give the two methods of storages a meaning on the device."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    original_share = torch.UntypedStorage.share_memory_
    original_is_shared = torch.UntypedStorage.is_shared
    if getattr(original_share, "_hologram", False):
        return

    @functools.wraps(original_share)
    def share_memory_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        if self.device.type != "hologram":
            return original_share(self, *args, **kwargs)
        if self.nbytes() != 0:
            _share(self)
        return self

    @functools.wraps(original_is_shared)
    def is_shared(self: torch.UntypedStorage) -> bool:
        if self.device.type != "hologram":
            return original_is_shared(self)
        return self.nbytes() == 0 or _memory_of(self) is not None

    share_memory_._hologram = True  # type: ignore[attr-defined]
    torch.UntypedStorage.share_memory_ = share_memory_  # type: ignore[method-assign]
    torch.UntypedStorage.is_shared = is_shared  # type: ignore[assignment]
