# SPDX-License-Identifier: MIT
"""Numbers, sizes and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence

SHORT_DTYPES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
}


def count_text(count: int, noun: str) -> str:
    """Write '1 op', '2 ops', '2 launches'."""
    plural = "" if count == 1 else "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{plural}"


def bytes_text(count: float) -> str:
    """Write a number of bytes as people read it: '12.6 MB'."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= 0.9995 * scale:
            value = count / scale
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    return f"{count:.0f} B"


def time_text(ns: float) -> str:
    """Write a duration as people read it: '142 µs'."""
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= 0.9995 * scale:
            value = ns / scale
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"
    return f"{ns:.0f} ns"


def percent_text(part: float) -> str:
    """Write a share as a percentage that says 100 % only where it is all."""
    if 0.995 <= part < 1 or 0 < part < 0.005:
        return f"{min(part, 0.9999) * 100:.3g}%"
    return f"{part:.0%}"


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape: '[1000×768]'."""
    return "[" + "×".join(str(n) for n in shape) + "]"


def type_text(dtype: str, shape: Sequence[int]) -> str:
    """Write dtype and shape: 'f32 [1000×768]'."""
    return f"{SHORT_DTYPES.get(dtype, dtype)} {shape_text(shape)}"


def short_name(name: str, limit: int = 22) -> str:
    """Shorten the first parts of a dotted name: 'm.l.1.attention.weight'."""
    parts = name.split(".")
    for i, part in enumerate(parts[:-1]):
        if len(".".join(parts)) <= limit:
            break
        parts[i] = part if part.isdigit() else part[:1]
    return ".".join(parts)
