# SPDX-License-Identifier: MIT
"""The quick-starts of Accelerate, transformers' Trainer and Lightning, beside the same on cpu.

These libraries are large, so only `make test-all` installs them (tools/requirements-all.txt).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.heavy
ALL = "tools/requirements-all.txt has it"


def data(rows: int = 96) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 16, generator=generator)
    return TensorDataset(x, (x[:, :4].sum(1) > 0).long())


def network(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(dropout), nn.Linear(32, 2)
    )


# --- Accelerate ------------------------------------------------------------------------------


@pytest.fixture
def accelerate() -> Any:
    module = pytest.importorskip("accelerate", reason=ALL)
    yield module
    module.state.AcceleratorState._reset_state(reset_partial_state=True)
    module.state.GradientState._reset_state()


def prepared(accelerate: Any, dropout: float = 0.0, **options: Any) -> tuple[Any, ...]:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(**options)
    model = network(dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(data(), batch_size=16)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
    return accelerator, *accelerator.prepare(model, optimizer, loader, schedule)


def epoch(accelerator: Any, model: Any, optimizer: Any, loader: Any, schedule: Any) -> list[float]:
    """The loop of Accelerate's quick tour."""
    losses = []
    model.train()
    for x, y in loader:
        with accelerator.accumulate(model):
            with accelerator.autocast():
                loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).item())
    return losses


@pytest.mark.parametrize(
    "precision, tolerance", [("no", 1e-5), ("bf16", 3e-2)], ids=["float32", "bf16"]
)
def test_accelerate_quick_start(accelerate: Any, precision: str, tolerance: float) -> None:
    options = {"mixed_precision": precision, "gradient_accumulation_steps": 2}
    parts = prepared(accelerate, **options)
    assert parts[0].device == torch.device("hologram", 0)
    assert next(parts[1].parameters()).device.type == "hologram"
    ours = epoch(*parts) + epoch(*parts)
    theirs_parts = prepared(accelerate, cpu=True, **options)
    assert theirs_parts[0].device.type == "cpu"
    theirs = epoch(*theirs_parts) + epoch(*theirs_parts)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert ours[-1] < 0.8 * ours[0]


def test_accelerate_resumes_with_its_random_state(accelerate: Any, tmp_path: Path) -> None:
    parts = prepared(accelerate, dropout=0.3)
    epoch(*parts)
    parts[0].save_state(tmp_path / "state")
    want = epoch(*parts)
    again = prepared(accelerate, dropout=0.3)
    torch.manual_seed(5)
    again[0].load_state(tmp_path / "state")
    assert epoch(*again) == want


