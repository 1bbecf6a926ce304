# SPDX-License-Identifier: MIT
"""Trains a small network on scikit-learn's digits, on torch.device('hologram') beside cpu.

Both devices start from the same weights and see the same batches; they take turns epoch by epoch,
so that a busy moment of the machine meets both. Written are a checkpoint, which is then loaded on
cpu and must give the same answers, and a plot.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from tqdm import tqdm

REQUIRED_ACCURACY = 0.96
DEFAULT_EPOCHS = {"mlp": 30, "cnn": 15}


class UserError(Exception):
    """Something that the user can mend; shown without a traceback."""


def fail(message: str) -> NoReturn:
    """Stop with a message for the user."""
    raise UserError(message)


@dataclass
class Data:
    """The images, split once and for all, on the host."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass
class Run:
    """One device's training: its model, its optimizer, and what was measured."""

    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    logits: Tensor | None = None

    @property
    def step_microseconds(self) -> tuple[float, float, float]:
        """The time of a step as its median and its 10th and 90th percentile."""
        times = np.array(self.step_seconds) * 1e6
        low, high = np.percentile(times, [10, 90])
        return statistics.median(times), float(low), float(high)


def load_data() -> Data:
    """Return the 1,797 images of 8 x 8 pixels, a quarter of them held out."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    train_x, test_x, train_y, test_y = train_test_split(
        images,
        digits.target.astype(np.int64),
        test_size=0.25,
        random_state=0,
        stratify=digits.target,
    )
    return Data(
        *(torch.from_numpy(np.ascontiguousarray(a)) for a in (train_x, train_y, test_x, test_y))
    )


def make_model(kind: str) -> nn.Module:
    """Return a new network on the host."""
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def check_device(name: str) -> torch.device:
    """Return the device called `name` after running something small on it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        hint = ""
        if name.split(":")[0] == "hologram":
            installed = importlib.util.find_spec("hologram_torch") is not None
            off = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
            if not installed:
                hint = "; the package hologram-torch is not installed for this Python (make setup)"
            elif off:
                hint = "; TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps `import torch` from loading it"
            else:
                hint = "; HOLOGRAM_AUTOLOAD=1 has `import torch` load it beside other accelerators"
        fail(f"--device {name}: this PyTorch knows no such device{hint}")
    try:
        if torch.ones(2, device=device).sum().item() != 2.0:
            fail(f"--device {name}: 1 + 1 is not 2 on it; it cannot be trusted with a training run")
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        fail(f"--device {name}: the device cannot be used here: {first_line}")
    return device


def start_run(kind: str, device: torch.device, seed: int, learning_rate: float) -> Run:
    """Return a run on `device` whose weights depend on the seed only, not on the device."""
    torch.manual_seed(seed)
    model = make_model(kind).to(device)
    return Run(device, model, torch.optim.Adam(model.parameters(), lr=learning_rate))


def train_epoch(run: Run, data: Data, batches: list[Tensor], progress: tqdm) -> None:
    """Take a step per batch, timed from the batch on the device to the loss on the host."""
    run.model.train()
    loss_function = nn.CrossEntropyLoss()
    for batch in batches:
        x = data.train_x[batch].to(run.device)
        y = data.train_y[batch].to(run.device)
        start = time.perf_counter()
        run.optimizer.zero_grad()
        loss = loss_function(run.model(x), y)
        loss.backward()
        run.optimizer.step()
        value = loss.item()
        run.step_seconds.append(time.perf_counter() - start)
        run.losses.append(value)
        progress.update()
    if not np.isfinite(run.losses[-1]):
        fail(f"the loss on {run.device} became {run.losses[-1]}; try a smaller --learning-rate")


@torch.no_grad()
def predict(model: nn.Module, x: Tensor, device: torch.device) -> Tensor:
    """Return the model's answers, on the host."""
    model.eval()
    return model(x.to(device)).cpu()


def evaluate(run: Run, data: Data) -> None:
    """Measure the accuracy on the held-out images."""
    run.logits = predict(run.model, data.test_x, run.device)
    run.accuracy = (run.logits.argmax(dim=1) == data.test_y).double().mean().item()


