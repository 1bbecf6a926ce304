# SPDX-License-Identifier: MIT
"""Whether anyone wants to know what NumPy computes on Tensors, see `hologram.observe`."""

traces = 0  # that are open and take notes of it
