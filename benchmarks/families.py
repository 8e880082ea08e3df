"""What `architectures.py` converts: one network of each family at a small size, with random weights and example inputs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from networks import examples
from torch import nn

Dynamic = dict[str, dict[int, str]]


@dataclass(frozen=True)
class Family:
    """`build` gives a module in evaluation mode and its inputs by name; `dynamic` names the sizes that may vary."""

    name: str
    build: Callable[[], tuple[nn.Module, dict[str, Any]]]
    dynamic: Dynamic | None = None
    needs: str = ""


def families() -> Iterator[Family]:
    for name, (module, inputs) in examples().items():
        yield Family(name, lambda m=module, i=inputs: (m, dict(zip(_parameters(m), i, strict=False))))
    yield from _vision()
    yield from _detectors()
    yield from _encoders()
    yield from _decoders()
    yield from _several()
    yield from _recurrent()


def _parameters(module: nn.Module) -> list[str]:
    import inspect

    return list(inspect.signature(module.forward).parameters)


# torchvision

_IMAGES = {
    "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "efficientnet_v2_s": 64, "googlenet": 64,
    "inception_v3": 128, "maxvit_t": 224, "mnasnet0_5": 64, "mobilenet_v2": 64, "mobilenet_v3_small": 64, "regnet_y_400mf": 64,
    "resnet18": 64, "resnext50_32x4d": 64, "shufflenet_v2_x0_5": 64, "squeezenet1_1": 64, "swin_t": 224, "swin_v2_t": 256,
    "vgg11_bn": 64, "vit_b_32": 224, "wide_resnet50_2": 64,
}  # fmt: skip
_SEGMENTATION = ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")


def _vision() -> Iterator[Family]:
    batch = {"x": {0: "batch"}}
    for name, size in _IMAGES.items():
        yield Family(name, lambda n=name, s=size: _torchvision(f"models.{n}", s), batch, "torchvision")
    for name in _SEGMENTATION:
        image = {"input": {0: "batch"}} if name.startswith("lraspp") else batch
        yield Family(
            name, lambda n=name: _torchvision(f"models.segmentation.{n}", 64, weights_backbone=None), image, "torchvision"
        )
    yield Family("r3d_18", lambda: _clip("models.video.r3d_18"), batch, "torchvision")
    yield Family("raft_small", _raft, None, "torchvision")


def _torchvision(path: str, size: int, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    found: Any = importlib.import_module("torchvision")
    for part in path.split("."):
        found = getattr(found, part)
    if path.endswith(("googlenet", "inception_v3")):
        options |= {"init_weights": False, "aux_logits": False}
    module = settled(found(weights=None, **options))
    head = list(module.modules())[-1]
    if isinstance(head, nn.Linear):
        nn.init.normal_(head.weight, std=0.1)  # a vision transformer's is zero before it is trained
    return module, {_parameters(module)[0]: torch.randn(2, 3, size, size)}


def _clip(path: str) -> tuple[nn.Module, dict[str, Any]]:
    module, _ = _torchvision(path, 8)
    return module, {"x": torch.randn(2, 3, 4, 32, 32)}


def _raft() -> tuple[nn.Module, dict[str, Any]]:
    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = importlib.import_module("torchvision").models.optical_flow.raft_small(weights=None)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return self.net(first, second, num_flow_updates=2)[-1]

    return settled(Flow()), {"first": torch.randn(1, 3, 128, 128), "second": torch.randn(1, 3, 128, 128)}


def calibrated(module: nn.Module, *inputs: Any) -> nn.Module:
    """In evaluation mode, batch normalisations with the statistics of these inputs: deep layers do not vanish."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.momentum = 1.0
            m.train()
    with torch.no_grad():
        module(*inputs)
    return module.eval()


def settled(module: nn.Module) -> nn.Module:
    """In evaluation mode, batch normalisations with statistics away from 0 and 1."""
    for m in module.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            m.running_mean.uniform_(-0.5, 0.5)
            m.running_var.uniform_(0.5, 2)
    return module.eval()


