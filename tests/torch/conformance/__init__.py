# SPDX-License-Identifier: MIT
"""PyTorch's own databases run on cpu and on hologram, and what differs."""
