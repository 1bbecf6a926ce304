# SPDX-License-Identifier: MIT
"""What other libraries need beyond PyTorch to use the device.

Nothing here imports a library. A module of this package is run when a library that it serves has
been imported, by whomever. ``HOLOGRAM_INTEGRATIONS=0`` leaves all libraries as they are.

A library that picks a device by itself gets hologram where it would have taken cpu, as long as
``torch.accelerator.current_accelerator()`` is hologram. Who asks a library for cpu gets cpu.
"""

from __future__ import annotations

import os

import torch

from hologram_torch.integrations._imports import after_import

# The module of a library, and the function to call when it has been imported: module:name.
HOOKS = {
    "accelerate.state": "accelerate:state",
    "accelerate.checkpointing": "accelerate:checkpointing",
    "safetensors": "safetensors:package",
    "safetensors.torch": "safetensors:functions",
    "transformers.modeling_utils": "transformers:modeling_utils",
    "transformers.pipelines.base": "transformers:pipelines",
    "transformers.trainer": "transformers:trainer",
    "transformers.training_args": "transformers:training_args",
}
for _name, _connector in (
    ("lightning.pytorch", "trainer.connectors.accelerator_connector"),
    ("pytorch_lightning", "trainer.connectors.accelerator_connector"),
    ("lightning.fabric", "connector"),
    ("lightning_fabric", "connector"),
):
    HOOKS[f"{_name}.accelerators"] = "lightning:accelerators"
    HOOKS[f"{_name}.{_connector}"] = "lightning:connector"
    HOOKS[f"{_name}.strategies.ddp"] = "lightning:ddp"


def chosen_device() -> torch.device | None:
    """Return the hologram device that libraries take unasked; None where another is preferred."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "hologram":
        return None
    return torch.device("hologram", torch.accelerator.current_device_index())


def install() -> None:
    """Serve what is imported already, and what will be; once."""
    if os.environ.get("HOLOGRAM_INTEGRATIONS", "1") != "0":
        after_import({name: f"{__name__}.{served}" for name, served in HOOKS.items()})
