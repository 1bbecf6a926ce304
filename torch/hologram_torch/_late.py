# SPDX-License-Identifier: MIT
"""Parts of PyTorch that are not imported with it, and what each needs to know of the device.

PyTorch has no registration for these. The functions run when the parts are imported, so that
`import torch` stays quick.
"""

from __future__ import annotations

from hologram_torch.integrations._imports import after_import

# The module of PyTorch, and the function to call when it has been imported: module:function.
_PARTS = {
    "torch._functorch.partitioners": "_random:partitioners",
    "torch._higher_order_ops.flex_attention": "_flex_attention:operators",
    "torch._prims.rng_prims": "_random:operators",
    "torch._subclasses.fake_impls": "_fake:kernels",
    "torch.distributed.tensor": "_whole_operators:shardings",
    "torch.nn.attention.flex_attention": "_flex_attention:checks",
    "torch.utils.flop_counter": "_whole_operators:flops",
}


def install() -> None:
    """Serve what is imported already, and what will be; once."""
    after_import({name: f"hologram_torch.{served}" for name, served in _PARTS.items()})
