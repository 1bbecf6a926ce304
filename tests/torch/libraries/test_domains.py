# SPDX-License-Identifier: MIT
"""torchvision, torchmetrics, timm, diffusers, torchao and scikit-learn on device tensors.

Beside the same on cpu. These libraries are large, so only `make test-all` installs them
(tools/requirements-all.txt); scikit-learn comes with every test.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

ALL = "tools/requirements-all.txt has it"
heavy = pytest.mark.heavy


def move(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        moved = value.to(device)
        return moved.requires_grad_() if value.requires_grad else moved
    if isinstance(value, list | tuple):
        return type(value)(move(item, device) for item in value)
    return value


def both(function: Callable[..., Any], *inputs: Any, tolerance: float = 1e-5) -> None:
    """Compare a function's result, and the gradients of what requires one, with cpu."""
    found = {}
    for device in ("hologram", "cpu"):
        arguments = [move(value, device) for value in inputs]
        leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
        leaves = [a.detach().requires_grad_() for a in leaves]
        rest = iter(leaves)
        arguments = [
            next(rest) if isinstance(a, torch.Tensor) and a.requires_grad else a for a in arguments
        ]
        result = function(*arguments)
        results = list(result) if isinstance(result, list | tuple) else [result]
        assert all(r.device.type == device for r in results)
        if leaves:
            signs = torch.cos(torch.arange(results[0].numel(), device=device))
            (results[0].flatten() * signs).sum().backward()
            results += [leaf.grad for leaf in leaves]
        found[device] = [r.detach().cpu() for r in results]
    torch.testing.assert_close(found["hologram"], found["cpu"], rtol=tolerance, atol=tolerance)


# --- torchvision -----------------------------------------------------------------------------


@pytest.fixture
def vision() -> Any:
    torch.manual_seed(0)
    return pytest.importorskip("torchvision", reason=ALL)


def boxes(count: int, size: float = 20.0) -> torch.Tensor:
    corners = torch.rand(count, 2) * size
    return torch.cat([corners, corners + torch.rand(count, 2) * size + 1], dim=1)


@heavy
def test_torchvision_ops(vision: Any) -> None:
    ops = vision.ops
    some, more, scores = boxes(40), boxes(30), torch.rand(40)
    both(lambda b, s: ops.nms(b, s, 0.3), some, scores)
    both(lambda b, s, i: ops.batched_nms(b, s, i, 0.3), some, scores, torch.arange(40) % 3)
    both(ops.box_area, some)
    both(ops.box_iou, some, more)
    both(ops.generalized_box_iou, some, more)
    both(lambda b: ops.box_convert(b, "xyxy", "cxcywh"), some)
    both(lambda b: ops.clip_boxes_to_image(b, (16, 24)), some)
    both(ops.complete_box_iou_loss, some.requires_grad_(), boxes(40))
    some = some.detach()
    maps = torch.randn(2, 6, 24, 24, requires_grad=True)
    regions = torch.cat([torch.arange(30)[:, None] % 2, boxes(30, 12)], dim=1).float()
    both(lambda m, r: ops.roi_align(m, r, 5, sampling_ratio=2), maps, regions)
    both(lambda m, r: ops.roi_pool(m, r, 5), maps, regions)
    positions = torch.cat([torch.arange(30)[:, None] % 2, boxes(30, 12)], dim=1).float()
    both(lambda m, r: ops.ps_roi_align(m, r, 1, sampling_ratio=2), maps, positions)
    offsets = torch.randn(2, 2 * 9, 22, 22, requires_grad=True)
    weight, mask = torch.randn(4, 6, 3, 3, requires_grad=True), torch.rand(2, 9, 22, 22)
    both(
        lambda m, o, w, k: ops.deform_conv2d(m, o, w, mask=k),
        maps,
        offsets,
        weight,
        mask,
        tolerance=1e-4,
    )
    logits, targets = torch.randn(8, 5, requires_grad=True), torch.rand(8, 5).round()
    both(lambda x, y: ops.sigmoid_focal_loss(x, y, reduction="mean"), logits, targets)
    both(ops.masks_to_boxes, torch.rand(3, 12, 12).gt(0.6))