def train(runs: list[Run], data: Data, epochs: int, batch_size: int, seed: int) -> None:
    """Train every run on the same batches, taking turns epoch by epoch."""
    count = len(data.train_x)
    shuffle = torch.Generator().manual_seed(seed)
    steps = epochs * -(-count // batch_size) * len(runs)
    with tqdm(total=steps, unit="step", mininterval=0.25, dynamic_ncols=True) as progress:
        for epoch in range(epochs):
            batches = list(torch.randperm(count, generator=shuffle).split(batch_size))
            order = runs if epoch % 2 == 0 else runs[::-1]
            for run in order:
                progress.set_description(
                    f"epoch {epoch + 1}/{epochs} on {run.device}", refresh=False
                )
                train_epoch(run, data, batches, progress)
                mean = statistics.fmean(run.losses[-len(batches) :])
                progress.set_postfix(loss=f"{mean:.4f}", refresh=False)
    for run in runs:
        evaluate(run, data)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, whatever happens: a full disk, an interrupt, a crash."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror or error}; nothing was changed there")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_checkpoint(path: Path, kind: str, run: Run) -> None:
    """Save the model and the optimizer as they are on the run's device."""
    content = io.BytesIO()
    state = {
        "model": kind,
        "state": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
    }
    torch.save(state, content)
    write_atomically(path, content.getvalue())


def load_checkpoint(path: Path, device: torch.device) -> tuple[str, nn.Module]:
    """Return the kind of model in a checkpoint and the model, on `device`."""
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
        kind = saved["model"]
        model = make_model(kind)
        model.load_state_dict(saved["state"])
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")
    except Exception as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        fail(f"{path} is not a whole checkpoint of this program: {first_line}")
    return kind, model.to(device)


def check_checkpoint(path: Path, run: Run, data: Data) -> float:
    """Load the checkpoint on cpu; return by how much its answers differ from the run's."""
    assert run.logits is not None
    cpu = torch.device("cpu")
    logits = predict(load_checkpoint(path, cpu)[1], data.test_x, cpu)
    difference = (logits - run.logits).abs().max().item()
    if not torch.allclose(logits, run.logits, rtol=1e-4, atol=1e-4):
        fail(
            f"the checkpoint's answers on cpu differ from those on {run.device} by {difference:.3g}"
        )
    return difference


