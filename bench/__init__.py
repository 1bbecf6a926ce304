# SPDX-License-Identifier: MIT
"""Measurements of torch.device('hologram') against cpu: ``python -m bench`` from the root."""
