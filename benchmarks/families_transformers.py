"""Architectures of transformers in tiny configurations, with random weights and example inputs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch
from family import Dynamic, Family
from torch import nn

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}


def _build(kind: str, config: str, **options: Any) -> nn.Module:
    library = importlib.import_module("transformers")
    torch.manual_seed(0)
    return getattr(library, kind)(getattr(library, config)(**options)).eval()


def _ids(batch: int = 2, length: int = 8) -> torch.Tensor:
    return torch.randint(0, 99, (batch, length))


def encoders() -> Iterator[Family]:
    both = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
    distil = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99}
    rows: list[tuple[str, str, str, dict[str, Any]]] = [
        ("BERT", "BertModel", "BertConfig", _SMALL),
        ("DistilBERT", "DistilBertModel", "DistilBertConfig", distil),
        ("RoBERTa", "RobertaModel", "RobertaConfig", _SMALL),
        ("DeBERTa", "DebertaV2Model", "DebertaV2Config", {**_SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
        ("ELECTRA", "ElectraForSequenceClassification", "ElectraConfig", {**_SMALL, "embedding_size": 16}),
        ("ALBERT", "AlbertModel", "AlbertConfig", {**_SMALL, "embedding_size": 16}),
        ("ModernBERT", "ModernBertModel", "ModernBertConfig", {**_SMALL, "pad_token_id": 0}),
    ]
    for name, kind, config, options in rows:
        yield Family(
            name,
            lambda k=kind, c=config, o=options: (
                _build(k, c, **o),
                {"input_ids": _ids(), "attention_mask": torch.tensor([[1] * 8, [1] * 6 + [0] * 2])},
            ),
            both,
            "transformers",
        )


def decoders() -> Iterator[Family]:
    grouped = {**_SMALL, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    gemma = {**grouped, "head_dim": 8}
    rows: list[tuple[str, str, str, dict[str, Any]]] = [
        ("GPT-2", "GPT2LMHeadModel", "GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64,
                                                    "bos_token_id": 1, "eos_token_id": 2}),
        ("Llama", "LlamaForCausalLM", "LlamaConfig", grouped),
        ("Mistral", "MistralForCausalLM", "MistralConfig", {**grouped, "sliding_window": 6}),
        ("Mixtral", "MixtralForCausalLM", "MixtralConfig", {**grouped, **experts}),
        ("Qwen2", "Qwen2ForCausalLM", "Qwen2Config", grouped),
        ("Qwen3", "Qwen3ForCausalLM", "Qwen3Config", {**grouped, "head_dim": 8}),
        ("Gemma", "GemmaForCausalLM", "GemmaConfig", gemma),
        ("Gemma2", "Gemma2ForCausalLM", "Gemma2Config", {**gemma, "sliding_window": 6}),
        ("Gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", {**gemma, "sliding_window": 6}),
        ("Phi", "PhiForCausalLM", "PhiConfig", {**grouped, "partial_rotary_factor": 0.5}),
        ("GPT-NeoX", "GPTNeoXForCausalLM", "GPTNeoXConfig", _SMALL),
        ("OPT", "OPTForCausalLM", "OPTConfig", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                "ffn_dim": 64, "vocab_size": 99, "word_embed_proj_dim": 32}),
    ]  # fmt: skip
    ids = {"input_ids": {0: "batch", 1: "length"}}
    for name, kind, config, options in rows:
        yield Family(
            name,
            lambda k=kind, c=config, o=options: (_build(k, c, **o), {"input_ids": _ids(), "use_cache": False}),
            ids,
            "transformers",
        )
        if name in ("GPT-2", "Llama", "Mistral", "Qwen3", "Gemma2"):
            yield Family(
                f"{name} with a cache", lambda k=kind, c=config, o=options: _cached(_build(k, c, **o)), _CACHED, "transformers"
            )
    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 99, "use_cache": False}
    yield Family(
        "Mamba", lambda: (_build("MambaForCausalLM", "MambaConfig", **mamba), {"input_ids": _ids()}),
        {"input_ids": {0: "batch"}}, "transformers",
    )  # fmt: skip


_CACHED: Dynamic = {
    "input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "past + 1"},
    **{f"past_key_values.{i}.{k}": {0: "batch", 2: "past"} for i in range(2) for k in ("key", "value")},
}  # fmt: skip


def _cached(module: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """One step of a decoder with a past of five tokens."""
    cache = importlib.import_module("transformers").DynamicCache(config=module.config)
    with torch.no_grad():
        module(input_ids=_ids(2, 5), past_key_values=cache, use_cache=True)
    inputs = {"input_ids": _ids(2, 1), "attention_mask": torch.ones(2, 6, dtype=torch.int64), "past_key_values": cache}
    return module, inputs


def encoder_decoder_and_vision() -> Iterator[Family]:
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
    both = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_model": 32, "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 2, "decoder_start_token_id": 2}  # fmt: skip
    pair = {"input_ids": {0: "batch", 1: "source"}, "decoder_input_ids": {0: "batch", 1: "target"}}

    def translation(kind: str, config: str, options: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
        return _build(kind, config, **options), {"input_ids": _ids(2, 8), "decoder_input_ids": _ids(2, 6), "use_cache": False}

    yield Family("T5", lambda: translation("T5ForConditionalGeneration", "T5Config", t5), pair, "transformers")
    yield Family(
        "BART", lambda: translation("BartForConditionalGeneration", "BartConfig", {**both, "max_position_embeddings": 64}),
        pair, "transformers",
    )  # fmt: skip
    whisper = {**both, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 16}
    yield Family(
        "Whisper",
        lambda: (
            _build("WhisperForConditionalGeneration", "WhisperConfig", **whisper),
            {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": _ids(2, 6), "use_cache": False},
        ),
        {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "target"}}, "transformers",
    )  # fmt: skip
    audio = {**_SMALL, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
             "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
    yield Family(
        "Wav2Vec2", lambda: (_build("Wav2Vec2ForCTC", "Wav2Vec2Config", **audio), {"input_values": torch.randn(2, 400)}),
        {"input_values": {0: "batch", 1: "samples"}}, "transformers",
    )  # fmt: skip
    image = {"image_size": 32, "patch_size": 8, "num_channels": 3}
    vit = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    pixels = {"pixel_values": {0: "batch"}}
    images: list[tuple[str, str, str, dict[str, Any], int]] = [
        ("ViT", "ViTForImageClassification", "ViTConfig", {**vit, **image}, 32),
        ("DINOv2", "Dinov2Model", "Dinov2Config", {**vit, **image}, 32),
        ("Swin", "SwinModel", "SwinConfig", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 2, 1],
                                             "num_heads": [2, 2, 4], "window_size": 4}, 32),
        ("SegFormer", "SegformerForSemanticSegmentation", "SegformerConfig", {"hidden_sizes": [8, 16, 16, 32],
         "num_attention_heads": [1, 2, 2, 4], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16, "sr_ratios": [4, 2, 1, 1]}, 64),
        ("ConvNeXt", "ConvNextModel", "ConvNextConfig", {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}, 64),
        ("DETR", "DetrForObjectDetection", "DetrConfig", {"use_timm_backbone": False, "use_pretrained_backbone": False,
         "backbone": None, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5}, 64),
    ]  # fmt: skip
    for name, kind, config, options, size in images:
        yield Family(
            name,
            lambda k=kind, c=config, o=options, s=size: (_build(k, c, **o), {"pixel_values": torch.randn(2, 3, s, s)}),
            pixels, "transformers",
        )  # fmt: skip
    yield Family("CLIP", _clip_pair, {"input_ids": {0: "texts"}, "pixel_values": {0: "images"}}, "transformers")
    yield Family("SAM", _sam, None, "transformers")


def _clip_pair() -> tuple[nn.Module, dict[str, Any]]:
    text = {**_SMALL, "max_position_embeddings": 16, "eos_token_id": 98, "pad_token_id": 0, "bos_token_id": 1,
            "projection_dim": 16}  # fmt: skip
    vision = {**{k: v for k, v in _SMALL.items() if k != "vocab_size"}, "image_size": 32, "patch_size": 8, "projection_dim": 16}
    module = _build("CLIPModel", "CLIPConfig", text_config=text, vision_config=vision, projection_dim=16)
    return module, {"input_ids": _ids(2, 8), "pixel_values": torch.randn(3, 3, 32, 32)}


def _sam() -> tuple[nn.Module, dict[str, Any]]:
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 64, "image_size": 64,
              "patch_size": 8, "output_channels": 16, "global_attn_indexes": [1], "window_size": 4,
              "num_pos_feats": 8}  # fmt: skip
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "image_embedding_size": 8, "mask_input_channels": 4}
    decoder = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 32, "iou_head_hidden_dim": 16}
    module = _build("SamModel", "SamConfig", vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    return module, {"pixel_values": torch.randn(1, 3, 64, 64), "input_points": torch.tensor([[[[20.0, 30.0]]]])}
