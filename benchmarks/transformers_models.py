"""Every type of model in transformers, tiny and with random weights, to ONNX with a dynamic batch and dynamic lengths.

What is converted is run at another batch and length than the example's. It needs `pip install transformers`.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
from dataclasses import dataclass

import torch
import transformers
from session import Session
from torch.utils import _pytree as pytree
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

os.environ["HF_HUB_OFFLINE"] = "1"
transformers.logging.set_verbosity_error()

_WIDTHS = (
    "hidden_size", "d_model", "n_embd", "emb_dim", "dim", "embed_dim", "embedding_size", "attention_hidden_size",
    "projection_dim", "text_embed_dim", "vision_embed_dim", "input_dim",
)  # fmt: skip
_INNER = ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads", "n_heads")
_SMALL = {
    **dict.fromkeys(_WIDTHS, 32), **dict.fromkeys(_INNER, 48), **dict.fromkeys(_LAYERS, 2), **dict.fromkeys(_HEADS, 4),
    **dict.fromkeys(("head_dim", "d_kv", "v_head_dim", "kv_lora_rank", "q_lora_rank", "mamba_d_head", "mamba_n_heads"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim", "mamba_d_state", "state_size"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "image_size"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    "vocab_size": 99, "num_key_value_heads": 2, "patch_size": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "num_queries": 8,
}  # fmt: skip
_MOST_PARAMETERS = 30e6
_SECONDS = 20


@dataclass
class Case:
    """A model with example inputs, the names of their dynamic sizes, other inputs, and what PyTorch computes for these."""

    module: torch.nn.Module
    example: dict
    dynamic: dict
    inputs: dict
    expected: list


def prepare(folder, match):
    """The names of the types of which a tiny model can be made that runs on plain tokens, images or sound."""
    return [name for name in MODEL_MAPPING_NAMES if match in name and _made(name) is not None]


def case(name, folder):
    return _made(name)


def _made(name):
    """None where the type has no such model, or where building and running it takes too long."""
    handler = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(_SECONDS)
    try:
        config = CONFIG_MAPPING[name]()
        _shrink(config)
        with torch.device("meta"):
            if sum(p.numel() for p in transformers.AutoModel.from_config(config).parameters()) > _MOST_PARAMETERS:
                return None
        torch.manual_seed(0)
        module = transformers.AutoModel.from_config(config).eval()
        with torch.no_grad():
            for images in (False, True):
                with contextlib.suppress(Exception):
                    (example, dynamic), (other, _) = _inputs(module, 2, 7, images), _inputs(module, 3, 5, images)
                    module(**example)
                    return Case(module, example, dynamic, other, _tensors(module(**other)))
    except (Exception, _Timeout):  # configurations that do not fit together raise whatever the model's code does
        return None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    return None


class _Timeout(BaseException):
    """Not an Exception, which libraries catch."""


def _stop(*_):
    raise _Timeout


def _shrink(config):
    for key, value in list(vars(config).items()):
        if key == "use_cache":
            config.use_cache = False
        elif key in _SMALL and isinstance(value, int) and not isinstance(value, bool) and key not in config.attribute_map:
            setattr(config, key, _SMALL[key])
        elif key in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            setattr(config, key, value[:2])
        elif key == "rope_parameters" and isinstance(value, dict) and "mrope_section" in value:
            value["mrope_section"] = [1, 1, 2]
        elif isinstance(value, transformers.PretrainedConfig):
            _shrink(value)


def _inputs(module, batch, length, images):
    """Inputs by name, and the names of their dynamic sizes. `images`: beside tokens."""
    names = inspect.signature(module.forward).parameters
    config = getattr(module.config, "vision_config", module.config)
    size = getattr(config, "image_size", 64)
    size = size if isinstance(size, int) else size[0]
    made, dynamic = {}, {}
    if "input_ids" in names:
        made["input_ids"] = torch.randint(3, 98, (batch, length))
        made |= {"attention_mask": torch.ones(batch, length, dtype=torch.int64)} if "attention_mask" in names else {}
        dynamic |= {name: {0: "batch", 1: "length"} for name in made}
    if "decoder_input_ids" in names:
        made["decoder_input_ids"] = torch.randint(3, 98, (batch, length - 1))
        dynamic["decoder_input_ids"] = {0: "batch", 1: "target"}
    if "pixel_values" in names and (images or "input_ids" not in made):
        made["pixel_values"] = torch.randn(batch, getattr(config, "num_channels", None) or 3, size, size)
        dynamic["pixel_values"] = {0: "batch"}
    if "input_values" in names and not made:
        made["input_values"] = torch.randn(batch, 4000 + 100 * length)
        dynamic["input_values"] = {0: "batch", 1: "length"}
    return made, dynamic


def _tensors(result):
    return [leaf.numpy() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _session(model):
    session = Session(model)

    def run(inputs):
        declared = {i.name for i in session.session.get_inputs()}
        return session.session.run(None, {n: t.numpy() for n, t in inputs.items() if n in declared})

    run.facts = session.facts
    return run


def onnxbridge(one):
    import onnxbridge

    return _session(onnxbridge.convert(one.module, to="onnx", inputs=one.example, dynamic=one.dynamic, verify=False).model)


def torch_onnx(one):
    sizes = {name: dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for name, axes in one.dynamic.items()}
    with torch.no_grad():
        program = torch.onnx.export(one.module, (), kwargs=one.example, dynamic_shapes=sizes, dynamo=True, verbose=False)
    return _session(program.model_proto)


ENGINES = {"onnxbridge": onnxbridge, "torch.onnx": torch_onnx}