@heavy
def test_torchvision_transforms_v2(vision: Any) -> None:
    import torchvision.transforms.v2 as v2
    from torchvision import tv_tensors

    image = torch.randint(0, 256, (3, 40, 48), dtype=torch.uint8)
    fixed = [
        v2.Resize((24, 30), antialias=True),
        v2.CenterCrop(24),
        v2.RandomHorizontalFlip(p=1.0),
        v2.Pad(3, padding_mode="reflect"),
        v2.Grayscale(3),
        v2.GaussianBlur(5, sigma=1.0),
        v2.RandomAdjustSharpness(2.0, p=1.0),
        v2.RandomAutocontrast(p=1.0),
        v2.RandomEqualize(p=1.0),
        v2.RandomPosterize(3, p=1.0),
        v2.RandomSolarize(100, p=1.0),
        v2.RandomInvert(p=1.0),
    ]
    for transform in fixed:
        # Blurs and resizes round to whole values at the end, so halves may go either way.
        both(transform, image, tolerance=1.0)
    as_floats = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.Resize(24, antialias=True),
            v2.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )
    both(as_floats, image)

    def drawn(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        torch.manual_seed(3)  # sizes and angles are drawn on cpu
        augment = v2.Compose(
            [
                v2.RandomResizedCrop(24, antialias=True),
                v2.RandomAffine(20, translate=(0.1, 0.1)),
                v2.RandomPerspective(p=1.0),
                v2.ColorJitter(0.3, 0.3, 0.3, 0.1),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )
        sample = {
            "image": tv_tensors.Image(image.to(device)),
            "boxes": tv_tensors.BoundingBoxes(
                boxes(4).to(device), format="XYXY", canvas_size=(40, 48)
            ),
            "mask": tv_tensors.Mask((image[:1] > 128).to(device)),
        }
        done = augment(sample)
        assert all(value.device.type == device for value in done.values())
        return done["image"].cpu(), done["boxes"].cpu(), done["mask"].float().cpu()

    torch.manual_seed(1)
    ours = drawn("hologram")
    torch.manual_seed(1)
    theirs = drawn("cpu")
    for index, allowed in enumerate((0.02, 1e-3, 1.0)):
        apart = (torch.as_tensor(ours[index]) - torch.as_tensor(theirs[index])).abs()
        # A pixel on the edge between two may be drawn from either.
        assert float((apart > allowed).float().mean()) <= 0.01


@heavy
def test_torchvision_detection_trains(vision: Any) -> None:
    def losses(device: str) -> dict[str, float]:
        torch.manual_seed(0)
        model = vision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=3, min_size=96, max_size=96,
            box_batch_size_per_image=512, rpn_batch_size_per_image=4096,
        ).to(device)  # fmt: skip
        images = [torch.rand(3, 96, 96).to(device)]
        targets = [{"boxes": boxes(3, 40).to(device), "labels": torch.tensor([1, 2, 1]).to(device)}]
        found = model(images, targets)
        sum(found.values()).backward()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        answer = model.eval()(images)[0]
        assert {t.device.type for t in answer.values()} == {device}
        return {name: value.item() for name, value in found.items()}

    torch.testing.assert_close(losses("hologram"), losses("cpu"), rtol=1e-3, atol=1e-4)


# --- torchmetrics ----------------------------------------------------------------------------


@heavy
def test_torchmetrics() -> None:
    metrics = pytest.importorskip("torchmetrics", reason=ALL)
    torch.manual_seed(0)
    scores, labels = torch.randn(4, 64, 5).softmax(-1), torch.randint(0, 5, (4, 64))
    values, targets = torch.randn(4, 64), torch.randn(4, 64)
    many = {"task": "multiclass", "num_classes": 5}
    cases: list[tuple[Callable[[], Any], torch.Tensor, torch.Tensor]] = [
        *((lambda c=c: c(**many), scores, labels) for c in (
            metrics.Accuracy, metrics.F1Score, metrics.Precision, metrics.Recall, metrics.AUROC,
            metrics.AveragePrecision, metrics.ConfusionMatrix, metrics.CalibrationError,
            metrics.CohenKappa, metrics.MatthewsCorrCoef,
        )),
        (lambda: metrics.AUROC(**many, thresholds=20), scores, labels),
        *((c, values, targets) for c in (
            metrics.MeanSquaredError, metrics.MeanAbsoluteError, metrics.R2Score,
            metrics.PearsonCorrCoef, metrics.SpearmanCorrCoef, metrics.ExplainedVariance,
        )),
    ]  # fmt: skip
    for make, first, second in cases:
        found = []
        for device in ("hologram", "cpu"):
            metric = make().to(device)
            for a, b in zip(first.to(device), second.to(device)):
                metric.update(a, b)
            result = metric.compute()
            assert result.device.type == device
            found.append(result.cpu())
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


# --- timm ------------------------------------------------------------------------------------


@heavy
@pytest.mark.parametrize("name", ["resnet10t", "mobilevit_xxs"])
def test_timm_trains(name: str) -> None:
    pytest.importorskip("timm", reason=ALL)
    import timm
    import timm.loss
    import timm.optim
    import timm.utils

    def curve(device: str) -> list[float]:
        torch.manual_seed(0)
        model = timm.create_model(name, num_classes=10).to(device)
        optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-4, weight_decay=0.05)
        average = timm.utils.ModelEmaV2(model)
        smooth = timm.loss.LabelSmoothingCrossEntropy(0.1)
        x, y = torch.randn(4, 3, 64, 64).to(device), torch.randint(0, 10, (4,)).to(device)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = smooth(model(x), y)
            loss.backward()
            timm.utils.dispatch_clip_grad(model.parameters(), 1.0)
            optimizer.step()
            average.update(model)
            losses.append(loss.item())
        return losses

    torch.testing.assert_close(curve("hologram"), curve("cpu"), rtol=2e-3, atol=1e-3)


