# SPDX-License-Identifier: MIT
"""Hugging Face Accelerate: the device it picks, groups of processes, and the random state it saves.

Accelerate's own way to another device is the variable ``ACCELERATE_TORCH_DEVICE``, which is
obeyed. It takes precedence over ``Accelerator(cpu=True)`` there, so it is not set for the user.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hologram_torch import device
from hologram_torch.integrations import chosen_device


def state(module: ModuleType) -> None:
    """Let ``PartialState`` pick the device where it would take cpu unasked."""
    cls, kinds = module.PartialState, module.DistributedType
    original_backend, original_device = cls._prepare_backend, cls.set_device

    @functools.wraps(original_backend)
    def _prepare_backend(self: Any, cpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        backend, kind = original_backend(self, cpu, *args, **kwargs)
        launched = int(os.environ.get("LOCAL_RANK", -1)) != -1
        if launched and not cpu and kind == kinds.NO and chosen_device() is not None:
            # Without this each process would train alone. Groups of cpu processes use gloo, which
            # serves hologram tensors.
            return "gloo", kinds.MULTI_CPU
        return backend, kind

    @functools.wraps(original_device)
    def set_device(self: Any) -> None:
        unasked = self.device is None and not self._cpu
        original_device(self)
        if unasked and self.device.type == "cpu":
            self.device = chosen_device() or self.device

    cls._prepare_backend, cls.set_device = _prepare_backend, set_device


def _random_states(function: Callable[..., Any], arguments: tuple, named: dict) -> Path:
    """Return where the device's random state lies beside what a call of `function` saves."""
    bound = inspect.signature(function).bind(*arguments, **named).arguments
    folder = bound.get("output_dir") or bound["input_dir"]
    return Path(folder) / f"random_states_hologram_{bound['process_index']}.pkl"


def checkpointing(module: ModuleType) -> None:
    """Save and load the device's random state with the others of ``save_state()``."""
    save, load = module.save_accelerator_state, module.load_accelerator_state

    @functools.wraps(save)
    def save_accelerator_state(*args: Any, **kwargs: Any) -> Any:
        saved = save(*args, **kwargs)
        torch.save(device.get_rng_state_all(), _random_states(save, args, kwargs))
        return saved

    @functools.wraps(load)
    def load_accelerator_state(*args: Any, **kwargs: Any) -> Any:
        loaded = load(*args, **kwargs)
        path = _random_states(load, args, kwargs)
        if path.is_file():
            device.set_rng_state_all(torch.load(path, weights_only=True))
        return loaded

    vars(module)["save_accelerator_state"] = save_accelerator_state
    vars(module)["load_accelerator_state"] = load_accelerator_state