def save_plot(path: Path, kind: str, runs: list[Run]) -> None:
    """Draw the loss curves and the distribution of the time per step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (curves, times) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for index, run in enumerate(runs):
        style = (
            {"linewidth": 2.5, "alpha": 0.6}
            if index == 0
            else {"linewidth": 1.0, "linestyle": "--"}
        )
        curves.semilogy(run.losses, label=str(run.device), **style)
    curves.set(xlabel="step", ylabel="cross-entropy", title=f"{kind}: training loss")
    curves.legend()
    slowest = max(np.percentile(run.step_seconds, 98) for run in runs) * 1e6
    for run in runs:
        median = run.step_microseconds[0]
        label = f"{run.device}: median {median:.0f} us"
        times.hist(
            np.array(run.step_seconds) * 1e6, bins=60, range=(0, slowest), alpha=0.6, label=label
        )
    times.set(xlabel="time per step, us", ylabel="steps", title=f"{kind}: time per step")
    times.legend()
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    plt.close(figure)
    write_atomically(path, content.getvalue())


def print_results(runs: list[Run]) -> None:
    """Print a line a device, and how the first compares with the second."""
    print(
        f"{'device':<12} {'step, median':>13} {'10% to 90%':>17} {'final loss':>11} {'accuracy':>9}"
    )
    for run in runs:
        median, low, high = run.step_microseconds
        print(
            f"{run.device!s:<12} {median:>10.0f} us {low:>6.0f} to {high:>5.0f} us"
            f" {statistics.fmean(run.losses[-20:]):>11.4f} {run.accuracy:>9.4f}"
        )
    if any(high > 5 * median for median, _, high in (run.step_microseconds for run in runs)):
        print(
            "Other programs kept this machine busy, so these times tell little; run it again alone."
        )
    if len(runs) == 2:
        first, second = runs
        share = first.step_microseconds[0] / second.step_microseconds[0]
        print(
            f"A step on {first.device} takes {share:.2f} times as long as on {second.device}"
            f" ({1 / share:.2f}x the speed)."
        )


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options."""

    def positive(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{text} is not at least 1")
        return value

    def rate(text: str) -> float:
        value = float(text)
        if not 0.0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a positive number")
        return value

    def seed(text: str) -> int:
        value = int(text)
        if not 0 <= value < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2**63 - 1")
        return value

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="hologram", help="where to train (default: hologram)")
    parser.add_argument(
        "--model", choices=sorted(DEFAULT_EPOCHS), default="mlp", help="default: mlp"
    )
    parser.add_argument("--epochs", type=positive, help="default: 30 for mlp, 15 for cnn")
    parser.add_argument("--batch-size", type=positive, default=32, help="default: 32")
    parser.add_argument("--learning-rate", type=rate, default=2e-3, help="Adam's (default: 0.002)")
    parser.add_argument(
        "--seed", type=seed, default=0, help="of the weights and of the order of the images"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("outputs/digits"), help="folder for the results"
    )
    parser.add_argument(
        "--compare",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="train on cpu too (default, unless the device is cpu)",
    )
    parser.add_argument(
        "--min-accuracy",
        type=float,
        help=f"fail below this (default: {REQUIRED_ACCURACY}, or 0 with fewer epochs than usual)",
    )
    parser.add_argument(
        "--evaluate",
        type=Path,
        metavar="CHECKPOINT",
        help="only measure a checkpoint",
    )
    options = parser.parse_args(arguments)
    if options.epochs is None:
        options.epochs = DEFAULT_EPOCHS[options.model]
    if options.min_accuracy is None:
        options.min_accuracy = (
            REQUIRED_ACCURACY if options.epochs >= DEFAULT_EPOCHS[options.model] else 0.0
        )
    if not 0.0 <= options.min_accuracy <= 1.0:
        parser.error(f"argument --min-accuracy: {options.min_accuracy} is not between 0 and 1")
    return options


def run_evaluation(options: argparse.Namespace, device: torch.device) -> int:
    """Measure a checkpoint; return the exit status."""
    data = load_data()
    kind, model = load_checkpoint(options.evaluate, device)
    answers = predict(model, data.test_x, device).argmax(dim=1)
    accuracy = (answers == data.test_y).double().mean().item()
    print(f"{options.evaluate} ({kind}) on {device}: held-out accuracy {accuracy:.4f}")
    return 0


def run_training(options: argparse.Namespace, device: torch.device) -> int:
    """Train, save and report; return the exit status."""
    data = load_data()
    devices = [device]
    if options.compare and device.type != "cpu":
        devices.append(torch.device("cpu"))
    runs = [start_run(options.model, d, options.seed, options.learning_rate) for d in devices]
    print(
        f"{options.model} on {' and '.join(str(d) for d in devices)}:"
        f" {len(data.train_x)} images to learn from, {len(data.test_x)} held out,"
        f" {torch.get_num_threads()} threads"
    )
    train(runs, data, options.epochs, options.batch_size, options.seed)
    print_results(runs)

    checkpoint = options.out / f"{options.model}.pt"
    save_checkpoint(checkpoint, options.model, runs[0])
    difference = check_checkpoint(checkpoint, runs[0], data)
    print(
        f"saved {checkpoint}; loaded on cpu it gives the same answers"
        f" (largest difference {difference:.2g})"
    )
    plot = options.out / f"{options.model}.png"
    save_plot(plot, options.model, runs)
    print(f"saved {plot}")

    worst = min(runs, key=lambda run: run.accuracy)
    if worst.accuracy <= options.min_accuracy and options.min_accuracy > 0:
        fail(
            f"the accuracy on {worst.device} is {worst.accuracy:.4f},"
            f" not above {options.min_accuracy}"
        )
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the program; return its exit status."""
    options = parse_arguments(arguments)
    try:
        device = check_device(options.device)
        return (
            run_evaluation(options, device) if options.evaluate else run_training(options, device)
        )
    except UserError as error:
        print(f"train_digits: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("train_digits: interrupted; no file was left half-written", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
