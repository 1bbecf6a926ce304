# SPDX-License-Identifier: MIT
"""Lightning: ``accelerator="hologram"`` of ``Trainer`` and ``Fabric``, through their registries.

Serves the packages ``lightning``, ``pytorch_lightning`` and ``lightning_fabric``.
"""

from __future__ import annotations

import functools
import warnings
from types import ModuleType
from typing import Any

import torch

from hologram_torch.integrations import chosen_device
from hologram_torch.integrations._lightning_accelerator import make_accelerator


def accelerators(module: ModuleType) -> None:
    """Register the device with Trainer, or with Fabric."""
    fabric = hasattr(module, "ACCELERATOR_REGISTRY")
    registry = module.ACCELERATOR_REGISTRY if fabric else module.AcceleratorRegistry
    registry.register("hologram", make_accelerator(module.Accelerator), description="Hologram")


def connector(module: ModuleType) -> None:
    """Let "auto" find the device where it would find cpu, and strategy and precision be for it."""
    cls = getattr(module, "_AcceleratorConnector", None) or module._Connector
    choose, precision = cls._choose_auto_accelerator, cls._check_and_init_precision
    strategy = cls._choose_strategy

    def _choose_auto_accelerator(*args: Any) -> str:
        found: str = choose(*args)
        return "hologram" if found == "cpu" and chosen_device() is not None else found

    @functools.wraps(strategy)
    def _choose_strategy(self: Any) -> Any:
        found = strategy(self)
        if isinstance(found, module.SingleDeviceStrategy) and self.accelerator.name() == "hologram":
            return module.SingleDeviceStrategy(device=self._parallel_devices[0])
        return found

    @functools.wraps(precision)
    def _check_and_init_precision(self: Any) -> Any:
        with warnings.catch_warnings():  # its scaler is for CUDA, and says that there is none
            warnings.filterwarnings("ignore", message=".*GradScaler is enabled")
            plugin = precision(self)
        if getattr(plugin, "device", None) == "cuda" and self.accelerator.name() == "hologram":
            plugin.device = "hologram"
            if plugin.scaler is not None:
                plugin.scaler = torch.amp.GradScaler("hologram")
        return plugin

    cls._choose_auto_accelerator = staticmethod(_choose_auto_accelerator)
    cls._choose_strategy = _choose_strategy
    cls._check_and_init_precision = _check_and_init_precision


def ddp(module: ModuleType) -> None:
    """Let DDP find devices by its module: indices would mean CUDA's streams to Lightning."""
    cls = module.DDPStrategy
    fabric = hasattr(cls, "_determine_ddp_device_ids")
    name = "_determine_ddp_device_ids" if fabric else "determine_ddp_device_ids"
    original = getattr(cls, name)

    @functools.wraps(original)
    def device_ids(self: Any) -> list[int] | None:
        return None if self.root_device.type == "hologram" else original(self)

    setattr(cls, name, device_ids)
