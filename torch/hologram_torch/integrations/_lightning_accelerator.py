# SPDX-License-Identifier: MIT
"""The device as Lightning's accelerator."""

from __future__ import annotations

from typing import Any

import torch

from hologram_torch import device as _hologram


def make_accelerator(base: type) -> type:
    """Return the device's class for the registry of `base`, Trainer's or Fabric's."""

    class HologramAccelerator(base):  # type: ignore[misc]
        """Hologram's devices. A number asks for processes on hologram:0, a list for indices."""

        def setup_device(self, device: torch.device) -> None:
            _hologram.set_device(device)

        def teardown(self) -> None:
            _hologram.empty_cache()

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            if isinstance(devices, str) and "," in devices:
                return [int(index) for index in devices.split(",") if index]
            return [0] * int(devices) if isinstance(devices, int | str) else list(devices)

        @staticmethod
        def get_parallel_devices(devices: Any) -> list[torch.device]:
            return [torch.device("hologram", index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return "hologram"

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(_hologram.memory_stats(device))

    return HologramAccelerator