# --- diffusers -------------------------------------------------------------------------------


@pytest.fixture
def diffusers() -> Any:
    return pytest.importorskip("diffusers", reason=ALL)


def unet(diffusers: Any) -> nn.Module:
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )


@heavy
def test_diffusers_training_step(diffusers: Any) -> None:
    found = {}
    for device in ("hologram", "cpu"):
        model = unet(diffusers).to(device)
        scheduler = diffusers.DDPMScheduler(num_train_timesteps=100)
        torch.manual_seed(1)
        images, noise = torch.randn(2, 3, 16, 16).to(device), torch.randn(2, 3, 16, 16).to(device)
        steps = torch.tensor([3, 70]).to(device)
        noisy = scheduler.add_noise(images, noise, steps)
        loss = nn.functional.mse_loss(model(noisy, steps).sample, noise)
        loss.backward()
        gradients = [p.grad.norm().item() for p in model.parameters()]
        found[device] = [loss.item(), *gradients]
    torch.testing.assert_close(found["hologram"], found["cpu"], rtol=2e-3, atol=1e-5)


@heavy
@pytest.mark.parametrize("scheduler", ["DDIMScheduler", "EulerDiscreteScheduler"])
def test_diffusers_pipeline(diffusers: Any, scheduler: str) -> None:
    pictures = []
    for device in ("hologram", "cpu"):
        pipeline = (
            diffusers.DDIMPipeline if scheduler == "DDIMScheduler" else diffusers.DDPMPipeline
        )
        made = pipeline(unet(diffusers), getattr(diffusers, scheduler)()).to(device)
        assert made.device.type == device
        made.set_progress_bar_config(disable=True)
        generator = torch.Generator("cpu").manual_seed(2)  # the same noise on both
        pictures.append(made(2, generator, num_inference_steps=4, output_type="np").images)
    np.testing.assert_allclose(pictures[0], pictures[1], atol=2e-3)


