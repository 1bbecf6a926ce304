# SPDX-License-Identifier: MIT
"""torch.export of models on the device: saved, loaded, run and compiled."""

from __future__ import annotations

import io

import torch
import torch.export.passes
from compile.models import DEVICE, Gpt, words
from torch import nn


def saved_and_loaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def test_a_program_keeps_its_device_and_bits() -> None:
    torch.manual_seed(0)
    model = Gpt(fused=True).to(DEVICE).eval()
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(
        model, (words(2, 12)(0).to(DEVICE),), dynamic_shapes=({1: length},)
    )
    loaded = saved_and_loaded(program)
    assert all(t.device.type == DEVICE for t in loaded.state_dict.values())
    module = loaded.module()
    compiled = torch.compile(module, backend="hologram", dynamic=False)
    for size in (12, 7, 12):
        index = words(2, size)(1).to(DEVICE)
        expected = model(index)
        assert expected.device.type == DEVICE
        assert torch.equal(module(index), expected)
        for _ in range(3):
            assert torch.equal(compiled(index), expected)


def test_a_program_of_the_cpu_moves_to_the_device() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))
    x = torch.randn(4, 8)
    program = saved_and_loaded(torch.export.export(model, (x,)))
    moved = torch.export.passes.move_to_device_pass(program, DEVICE)
    got = moved.module()(x.to(DEVICE))
    assert got.device.type == DEVICE
    torch.testing.assert_close(got.cpu(), model(x))