class Detector(nn.Module):
    """A detector of one image, its results as a dictionary."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return self.net([image])[0]


_DETECTORS = (
    "ssd300_vgg16", "ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn", "fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "maskrcnn_resnet50_fpn",
    "keypointrcnn_resnet50_fpn",
)  # fmt: skip


def _detectors() -> Iterator[Family]:
    for name in _DETECTORS:
        yield Family(name, lambda n=name: _detector(n), None, "torchvision")


def _detector(name: str) -> tuple[nn.Module, dict[str, Any]]:
    make = getattr(importlib.import_module("torchvision").models.detection, name)
    torch.manual_seed(0)
    options = {} if "320" in name or "300" in name else {"min_size": 128, "max_size": 160}
    # few results: the best scores of random weights lie apart from each other, so that rounding does not change their order
    options["box_detections_per_img" if "rcnn" in name else "detections_per_img"] = 8
    net = Detector(make(weights=None, weights_backbone=None, num_classes=5, **options))
    for path, weight in net.named_parameters():
        if "cls_logits" in path:  # as they are made they find nothing
            nn.init.zeros_(weight) if path.endswith("bias") else nn.init.normal_(weight, std=0.03)
    calibrated(net.net.eval(), [torch.rand(3, 120, 160), torch.rand(3, 120, 160)])
    return net.eval(), {"image": torch.rand(3, 120, 160)}


# transformers

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}


def _made(kind: str, config: str, **options: Any) -> nn.Module:
    library = importlib.import_module("transformers")
    torch.manual_seed(0)
    return getattr(library, kind)(getattr(library, config)(**options)).eval()


def _ids(batch: int = 2, length: int = 8) -> torch.Tensor:
    return torch.randint(0, 99, (batch, length))


def _encoders() -> Iterator[Family]:
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
                _made(k, c, **o),
                {"input_ids": _ids(), "attention_mask": torch.tensor([[1] * 8, [1] * 6 + [0] * 2])},
            ),
            both,
            "transformers",
        )


def _decoders() -> Iterator[Family]:
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
        ("Gemma2", "Gemma2ForCausalLM", "Gemma2Config", {**gemma, "sliding_window": 6}),
        ("Phi", "PhiForCausalLM", "PhiConfig", {**grouped, "partial_rotary_factor": 0.5}),
        ("GPT-NeoX", "GPTNeoXForCausalLM", "GPTNeoXConfig", _SMALL),
        ("OPT", "OPTForCausalLM", "OPTConfig", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                "ffn_dim": 64, "vocab_size": 99, "word_embed_proj_dim": 32}),
    ]  # fmt: skip
    ids = {"input_ids": {0: "batch", 1: "length"}}
    for name, kind, config, options in rows:
        yield Family(
            name,
            lambda k=kind, c=config, o=options: (_made(k, c, **o), {"input_ids": _ids(), "use_cache": False}),
            ids,
            "transformers",
        )
        if name in ("GPT-2", "Llama", "Mistral", "Qwen3", "Gemma2"):
            yield Family(
                f"{name} with a cache", lambda k=kind, c=config, o=options: _cached(_made(k, c, **o)), _CACHED, "transformers"
            )
    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "vocab_size": 99, "use_cache": False}
    yield Family(
        "Mamba", lambda: (_made("MambaForCausalLM", "MambaConfig", **mamba), {"input_ids": _ids()}),
        {"input_ids": {0: "batch"}}, "transformers",
    )  # fmt: skip


_CACHED: Dynamic = {
    "input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "past + 1"},
    **{f"past_key_values.{i}.{k}": {0: "batch", 2: "past"} for i in range(2) for k in ("key", "value")},
}  # fmt: skip


def _cached(module: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """One step of a decoder behind five tokens that it has seen."""
    cache = importlib.import_module("transformers").DynamicCache(config=module.config)
    with torch.no_grad():
        module(input_ids=_ids(2, 5), past_key_values=cache, use_cache=True)
    inputs = {"input_ids": _ids(2, 1), "attention_mask": torch.ones(2, 6, dtype=torch.int64), "past_key_values": cache}
    return module, inputs


def _several() -> Iterator[Family]:
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
    both = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_model": 32, "vocab_size": 99, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 2, "decoder_start_token_id": 2}  # fmt: skip
    pair = {"input_ids": {0: "batch", 1: "source"}, "decoder_input_ids": {0: "batch", 1: "target"}}

    def translation(kind: str, config: str, options: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
        return _made(kind, config, **options), {"input_ids": _ids(2, 8), "decoder_input_ids": _ids(2, 6), "use_cache": False}

    yield Family("T5", lambda: translation("T5ForConditionalGeneration", "T5Config", t5), pair, "transformers")
    yield Family(
        "BART", lambda: translation("BartForConditionalGeneration", "BartConfig", {**both, "max_position_embeddings": 64}),
        pair, "transformers",
    )  # fmt: skip
    whisper = {**both, "num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 16}
    yield Family(
        "Whisper",
        lambda: (
            _made("WhisperForConditionalGeneration", "WhisperConfig", **whisper),
            {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": _ids(2, 6), "use_cache": False},
        ),
        {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "target"}}, "transformers",
    )  # fmt: skip
    audio = {**_SMALL, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
             "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}  # fmt: skip
    yield Family(
        "Wav2Vec2", lambda: (_made("Wav2Vec2ForCTC", "Wav2Vec2Config", **audio), {"input_values": torch.randn(2, 400)}),
        {"input_values": {0: "batch", 1: "samples"}}, "transformers",
    )  # fmt: skip
    picture = {"image_size": 32, "patch_size": 8, "num_channels": 3}
    vit = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    pixels = {"pixel_values": {0: "batch"}}
    images: list[tuple[str, str, str, dict[str, Any], int]] = [
        ("ViT", "ViTForImageClassification", "ViTConfig", {**vit, **picture}, 32),
        ("DINOv2", "Dinov2Model", "Dinov2Config", {**vit, **picture}, 32),
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
            lambda k=kind, c=config, o=options, s=size: (_made(k, c, **o), {"pixel_values": torch.randn(2, 3, s, s)}),
            pixels, "transformers",
        )  # fmt: skip
    yield Family("CLIP", _clip_pair, {"input_ids": {0: "texts"}, "pixel_values": {0: "images"}}, "transformers")
    yield Family("SAM", _sam, None, "transformers")


def _clip_pair() -> tuple[nn.Module, dict[str, Any]]:
    text = {**_SMALL, "max_position_embeddings": 16, "eos_token_id": 98, "pad_token_id": 0, "bos_token_id": 1,
            "projection_dim": 16}  # fmt: skip
    vision = {**{k: v for k, v in _SMALL.items() if k != "vocab_size"}, "image_size": 32, "patch_size": 8, "projection_dim": 16}
    module = _made("CLIPModel", "CLIPConfig", text_config=text, vision_config=vision, projection_dim=16)
    return module, {"input_ids": _ids(2, 8), "pixel_values": torch.randn(3, 3, 32, 32)}


def _sam() -> tuple[nn.Module, dict[str, Any]]:
    vision = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_dim": 64, "image_size": 64,
              "patch_size": 8, "output_channels": 16, "global_attn_indexes": [1], "window_size": 4,
              "num_pos_feats": 8}  # fmt: skip
    prompt = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "image_embedding_size": 8, "mask_input_channels": 4}
    decoder = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "mlp_dim": 32, "iou_head_hidden_dim": 16}
    module = _made("SamModel", "SamConfig", vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)
    return module, {"pixel_values": torch.randn(1, 3, 64, 64), "input_points": torch.tensor([[[[20.0, 30.0]]]])}


# recurrent layers, plain UNet, control flow

class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.rnn = kind(8, 16, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(32 if options.get("bidirectional") else 16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        y, state = self.rnn(x)
        return self.head(y), state


class Packed(nn.Module):
    """Sequences of several lengths, packed as for training."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 16, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, (h, _) = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0], h


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (8, 16, 32)) -> None:
        super().__init__()
        self.down, self.up, self.rise = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i, o in zip((3, *widths), widths, strict=False):
            self.down.append(self.block(i, o))
        for i, o in zip(widths[:0:-1], widths[-2::-1], strict=True):
            self.rise.append(nn.ConvTranspose2d(i, o, 2, 2))
            self.up.append(self.block(2 * o, o))
        self.head = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def block(i: int, o: int) -> nn.Module:
        first = nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True))
        return nn.Sequential(*first, nn.Conv2d(o, o, 3, padding=1), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, block in enumerate(self.down):
            x = block(x)
            if i < len(self.down) - 1:
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(torch.cat([kept.pop(), rise(x)], 1))
        return self.head(x)


def _recurrent() -> Iterator[Family]:
    yield Family("UNet", lambda: (settled(UNet()), {"x": torch.randn(2, 3, 32, 32)}), {"x": {0: "batch"}})
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        yield Family(
            f"{kind.__name__}, two layers, both ways",
            lambda k=kind: (Recurrent(k, bidirectional=True).eval(), {"x": torch.randn(2, 7, 8)}),
            {"x": {0: "batch", 1: "time"}},
        )
    yield Family(
        "packed LSTM", lambda: (Packed().eval(), {"x": torch.randn(3, 7, 8), "lengths": torch.tensor([5, 7, 2])}),
        {"x": {0: "batch", 1: "time"}, "lengths": {0: "batch"}},
    )  # fmt: skip
