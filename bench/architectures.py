# SPDX-License-Identifier: MIT
"""Architectures of torchvision, timm and transformers, as their libraries build them.

Random weights, small inputs, no dropout, so that two devices compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench.core import library

CLASSES = 10
_VOCABULARY = 128
# Rounding adds up over the layers; what is compared is of the order of one.
TOLERANCE = (2e-3, 2e-3)


@dataclass
class Architecture:
    """A model, its inputs by name, and what is asked of it: `loss` of its answer is a number."""

    module: nn.Module
    inputs: dict[str, Tensor]

    def ask(self) -> list[Tensor]:
        """Return the floating tensors of the model's answer."""
        return floating(self.module(**self.inputs))

    def loss(self) -> Tensor:
        """Return a number to which every element of the answer contributes, by a whole weight."""
        some = next(self.module.parameters())
        total = torch.zeros((), device=some.device, dtype=some.dtype)
        for index, answer in enumerate(self.ask()):
            if answer.requires_grad:
                places = torch.arange(answer.numel(), device=answer.device).view(answer.shape)
                total = total + (answer * ((5 * places + index) % 11 - 5)).mean()
        return total


def floating(answer: Any) -> list[Tensor]:
    """Flatten what a model returned into its floating tensors."""
    if isinstance(answer, Tensor):
        return [answer] if answer.is_floating_point() else []
    if isinstance(answer, dict):
        return [t for value in answer.values() for t in floating(value)]
    if isinstance(answer, list | tuple):
        return [t for value in answer for t in floating(value)]
    return []


def still(module: nn.Module) -> nn.Module:
    """Take away what is drawn at random: dropout of elements, paths and blocks."""
    for part in module.modules():
        kind = type(part).__name__.lower()
        names = (
            ("p", "drop_prob", "drop_rate") if "drop" in kind or "depth" in kind else ("drop_rate",)
        )
        for name in names:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
    return module


def numbers(text: str) -> dict[str, Any]:
    """Return the numbers, or lists of them, that a text like 'n_layer=2 depths=1,1' names."""

    def value(text: str) -> int | list[int]:
        found = [int(part) for part in text.split(",")]
        return found if "," in text else found[0]

    return {name: value(given) for name, _, given in (p.partition("=") for p in text.split())}


# --- torchvision and timm --------------------------------------------------------------------


def torchvision(
    path: str, size: int = 64, shape: tuple[int, ...] = (2, 3), name: str = "x", **options: Any
) -> Callable[[], Any]:
    """A model of torchvision.models, and images of a size."""

    def make() -> Architecture:
        module: Any = library("torchvision.models")
        for part in path.split("."):
            module = getattr(module, part)
        built = module(num_classes=CLASSES, **options)
        return Architecture(still(built), {name: torch.randn(*shape, size, size)})

    return make


def timm(name: str, size: int = 64, **options: Any) -> Callable[[], Any]:
    """A model of timm, and two images of a size."""

    def make() -> Architecture:
        built = library("timm").create_model(name, num_classes=CLASSES, **options)
        return Architecture(still(built), {"x": torch.randn(2, 3, size, size)})

    return make


# --- transformers ----------------------------------------------------------------------------

_LAYERS = numbers("hidden_size=64 intermediate_size=128 num_hidden_layers=2 num_attention_heads=4")
_SIZES = {"vocab_size": _VOCABULARY, **_LAYERS, "max_position_embeddings": 64}
_GPT = {"vocab_size": _VOCABULARY, **numbers("n_embd=64 n_layer=2 n_head=4 n_positions=64")}
_SEQ2SEQ = numbers(
    f"vocab_size={_VOCABULARY} d_model=64 encoder_layers=2 decoder_layers=2 "
    "encoder_attention_heads=4 decoder_attention_heads=4 encoder_ffn_dim=128 decoder_ffn_dim=128 "
    "max_position_embeddings=64"
)
_VISION = {**_LAYERS, "image_size": 32, "patch_size": 8}
_SPEECH = {
    **_LAYERS,
    "conv_dim": (32,) * 3,
    "conv_kernel": (10, 3, 3),
    "conv_stride": (5, 2, 2),
    **numbers("num_feat_extract_layers=3 num_conv_pos_embeddings=16"),
    **numbers("num_conv_pos_embedding_groups=4"),
    **dict.fromkeys(("mask_time_prob", "mask_feature_prob", "layerdrop"), 0.0),
}
_JOINED = {"projection_dim": 32}
_CLIP = {"text_config": {**_SIZES, **_JOINED}, "vision_config": {**_VISION, **_JOINED}, **_JOINED}


