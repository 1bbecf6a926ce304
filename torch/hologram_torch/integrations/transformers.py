# SPDX-License-Identifier: MIT
"""Transformers: the device of ``TrainingArguments`` and of pipelines, bf16, random state, saving.

``from_pretrained(device_map="hologram")`` and ``model.to("hologram")`` need nothing.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hologram_torch import device as _hologram
from hologram_torch._save import naming
from hologram_torch.integrations import chosen_device


def _wants_cpu(arguments: Any) -> bool:
    asked = os.environ.get("ACCELERATE_USE_CPU", "0").lower() in (
        "1",
        "true",
        "yes",
        "y",
        "on",
        "t",
    )
    return bool(arguments.use_cpu) or asked


def training_args(module: ModuleType) -> None:
    """Let ``TrainingArguments`` take the device of Accelerate's state, and allow ``bf16=True``."""
    setup = module.TrainingArguments.__dict__["_setup_devices"]
    original, has_bf16 = setup.func, module.is_torch_bf16_gpu_available

    @functools.wraps(original)
    def _setup_devices(self: Any) -> torch.device:
        found: torch.device = original(self)
        wanted = found.type == "cpu" and _wants_cpu(self)
        return found if wanted or found.type != "cpu" else chosen_device() or found

    @functools.wraps(has_bf16)
    def is_torch_bf16_gpu_available() -> bool:
        return bool(has_bf16()) or chosen_device() is not None

    replaced = functools.cached_property(_setup_devices)
    replaced.__set_name__(module.TrainingArguments, "_setup_devices")
    module.TrainingArguments._setup_devices = replaced
    vars(module)["is_torch_bf16_gpu_available"] = is_torch_bf16_gpu_available


def trainer(module: ModuleType) -> None:
    """Keep the device's random state in the checkpoints of ``Trainer``."""
    save, load = module.Trainer._save_rng_state, module.Trainer._load_rng_state

    def path(self: Any, folder: str) -> Path:
        return Path(folder) / f"rng_state_hologram_{self.args.process_index}.pth"

    @functools.wraps(save)
    def _save_rng_state(self: Any, output_dir: str) -> None:
        save(self, output_dir)
        torch.save(_hologram.get_rng_state_all(), path(self, output_dir))

    @functools.wraps(load)
    def _load_rng_state(self: Any, checkpoint: str | None) -> None:
        load(self, checkpoint)
        if checkpoint is not None and path(self, checkpoint).is_file():
            _hologram.set_rng_state_all(torch.load(path(self, checkpoint), weights_only=True))

    module.Trainer._save_rng_state, module.Trainer._load_rng_state = (
        _save_rng_state,
        _load_rng_state,
    )


def modeling_utils(module: ModuleType) -> None:
    """Leave saved models deferred: ``save_pretrained`` asks for addresses to find tied weights."""
    cls = module.PreTrainedModel
    cls.save_pretrained = naming(cls.save_pretrained)


def pipelines(module: ModuleType) -> None:
    """Let a pipeline without a device, or with a number, take hologram where it would take cpu."""
    original = module.Pipeline.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        wish = kwargs.get("device")
        unasked = wish is None or (isinstance(wish, int) and wish >= 0)
        if unasked and self.device.type == "cpu" and not getattr(self.model, "hf_device_map", None):
            self.device = chosen_device() or self.device
            self.model.to(self.device)

    module.Pipeline.__init__ = __init__
