# SPDX-License-Identifier: MIT
"""The models of bench.architectures as cases of transformers' own tests of models.

tools/transformers_tests.py runs this file beside the tests of transformers' source distribution,
once for each family (``FAMILY``) and device (``TRANSFORMERS_TEST_DEVICE``).
"""

from __future__ import annotations

import copy
import inspect
import os
import unittest
from typing import Any

import torch
import transformers
from torch import Tensor

from bench.architectures import MODELS, quiet
from tests import test_modeling_common as common

# How long a sequence is for the model, where it is not one of 24 tokens.
_LENGTHS = {"ViT": 17, "Beit": 17, "VideoMAE": 32}


class Tester:
    """What transformers' tests ask of a family: a configuration, inputs, and their sizes."""

    is_training = True
    batch_size = 2
    seq_length = encoder_seq_length = 24
    decoder_seq_length = 12
    num_hidden_layers = 2
    num_attention_heads = 4
    hidden_size = 64
    image_size = 32
    patch_size = 8

    def __init__(self, name: str, config: Any, inputs: Any) -> None:
        self._config, self._inputs = config, inputs
        self.seq_length = _LENGTHS.get(name, self.seq_length)

    def get_config(self) -> Any:
        """Return a configuration of the test's own."""
        return copy.deepcopy(self._config)

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, dict[str, Tensor]]:
        """Return a configuration and inputs, always the same."""
        torch.manual_seed(0)
        inputs = self._inputs()
        if "decoder_input_ids" in inputs:
            inputs["decoder_attention_mask"] = torch.ones_like(inputs["decoder_input_ids"])
        return self.get_config(), {name: t.to(common.torch_device) for name, t in inputs.items()}


def _case(name: str, head: str, inputs: Any, options: dict[str, Any]) -> type:
    config = getattr(transformers, f"{name}Config")(**options)
    quiet(config)
    kinds = {f"{name}Model", name + head}
    models = tuple(getattr(transformers, k) for k in sorted(kinds) if hasattr(transformers, k))

    class Models(common.ModelTesterMixin, unittest.TestCase):
        all_model_classes = models
        additional_model_inputs = ("pixel_values",)  # beside the text of a model of both
        is_encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
        # It checks that a case also tests `generate`, whose tests the distribution leaves out.
        test_generation_tester_mixin_inheritance = None

        def setUp(self) -> None:
            self.model_tester = Tester(name, config, inputs)

    return Models


for _make in MODELS["transformers"].values():
    _free = inspect.getclosurevars(_make).nonlocals
    if _free["name"] == os.environ["FAMILY"]:
        Models = _case(_free["name"], _free["head"], _free["inputs"], _free["options"])
