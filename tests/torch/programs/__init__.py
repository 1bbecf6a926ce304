# SPDX-License-Identifier: MIT
"""Random eager programs, and the check that deferring them changes nothing."""
