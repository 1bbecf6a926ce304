# SPDX-License-Identifier: MIT
"""A safetensors file mapped into memory, and hologram tensors on that memory."""

from __future__ import annotations

import json
import os
from typing import Any

import torch

# What a header calls the dtypes; files with others are read as they are for other devices.
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}


class MappedFile:
    """What ``safe_open(path, framework="pt", device="hologram")`` returns."""

    def __init__(
        self, reader: Any, filename: str | os.PathLike[str], index: int, mapped: bool = True
    ) -> None:
        self._reader = reader  # safetensors' own, on cpu: it has checked the file
        self._index = index
        self._entries: dict[str, Any] = {}
        if not mapped:
            return
        path = os.fspath(filename)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            self._entries = json.loads(file.read(length))
        self._start = 8 + length
        size = os.path.getsize(path)
        self._bytes = torch.from_file(path, shared=False, size=size, dtype=torch.uint8)

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the file; tensors keep its mapping alive."""
        self._reader.__exit__(*exc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)  # keys, metadata, offset_keys

    def get_tensor(self, name: str) -> torch.Tensor:
        """Return a tensor on the file's memory; on a copy where an element would lie unaligned."""
        entry = self._entries.get(name, {})
        dtype = _DTYPES.get(entry.get("dtype"))
        if dtype is None:  # the reader knows the dtype, or raises as there is no such tensor
            return self._reader.get_tensor(name).to(f"hologram:{self._index}")
        begin, end = (self._start + offset for offset in entry["data_offsets"])
        data = self._bytes[begin:end]
        data = data.clone() if begin % dtype.itemsize else data
        return torch.ops.hologram._from_host(data.view(dtype).view(entry["shape"]), self._index)

    def get_tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by name."""
        return {name: self.get_tensor(name) for name in self._reader.offset_keys()}

    def get_slice(self, name: str) -> MappedSlice:
        """Return what an index into turns into a tensor."""
        return MappedSlice(self, name, self._reader.get_slice(name))


class MappedSlice:
    """What ``get_slice`` returns; ``[index]`` reads only what it is asked for."""

    def __init__(self, file: MappedFile, name: str, reader: Any) -> None:
        self._file, self._name, self._reader = file, name, reader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)  # get_shape, get_dtype

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self._file.get_tensor(self._name)[index].contiguous()
