# SPDX-License-Identifier: MIT
"""safetensors: files used where they are mapped, and models that stay deferred when saved.

safetensors comes with transformers, which only `make test-all` installs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("safetensors", reason="tools/requirements-all.txt has it")
import safetensors
import safetensors.torch

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.uint16,
    torch.float8_e4m3fn,
)


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    found = {str(dtype): torch.randn(5, 7).mul(3).to(dtype) for dtype in DTYPES}
    return {**found, "scalar": torch.tensor(2.5), "empty": torch.empty(0, 3)}


@pytest.fixture
def path(tensors: dict[str, torch.Tensor], tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(tensors, path, metadata={"kind": "test"})
    return path


def mapped_ranges(path: Path) -> list[range]:
    """Return the addresses at which this process has the file mapped."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            found.append(range(begin, end))
    return found


def same_bytes(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.device.type == "hologram"
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    plain = ours.cpu().contiguous().flatten()
    assert plain.view(torch.uint8).equal(theirs.contiguous().flatten().view(torch.uint8))


@pytest.mark.parametrize("device", ["hologram", "hologram:0", torch.device("hologram")])
def test_load_file(path: Path, tensors: dict[str, torch.Tensor], device: object) -> None:
    loaded = safetensors.torch.load_file(path, device=device)
    assert loaded.keys() == tensors.keys()
    for name, theirs in tensors.items():
        same_bytes(loaded[name], theirs)


def test_memory_is_the_mapping(path: Path) -> None:
    loaded = safetensors.torch.load_file(path, device="hologram")
    ranges = mapped_ranges(path)
    addresses = {loaded[str(dtype)].data_ptr() for dtype in DTYPES[:11]}
    assert len(addresses) == 11
    assert all(any(address in found for found in ranges) for address in addresses)
    # Each tensor has a storage of its own, as on cpu.
    assert loaded["torch.float32"].untyped_storage().nbytes() == 5 * 7 * 4


def test_mapping_goes_with_the_last_tensor(path: Path) -> None:
    loaded = safetensors.torch.load_file(path, device="hologram")
    kept = loaded["torch.float32"] + 1
    assert mapped_ranges(path)
    del loaded
    torch.hologram.synchronize()
    assert not mapped_ranges(path)
    assert kept.isfinite().all()


def test_writes_stay_in_the_process(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    before = path.read_bytes()
    loaded = safetensors.torch.load_file(path, device="hologram")
    loaded["torch.float32"].mul_(2).add_(1)
    torch.testing.assert_close(
        loaded["torch.float32"].cpu(), tensors["torch.float32"] * 2 + 1, rtol=1e-6, atol=1e-6
    )
    assert path.read_bytes() == before
    again = safetensors.torch.load_file(path, device="hologram")
    same_bytes(again["torch.float32"], tensors["torch.float32"])


def test_ops_on_it_are_recorded(path: Path) -> None:
    import hologram_torch

    weight = safetensors.torch.load_file(path, device="hologram")["torch.float32"]
    x = torch.randn(5, 7, device="hologram")
    found = hologram_torch.explain(lambda: ((weight * x + 1).tanh() * weight).sum())
    assert found.stats["kernels_run"] == 1


def test_safe_open(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    with safetensors.safe_open(path, framework="pt", device="hologram") as file:
        assert isinstance(file, safetensors.safe_open)
        assert set(file.keys()) == set(tensors)
        assert file.metadata() == {"kind": "test"}
        same_bytes(file.get_tensor("torch.bfloat16"), tensors["torch.bfloat16"])
        part = file.get_slice("torch.float32")
        assert part.get_shape() == [5, 7]
        assert part.get_dtype() == "F32"
        same_bytes(part[1:3, ::2], tensors["torch.float32"][1:3, ::2])
        assert part[1:3, ::2].is_contiguous()
        with pytest.raises(safetensors.SafetensorError, match="does not contain tensor missing"):
            file.get_tensor("missing")
    with pytest.raises(ValueError, match="no device hologram:7; there are"):
        safetensors.safe_open(path, framework="pt", device="hologram:7")


def test_pread(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    loaded = safetensors.torch.load_file(path, device="hologram", backend="pread")
    assert not mapped_ranges(path)
    for name, theirs in tensors.items():
        same_bytes(loaded[name], theirs)


def test_unaligned_file(tmp_path: Path) -> None:
    """The format allows any length of the header; such tensors are copied."""
    values = torch.arange(6, dtype=torch.float32)
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    header = json.dumps({"x": entry}).encode()
    header += b" " * (3 - (8 + len(header)) % 4)
    assert (8 + len(header)) % 4 != 0
    path = tmp_path / "odd.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.numpy().tobytes())
    same_bytes(safetensors.torch.load_file(path, device="hologram")["x"], values.view(2, 3))


def test_other_devices_are_as_before(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    with safetensors.safe_open(path, framework="pt") as file:
        assert isinstance(file, safetensors.safe_open)
        assert file.get_tensor("scalar").device.type == "cpu"
    with safetensors.safe_open(path, framework="np") as file:
        assert file.get_tensor("scalar") == 2.5
    with pytest.raises(safetensors.SafetensorError, match="device nowhere is invalid"):
        safetensors.safe_open(path, framework="pt", device="nowhere")


def test_saving_leaves_the_model_deferred(tmp_path: Path) -> None:
    import hologram_torch

    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 4)).to("hologram")
    x = torch.randn(3, 16, device="hologram")

    def kernels() -> int:
        with torch.no_grad():
            found = hologram_torch.explain(
                lambda: ((model[0].weight * x + model[0].bias).tanh() * model[1].bias.sum()).sum()
            )
        return int(found.stats["kernels_run"])

    before = kernels()
    assert before < 5
    safetensors.torch.save_model(model, tmp_path / "model.safetensors")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "state.safetensors")
    safetensors.torch.load_model(model, tmp_path / "model.safetensors", device="hologram")
    assert kernels() == before


def test_state_dict_of_a_file_trains(tmp_path: Path) -> None:
    """load_state_dict(assign=True) makes parameters of the mapped tensors themselves."""

    def losses(device: str) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        path = tmp_path / f"{device}.safetensors"
        safetensors.torch.save_file(model.state_dict(), path)
        x, y = torch.randn(24, 16).to(device), torch.randint(4, (24,)).to(device)
        model.load_state_dict(safetensors.torch.load_file(path, device=device), assign=True)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    torch.testing.assert_close(losses("hologram"), losses("cpu"), rtol=1e-5, atol=1e-6)
