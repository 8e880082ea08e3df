"""Decoders with transformers' caches as inputs and outputs, named as decoder runtimes expect."""

from __future__ import annotations

import pytest
import torch

from onnxbridge.errors import UsageError
from onnxbridge.frontends.pytorch import frontend
from tests.frontends.pytorch.compare import check_against_pytorch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
         "vocab_size": 50, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
LAYERS = [f"{i}.{k}" for i in range(2) for k in ("key", "value")]


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).eval()


def step(module, cache, batch=2, past=5):
    """The inputs of the decoding step after `past` tokens."""
    with torch.no_grad():
        module(input_ids=torch.randint(0, 50, (batch, past)), past_key_values=cache, use_cache=True)
    ids = torch.randint(0, 50, (batch, 1))
    return {"input_ids": ids, "attention_mask": torch.ones(batch, past + 1, dtype=torch.int64), "past_key_values": cache}


def test_dynamic_cache(llama):
    dynamic = {"input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "past + 1"}}
    dynamic |= {f"past_key_values.{name}": {0: "batch", 2: "past"} for name in LAYERS}

    def example(batch, past):
        return step(llama, transformers.DynamicCache(), batch, past)

    model = check_against_pytorch(llama, example(2, 5), dynamic, [example(3, 9), example(1, 1)])
    assert [v.name for v in model.graph.inputs] == ["input_ids", "attention_mask", *(f"past_key_values.{n}" for n in LAYERS)]
    assert [v.name for v in model.graph.outputs] == ["logits", *(f"present.{n}" for n in LAYERS)]
    assert list(model.graph.inputs[1].shape) == ["batch", "past + 1"]
    assert list(model.graph.inputs[2].shape) == ["batch", 2, "past", 4]


def test_static_cache(llama):
    cache = transformers.StaticCache(config=llama.config, max_cache_len=8)
    given = step(llama, cache)
    given.pop("attention_mask")
    model = check_against_pytorch(llama, given)
    names = [f"{i}.{k}" for i in range(2) for k in ("key", "value", "cumulative_length")]
    assert [v.name for v in model.graph.inputs] == ["input_ids", *(f"past_key_values.{n}" for n in names)]
    assert [v.name for v in model.graph.outputs] == ["logits", *(f"present.{n}" for n in names)]


def test_position_as_python_number_is_rejected():
    config = transformers.MistralConfig(**SMALL, sliding_window=4)
    module = transformers.MistralForCausalLM(config).eval()
    with pytest.raises(UsageError, match="seen 6 positions and stores 3 of them"):
        frontend.to_hub(module, step(module, transformers.DynamicCache(config=config), past=6))


def test_mixture_of_experts():
    torch.manual_seed(0)
    config = transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    module = transformers.MixtralForCausalLM(config).eval()
    ids = [torch.randint(0, 50, shape) for shape in ((2, 6), (1, 3), (3, 9))]
    dynamic = {"input_ids": {0: "batch", 1: "length"}}
    check_against_pytorch(module, {"input_ids": ids[0], "use_cache": False}, dynamic, [{"input_ids": i} for i in ids[1:]])