@heavy
def test_diffusers_text_to_image(diffusers: Any, tmp_path: Any) -> None:
    """A whole pipeline of tiny parts, saved and loaded again on the device."""
    transformers = pytest.importorskip("transformers", reason=ALL)
    torch.manual_seed(0)
    conditioned = diffusers.UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), cross_attention_dim=32,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
    )  # fmt: skip
    decoder = diffusers.AutoencoderKL(
        block_out_channels=(16, 32), norm_num_groups=8, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    texts = transformers.CLIPTextModel(
        transformers.CLIPTextConfig(
            vocab_size=100, hidden_size=32, intermediate_size=37, num_hidden_layers=2,
            num_attention_heads=4, bos_token_id=0, eos_token_id=2,
        )
    )  # fmt: skip
    made = diffusers.StableDiffusionPipeline(
        vae=decoder, text_encoder=texts, tokenizer=None, unet=conditioned,
        scheduler=diffusers.DDIMScheduler(), safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    )  # fmt: skip
    made.save_pretrained(tmp_path)
    pictures = []
    for device in ("hologram", "cpu"):
        loaded = diffusers.StableDiffusionPipeline.from_pretrained(
            tmp_path, tokenizer=None, safety_checker=None, feature_extractor=None
        ).to(device)
        loaded.set_progress_bar_config(disable=True)
        generator = torch.Generator("cpu").manual_seed(2)
        words = torch.randn(1, 7, 32, generator=torch.Generator().manual_seed(4)).to(device)
        pictures.append(
            loaded(
                prompt_embeds=words, negative_prompt_embeds=torch.zeros_like(words), height=16,
                width=16, num_inference_steps=3, generator=generator, output_type="np",
            ).images
        )  # fmt: skip
    np.testing.assert_allclose(pictures[0], pictures[1], atol=2e-3)


# --- torchao ---------------------------------------------------------------------------------


@heavy
def test_torchao_weights_of_eight_bits() -> None:
    quantization = pytest.importorskip("torchao.quantization", reason=ALL)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    x = torch.randn(5, 64)
    found = []
    for device in ("hologram", "cpu"):
        twin = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
        twin.load_state_dict(model.state_dict())
        twin = twin.to(device)
        quantization.quantize_(twin, quantization.Int8WeightOnlyConfig())
        with torch.no_grad():
            found.append(twin(x.to(device)).cpu())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[0], model(x).detach(), rtol=0.1, atol=0.05)


# --- scikit-learn ----------------------------------------------------------------------------

ARRAY_API = """
import numpy as np, torch
import sklearn
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, mean_squared_error, r2_score
from sklearn.metrics.pairwise import cosine_similarity, euclidean_distances, rbf_kernel
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

x, y = make_classification(n_samples=120, n_features=10, random_state=0)
x, y = x.astype(np.float64), y.astype(np.int64)
X, Y = torch.tensor(x).to("hologram"), torch.tensor(y).to("hologram")
with sklearn.config_context(array_api_dispatch=True):
    for make in (MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler):
        got, want = make().fit_transform(X), make().fit_transform(x)
        assert got.device.type == "hologram", make
        np.testing.assert_allclose(got.cpu().numpy(), want, atol=1e-10)
    got = PCA(3, svd_solver="full").fit(X)
    assert got.components_.device.type == "hologram"
    want = PCA(3, svd_solver="full").fit(x)
    np.testing.assert_allclose(got.explained_variance_.cpu().numpy(), want.explained_variance_)
    projected = abs(got.transform(X).cpu().numpy())
    np.testing.assert_allclose(projected, abs(want.transform(x)), atol=1e-9)
    lda = LinearDiscriminantAnalysis().fit(X, Y)
    guess = lda.predict(X)
    assert guess.device.type == "hologram"
    assert (guess.cpu().numpy() == LinearDiscriminantAnalysis().fit(x, y).predict(x)).all()
    # It computes this in float32 on tensors.
    assert abs(accuracy_score(Y, guess) - accuracy_score(y, guess.cpu().numpy())) < 1e-6
    target, aim = X @ torch.arange(10.0, dtype=torch.float64).to("hologram"), x @ np.arange(10.0)
    ridge = Ridge(solver="svd").fit(X, target)
    np.testing.assert_allclose(
        ridge.predict(X).cpu().numpy(), Ridge(solver="svd").fit(x, aim).predict(x), atol=1e-9
    )
    assert r2_score(target, ridge.predict(X)) > 0.99
    for kernel in (cosine_similarity, euclidean_distances, rbf_kernel):
        np.testing.assert_allclose(kernel(X).cpu().numpy(), kernel(x), atol=1e-6)
print("as numpy")
"""


@heavy
def test_scikit_learn_dispatches_to_the_device() -> None:
    pytest.importorskip("sklearn")
    done = subprocess.run(
        [sys.executable, "-c", ARRAY_API],
        capture_output=True,
        text=True,
        env={**os.environ, "SCIPY_ARRAY_API": "1"},  # read when SciPy is imported
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "as numpy"
