# SPDX-License-Identifier: MIT
"""A small network for images, trained and tested as introductions to PyTorch do it, on CUDA."""

from __future__ import annotations

import argparse
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 1), nn.Conv2d(8, 16, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.1), nn.Dropout(0.1)
        self.fc1, self.fc2 = nn.Linear(16 * 12 * 12, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


def images(count: int) -> TensorDataset:
    """Noise with a bright quarter, which is the class."""
    generator = torch.Generator().manual_seed(count)
    x = torch.rand(count, 1, 28, 28, generator=generator)
    y = torch.randint(4, (count,), generator=generator)
    for i, quarter in enumerate(y.tolist()):
        row, column = 14 * (quarter // 2), 14 * (quarter % 2)
        x[i, :, row : row + 14, column : column + 14] += 1
    return TensorDataset(x, y)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    torch.manual_seed(1)
    device = torch.device("cuda" if use_cuda else "cpu")
    settings = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    train = DataLoader(images(256), batch_size=32, shuffle=True, **settings)
    test = DataLoader(images(128), batch_size=64, **settings)
    model = Net().to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        model.train()
        for data, target in train:
            data, target = data.to(device), target.to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
        model.eval()
        correct = 0
        with torch.no_grad():
            for data, target in test:
                output = model(data.cuda()) if use_cuda else model(data)
                assert output.is_cuda == use_cuda and output.device.type == device.type
                correct += output.argmax(1).eq(target.to(device)).sum().item()
        print(f"epoch {epoch}: {correct} of 128")
        scheduler.step()
    path = os.path.join(tempfile.mkdtemp(), "digits.pt")
    torch.save(model.state_dict(), path)
    again = Net()
    again.load_state_dict(torch.load(path, map_location="cpu"))
    assert not next(again.parameters()).is_cuda
    loaded = torch.load(path, map_location=device)
    assert all(t.device == torch.device("cuda", 0) for t in loaded.values())
    print(f"on {next(model.parameters()).device}: {'learned' if correct > 110 else 'failed'}")


if __name__ == "__main__":
    main()