def test_accelerate_takes_its_own_variable(accelerate: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")
    assert prepared(accelerate)[0].device.type == "cpu"


def test_accelerate_refuses_fp16_as_docs_say(accelerate: Any) -> None:
    with pytest.raises(ValueError, match="fp16 mixed precision requires a device in"):
        prepared(accelerate, mixed_precision="fp16")


RANKS = """
import sys, torch
from accelerate import Accelerator
sys.path.insert(0, sys.argv[1])
from test_trainers import data, network
from torch.utils.data import DataLoader
accelerator = Accelerator()
assert accelerator.num_processes == 2, accelerator.num_processes
assert accelerator.device.type == "hologram", accelerator.device
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data(), batch_size=8))
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
both = accelerator.gather(weights[None])
assert both.shape[0] == 2 and both[0].equal(both[1])
if accelerator.is_main_process:
    torch.save(weights.cpu(), sys.argv[2])
"""


def test_accelerate_with_torchrun(accelerate: Any, tmp_path: Path) -> None:
    """Two processes with batches of 8 are one process with batches of 16 of both's rows."""
    (tmp_path / "ranks.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    files = [str(tmp_path / "ranks.py"), str(Path(__file__).parent), str(tmp_path / "weights")]
    done = subprocess.run(command + files, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data(), batch_size=16):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    want = torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.testing.assert_close(torch.load(tmp_path / "weights"), want, rtol=1e-5, atol=1e-6)


# --- transformers ----------------------------------------------------------------------------


@pytest.fixture
def transformers() -> Any:
    pytest.importorskip("accelerate", reason=ALL)
    return pytest.importorskip("transformers", reason=ALL)


def tiny_bert(transformers: Any, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return transformers.BertForSequenceClassification(config)


class Texts(torch.utils.data.Dataset):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(2)
        self.tokens = torch.randint(5, 64, (48, 12), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.tokens[index]
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": (tokens[0] > 32).long(),
        }


def make_trainer(transformers: Any, folder: Path, dropout: float = 0.0, **options: Any) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=5e-3,
        logging_steps=1,
        save_steps=6,
        report_to=[],
        disable_tqdm=True,
        **options,
    )

    def metrics(found: Any) -> dict[str, float]:
        return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}

    return transformers.Trainer(
        model=tiny_bert(transformers, dropout),
        args=arguments,
        train_dataset=Texts(),
        eval_dataset=Texts(),
        compute_metrics=metrics,
    )


def curve(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("bf16, tolerance", [(False, 1e-4), (True, 5e-2)], ids=["float32", "bf16"])
def test_trainer(transformers: Any, tmp_path: Path, bf16: bool, tolerance: float) -> None:
    ours = make_trainer(transformers, tmp_path / "ours", bf16=bf16)
    assert ours.args.device == torch.device("hologram", 0)
    ours.train()
    assert ours.model.device.type == "hologram"
    theirs = make_trainer(transformers, tmp_path / "theirs", bf16=bf16, use_cpu=True)
    assert theirs.args.device.type == "cpu"
    theirs.train()
    torch.testing.assert_close(curve(ours), curve(theirs), rtol=tolerance, atol=tolerance)
    found, want = ours.evaluate(), theirs.evaluate()
    torch.testing.assert_close(
        found["eval_loss"], want["eval_loss"], rtol=tolerance, atol=tolerance
    )
    ours_predictions = torch.tensor(ours.predict(Texts()).predictions)
    theirs_predictions = torch.tensor(theirs.predict(Texts()).predictions)
    torch.testing.assert_close(
        ours_predictions, theirs_predictions, rtol=10 * tolerance, atol=10 * tolerance
    )


def test_trainer_resumes_with_its_random_state(transformers: Any, tmp_path: Path) -> None:
    whole = make_trainer(transformers, tmp_path, dropout=0.2)
    whole.train()
    again = make_trainer(transformers, tmp_path, dropout=0.2)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert curve(again)[-6:] == curve(whole)[-6:]


def test_trainer_leaves_its_model_deferred(transformers: Any, tmp_path: Path) -> None:
    import hologram_torch

    trainer = make_trainer(transformers, tmp_path, max_steps=7)
    trainer.train()
    weight = trainer.model.classifier.weight
    with torch.no_grad():
        found = hologram_torch.explain(lambda: ((weight * 2 + 1).tanh() * weight).sum())
    assert found.stats["kernels_run"] == 1


def test_from_pretrained_and_pipeline(transformers: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path)
    placed = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map="hologram")
    assert placed.device.type == "hologram"
    prompt = torch.randint(0, 64, (2, 8))
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    want = model.generate(prompt, **options)
    assert placed.generate(prompt.to("hologram"), **options).cpu().equal(want)

    bert = tiny_bert(transformers).eval()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(59))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    sentences = ["w1 w5 w9", "w50 w3"]
    scores = {}
    for device in (None, "hologram", "cpu", -1):
        pipe = transformers.pipeline(
            "text-classification", model=bert, tokenizer=tokenizer, device=device
        )
        assert pipe.device.type == ("hologram" if device in (None, "hologram") else "cpu")
        scores[device] = [found["score"] for found in pipe(sentences)]
        bert.to("cpu")
    torch.testing.assert_close(scores[None], scores["cpu"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(scores["hologram"], scores["cpu"], rtol=1e-5, atol=1e-6)


# --- Lightning -------------------------------------------------------------------------------


@pytest.fixture
def lightning() -> Any:
    return pytest.importorskip("lightning", reason=ALL)


def module(lightning: Any) -> Any:
    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()
            self.losses: list[float] = []
            self.places: set[str] = set()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = nn.functional.cross_entropy(self.network(x), y)
            self.places.add(str(x.device))
            self.losses.append(loss.item())
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            x, y = batch
            self.log("accuracy", (self.network(x).argmax(-1) == y).float().mean())

        def predict_step(self, batch: Any, index: int) -> torch.Tensor:
            return self.network(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Classifier()


def fit(lightning: Any, folder: Path, accelerator: str, **options: Any) -> tuple[Any, Any]:
    trainer = lightning.Trainer(
        accelerator=accelerator,
        max_epochs=2,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    model = module(lightning)
    trainer.fit(model, DataLoader(data(), batch_size=16), DataLoader(data(), batch_size=32))
    return trainer, model


@pytest.mark.parametrize(
    "precision, tolerance",
    [("32-true", 1e-5), ("bf16-mixed", 5e-2), ("16-mixed", 5e-2)],
    ids=["float32", "bf16", "fp16"],
)
@pytest.mark.filterwarnings("error:.*CUDA is not available")
def test_lightning(lightning: Any, tmp_path: Path, precision: str, tolerance: float) -> None:
    ours, ours_model = fit(lightning, tmp_path / "ours", "hologram", precision=precision)
    assert ours_model.places == {"hologram:0"}
    theirs_precision = "32-true" if precision == "16-mixed" else precision
    theirs, theirs_model = fit(lightning, tmp_path / "cpu", "cpu", precision=theirs_precision)
    torch.testing.assert_close(
        ours_model.losses, theirs_model.losses, rtol=tolerance, atol=tolerance
    )
    accuracy = {t: t.callback_metrics["accuracy"].item() for t in (ours, theirs)}
    assert abs(accuracy[ours] - accuracy[theirs]) <= (0 if tolerance < 1e-3 else 0.05)
    if precision == "32-true":
        loader = DataLoader(data(), batch_size=32)
        found = torch.cat(ours.predict(ours_model, loader)).cpu()
        want = torch.cat(theirs.predict(theirs_model, loader))
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


def test_lightning_resumes(lightning: Any, tmp_path: Path) -> None:
    trainer, _ = fit(lightning, tmp_path, "hologram")
    path = trainer.checkpoint_callback.best_model_path
    more = lightning.Trainer(
        accelerator="hologram", max_epochs=3, logger=False, enable_progress_bar=False,
        default_root_dir=tmp_path / "more",
    )  # fmt: skip
    model = module(lightning)
    more.fit(model, DataLoader(data(), batch_size=16), ckpt_path=path)
    assert len(model.losses) == 6  # the third epoch
    assert model.losses[0] < 0.6


def test_lightning_auto_takes_the_accelerator_of_torch(lightning: Any) -> None:
    assert type(lightning.Trainer(logger=False).accelerator).name() == "hologram"
    assert type(lightning.Trainer(accelerator="cpu", logger=False).accelerator).name() == "cpu"
    assert lightning.Trainer(accelerator="hologram", devices=[0], logger=False).num_devices == 1
    alone = pytest.importorskip("pytorch_lightning", reason=ALL)  # the same under its old name
    trainer = alone.Trainer(accelerator="hologram", precision="bf16-mixed", logger=False)
    assert trainer.strategy.root_device == torch.device("hologram", 0)
    assert trainer.precision_plugin.device == "hologram"


def test_fabric(lightning: Any) -> None:
    losses = {}
    for name in ("hologram", "cpu"):
        fabric = lightning.Fabric(accelerator=name, devices=1, precision="bf16-mixed")
        model = network()
        model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
        losses[name] = []
        for x, y in fabric.setup_dataloaders(DataLoader(data(), batch_size=16)):
            assert x.device.type == name
            loss = nn.functional.cross_entropy(model(x), y)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses[name].append(loss.item())
    torch.testing.assert_close(losses["hologram"], losses["cpu"], rtol=3e-2, atol=3e-2)


DDP = """
import sys, torch, lightning
sys.path.insert(0, sys.argv[1])
from test_trainers import data, module
from torch.utils.data import DataLoader
trainer = lightning.Trainer(accelerator="hologram", devices=2, strategy="ddp", max_epochs=1,
    logger=False, enable_progress_bar=False, enable_checkpointing=False)
model = module(lightning)
trainer.fit(model, DataLoader(data(), batch_size=8))
assert trainer.world_size == 2 and model.places == {"hologram:0"}, model.places
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
both = trainer.strategy.all_gather(weights)
assert both.shape[0] == 2 and both[0].equal(both[1])
"""


def test_lightning_in_two_processes(lightning: Any, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(DDP)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "ranks.py"), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