def tokens(vocabulary: int, *shape: int) -> Tensor:
    """Return tokens that are no special ones."""
    return torch.randint(3, vocabulary, shape)


def _text() -> dict[str, Tensor]:
    mask = torch.ones(2, 24, dtype=torch.long)
    mask[1, 17:] = 0
    return {"input_ids": tokens(_VOCABULARY, 2, 24), "attention_mask": mask}


def _answered() -> dict[str, Tensor]:
    return {"decoder_input_ids": tokens(_VOCABULARY, 2, 24)[:, :12]}


def _drawn(name: str, *shape: int) -> Callable[[], dict[str, Tensor]]:
    return lambda: {name: torch.randn(shape)}


_pixels, _sounds = _drawn("pixel_values", 2, 3, 32, 32), _drawn("input_features", 2, 80, 64)
_INPUTS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "text": _text,
    "unmasked": lambda: {"input_ids": tokens(_VOCABULARY, 2, 24)},
    "both": lambda: {**_text(), **_answered()},
    "pixels": _pixels,
    "all": lambda: {**_text(), **_pixels()},
    "frames": _drawn("pixel_values", 2, 4, 3, 32, 32),
    "sound": _drawn("input_values", 2, 1600),
    "features": lambda: {**_sounds(), **_answered()},
    "series": _drawn("past_values", 2, 32, 3),
}


def hugging(name: str, head: str = "Model", **options: Any) -> Any:
    """Return a model of transformers by the name of its configuration, without dropout."""
    source = library("transformers")
    config = getattr(source, f"{name}Config")(**options)
    quiet(config)
    return getattr(source, name + head)(config)


def gpt2(vocabulary: int, **options: Any) -> Any:
    """Return a GPT-2 of 4 layers, 128 wide."""
    sizes = numbers(f"vocab_size={vocabulary} n_layer=4 n_embd=128 n_head=4 n_positions=128")
    return hugging("GPT2", "LMHeadModel", **sizes, **options)


def llama(vocabulary: int, layers: int, **options: Any) -> Any:
    """Return a Llama, 128 wide."""
    sizes = f"vocab_size={vocabulary} num_hidden_layers={layers} hidden_size=128"
    sizes += " intermediate_size=344 max_position_embeddings=128"
    heads = "num_attention_heads=4 num_key_value_heads=2"
    return hugging("Llama", "ForCausalLM", **numbers(f"{sizes} {heads}"), **options)


def encoder(kind: str, width: int, head: str = "Model", layers: int = 2, **options: Any) -> Any:
    """Return an encoder of transformers, four times as wide within its layers."""
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width}
    return hugging(kind, head, **{"num_attention_heads": 4, **sizes, **options})


def transformers(
    name: str, inputs: Callable[[], dict[str, Tensor]], head: str, **options: Any
) -> Callable[[], Any]:
    """A model of transformers, and its inputs."""

    def make() -> Architecture:
        return Architecture(still(hugging(name, head, **options)), inputs())

    return make


def quiet(config: Any) -> None:
    """Set what a configuration says of dropout to 0, and leave out caches of keys and values."""
    for key, value in list(vars(config).items()):
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
        if hasattr(value, "model_type"):
            quiet(value)
    if hasattr(config, "use_cache"):
        config.use_cache = False


_PLAIN = {"aux_logits": False, "init_weights": False}
_VIT = "image_size=64 patch_size=16 num_layers=2 num_heads=4 hidden_dim=64 mlp_dim=128"
_SEGMENTS = {"weights_backbone": None}
_VISION_MODELS = {
    "AlexNet": torchvision("alexnet"),
    "ConvNeXt-tiny": torchvision("convnext_tiny"),
    "DeepLabV3 MobileNetV3": torchvision("segmentation.deeplabv3_mobilenet_v3_large", **_SEGMENTS),
    "DenseNet-121": torchvision("densenet121"),
    "EfficientNet-B0": torchvision("efficientnet_b0"),
    "EfficientNetV2-S": torchvision("efficientnet_v2_s"),
    "GoogLeNet": torchvision("googlenet", **_PLAIN),
    "Inception v3": torchvision("inception_v3", 96, **_PLAIN),
    "LRASPP MobileNetV3": torchvision(
        "segmentation.lraspp_mobilenet_v3_large", name="input", **_SEGMENTS
    ),
    "MNASNet-0.5": torchvision("mnasnet0_5"),
    "MobileNetV2": torchvision("mobilenet_v2"),
    "MobileNetV3-small": torchvision("mobilenet_v3_small"),
    "R(2+1)D-18": torchvision("video.r2plus1d_18", 32, (1, 3, 4)),
    "R3D-18": torchvision("video.r3d_18", 32, (1, 3, 4)),
    "RegNetY-400MF": torchvision("regnet_y_400mf"),
    "ResNet-18": torchvision("resnet18"),
    "ResNeXt-50": torchvision("resnext50_32x4d"),
    "ShuffleNetV2-0.5": torchvision("shufflenet_v2_x0_5", 128),
    "SqueezeNet-1.1": torchvision("squeezenet1_1"),
    "Swin-T": torchvision("swin_t"),
    "SwinV2-T": torchvision("swin_v2_t"),
    "ViT": torchvision("VisionTransformer", **numbers(_VIT)),
}

# In brackets those that are told the size of images.
_TIMM = (
    "[cait_xxs24_224] [convit_tiny] cspresnet50 [deit_tiny_patch16_224] dla34 eca_nfnet_l0 "
    "edgenext_xx_small efficientnet_lite0 focalnet_tiny_srf ghostnet_100 [gmlp_ti16_224] "
    "hrnet_w18_small mambaout_femto [mixer_s32_224] mobileone_s0 mobilevit_xxs poolformer_s12 "
    "pvt_v2_b0 repvgg_a0 res2net50_26w_4s [resmlp_12_224] resnetv2_50 skresnet18 starnet_s1 "
    "[xcit_nano_12_p16_224]"
)


def _timm_models() -> Iterator[tuple[str, Callable[[], Any]]]:
    for text in _TIMM.split():
        name = text.strip("[]")
        told = {"img_size": 64} if name != text else {}
        yield name, timm(name, 128 if name == "mobileone_s0" else 64, **told)


_SETS: dict[str, dict[str, Any]] = {
    "sizes": _SIZES,
    "gpt": _GPT,
    "seq2seq": _SEQ2SEQ,
    "vision": _VISION,
    "speech": _SPEECH,
    "grouped": {"num_key_value_heads": 2, "pad_token_id": 0},
    "clip": _CLIP,
    "relative": {"relative_attention": True},
    "local": {"attention_types": [[["global", "local"], 1]]},
}
# What it is called; its configuration; what follows that in the name of the model, Model where
# nothing does; its inputs; sets of options and numbers.
_TRANSFORMERS = """
ALBERT | Albert | text | sizes embedding_size=32
BART | Bart | both | seq2seq
BEiT | Beit | pixels | vision
BERT | Bert | text | sizes
BLOOM | Bloom ForCausalLM | text | vocab_size=128 hidden_size=64 n_layer=2 n_head=4
CLIP | CLIP | all | clip
ConvNeXt | ConvNext | pixels | hidden_sizes=16,32,64,64 depths=1,1,1,1
DeBERTa-v2 | DebertaV2 | text | sizes relative
DistilBERT | DistilBert | text | vocab_size=128 dim=64 hidden_dim=128 n_layers=2 n_heads=4
ELECTRA | Electra | text | sizes embedding_size=32
Falcon | Falcon ForCausalLM | text | sizes
FNet | FNet | unmasked | sizes
Gemma 2 | Gemma2 ForCausalLM | text | sizes grouped head_dim=16
GPT-2 | GPT2 LMHeadModel | text | gpt
GPT-J | GPTJ ForCausalLM | text | gpt rotary_dim=8
GPT-Neo | GPTNeo ForCausalLM | text | local vocab_size=128 hidden_size=64 num_layers=2 num_heads=4 \
max_position_embeddings=64
GPT-NeoX | GPTNeoX ForCausalLM | text | sizes
HuBERT | Hubert | sound | speech
Llama | Llama ForCausalLM | text | sizes grouped
Mamba | Mamba ForCausalLM | unmasked | vocab_size=128 hidden_size=32 num_hidden_layers=2 \
state_size=8
Marian | Marian | both | seq2seq pad_token_id=0
Mistral | Mistral ForCausalLM | text | sizes grouped sliding_window=8
MPNet | MPNet | text | sizes
OLMo | Olmo ForCausalLM | text | sizes grouped
OPT | OPT ForCausalLM | text | vocab_size=128 hidden_size=64 ffn_dim=128 num_hidden_layers=2 \
num_attention_heads=4 max_position_embeddings=64 word_embed_proj_dim=64
PatchTST | PatchTST | series | num_input_channels=3 context_length=32 patch_length=8 \
patch_stride=8 d_model=32 num_attention_heads=4 ffn_dim=64 num_hidden_layers=2
Pegasus | Pegasus | both | seq2seq
Phi | Phi ForCausalLM | text | sizes pad_token_id=0
Qwen 3 | Qwen3 ForCausalLM | text | sizes grouped head_dim=16
RoBERTa | Roberta | text | sizes max_position_embeddings=96
SegFormer | Segformer | pixels | hidden_sizes=16,32,32,64 depths=1,1,1,1 num_attention_heads=1,2,2,4
StableLM | StableLm ForCausalLM | text | sizes grouped
Swin | Swin | pixels | image_size=32 patch_size=2 embed_dim=16 depths=1,1 num_heads=2,4 \
window_size=4
T5 | T5 | both | vocab_size=128 d_model=64 d_kv=16 d_ff=128 num_layers=2 num_decoder_layers=2 \
num_heads=4
VideoMAE | VideoMAE | frames | vision num_frames=4
ViT | ViT | pixels | vision
Wav2Vec2 | Wav2Vec2 | sound | speech
Whisper | Whisper | features | seq2seq max_source_positions=32 max_target_positions=32 \
pad_token_id=0
XLNet | XLNet | text | vocab_size=128 d_model=64 n_layer=2 n_head=4 d_inner=128
"""


def _transformers_models() -> Iterator[tuple[str, Callable[[], Any]]]:
    for line in _TRANSFORMERS.strip().splitlines():
        title, model, inputs, text = (part.strip() for part in line.split("|"))
        name, _, head = model.partition(" ")
        parts = [_SETS.get(part) or numbers(part) for part in text.split()]
        options = {key: value for part in parts for key, value in part.items()}
        yield title, transformers(name, _INPUTS[inputs], head or "Model", **options)


MODELS: dict[str, dict[str, Callable[[], Any]]] = {
    "torchvision": _VISION_MODELS,
    "timm": dict(_timm_models()),
    "transformers": dict(_transformers_models()),
}
