"""The models and data that the blocks of a guide take for granted: `prepare(page, folder)` writes them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.guides.blocks import MXNET, copy_examples

Names = dict[str, Any]


def prepare(page: str, folder: Path) -> Names:
    """Write the files of a page; the names that its Python blocks take for granted."""
    import onnxbridge

    return {"__name__": "__main__", "onnxbridge": onnxbridge} | _PAGES.get(page, lambda folder: {})(folder)


def _onnx(path: Path, nodes: list[onnx.NodeProto], inputs: str, outputs: str, opset: int = 21, **weights: np.ndarray) -> None:
    """Write a graph; its inputs and outputs are given as ONNX's text form writes them: `float[N, 3] x, int64[2] y`."""
    graph = onnx.parser.parse_graph(f"g ({inputs}) => ({outputs}) {{ }}")
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", graph.input, graph.output, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)


def _mlp(path: Path, first: float = 0.0, inputs: int = 8) -> None:
    rng = np.random.default_rng(0)
    w, v = rng.standard_normal((inputs, 16)).astype(np.float32) / 4, rng.standard_normal((16, 4)).astype(np.float32) / 4
    v[0, 0] += first
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    _onnx(path, nodes, f"float[N, {inputs}] x", "float[N, 4] y", w=w, v=v)


def _strings(path: Path) -> None:
    nodes = [helper.make_node("StringConcat", ["a", "b"], ["c"], name="join")]
    _onnx(path, nodes, "string[N] a, string[N] b", "string[N] c")


def _keras(path: Path) -> None:
    import keras

    keras.utils.set_random_seed(0)
    keras.Sequential([
        keras.Input((16, 16, 3), name="image"), keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10, name="logits"),
    ]).save(path)  # fmt: skip


def _convolution(folder: Path, *suffixes: str) -> Names:
    """`net.pt2`, and what it is converted to."""
    import torch

    import onnxbridge

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 5)).eval()
    x = torch.randn(2, 3, 8, 8)
    sizes = ({0: torch.export.Dim("N")},)
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=sizes), folder / "net.pt2")
    for suffix in suffixes:
        given = {"inputs": "input:float32[N,3,8,8]", "verify": False}
        onnxbridge.convert(folder / "net.pt2", output=folder / f"net{suffix}", **given)
    return {"net": net, "x": x}


def _digits(folder: Path) -> None:
    """The network of `make demo`, its data, and two files in which a weight was changed."""
    import onnxbridge

    copy_examples(folder)
    for command in (["data.py", "digits.npz"], ["torch_net.py", "digits.npz", "digits.pt2"]):
        script = f"examples/digits/{command[0]}"
        subprocess.run([sys.executable, script, *command[1:]], cwd=folder, check=True, capture_output=True)
    images = np.load(folder / "digits.npz")["x_test"]
    np.savez(folder / "real.npz", image=images)
    onnxbridge.convert(folder / "digits.pt2", output=folder / "digits.onnx", verify=False)


def _compare(folder: Path) -> Names:
    return _convolution(folder, ".onnx")


def _executor(folder: Path) -> Names:
    w = np.ones((3, 3), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["h"]),
        helper.make_node("Relu", ["h"], ["layer1/Relu"]),
        helper.make_node("Neg", ["layer1/Relu"], ["y"]),
    ]
    _onnx(folder / "model.onnx", nodes, "float[2, 3] x", "float[2, 3] y", weight=w)
    return {"x": np.ones((2, 3), np.float32)}


def _mxnet(folder: Path) -> Names:
    """Two files of MXNet, and the network of the guide to Keras as ONNX."""
    import onnxbridge

    assert MXNET, "the tests need the environment of MXNet: see the Makefile"
    program = (
        "import mxnet as mx; from mxnet.gluon import nn; mx.random.seed(0)\n"
        "net = nn.HybridSequential(prefix='net_')\n"
        "with net.name_scope():\n"
        "    net.add(nn.Conv2D(8, 3, activation='relu'), nn.GlobalAvgPool2D(), nn.Dense(10))\n"
        "net.initialize(mx.init.Xavier()); net.hybridize(); net(mx.nd.zeros((1, 3, 224, 224)))\n"
        "net.export('mx'); net.export('net')\n"
    )
    subprocess.run([MXNET, "-c", program], cwd=folder, check=True, capture_output=True)
    _keras(folder / "net.keras")
    onnxbridge.convert(folder / "net.keras", output=folder / "net.onnx", verify=False)
    return {}


def _onnx_guide(folder: Path) -> Names:
    _onnx(folder / "gelu.onnx", [helper.make_node("Gelu", ["x"], ["y"])], "float[N, 8] x", "float[N, 8] y")
    _convolution(folder, ".onnx")
    (folder / "net.onnx").rename(folder / "model.onnx")
    _keras(folder / "net.keras")
    _strings(folder / "strings.onnx")
    product = [helper.make_node("MatMul", ["a", "b"], ["c"], name="product")]
    _onnx(folder / "integers.onnx", product, "int64[2, 3] a, int64[3, 4] b", "int64[2, 4] c", opset=13)
    return {}


def _pipelines(folder: Path) -> Names:
    names = _convolution(folder, ".onnx")
    for name in ("zoo", "models", "deployed"):
        (folder / name).mkdir()
    _mlp(folder / "zoo" / "mlp.onnx")
    (folder / "zoo" / "net.onnx").write_bytes((folder / "net.onnx").read_bytes())
    (folder / "models" / "detector.onnx").write_bytes((folder / "net.onnx").read_bytes())
    (folder / "nets.py").write_text(_SEGMENTER, encoding="utf-8")
    program = (
        "import nets, onnxbridge; onnxbridge.convert(nets.make_segmenter(), inputs='image:float32[N,3,512,512]', verify=False, "
        "output='deployed/segmenter.onnx')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True)
    return names


_SEGMENTER = '''import torch


class Segmenter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down, self.up = torch.nn.Conv2d(3, 4, 3, 4, 1), torch.nn.ConvTranspose2d(4, 2, 4, 4)

    def forward(self, image):
        return self.up(torch.relu(self.down(image))).softmax(1)


def make_segmenter():
    return Segmenter().eval()
'''


def _reports(folder: Path) -> Names:
    return _convolution(folder, ".onnx")


def _tensorflow(folder: Path) -> Names:
    import tensorflow as tf

    _keras(folder / "net.keras")
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def f(name):
        return tf.io.read_file(name)

    module.f = f
    tf.saved_model.save(module, str(folder / "reads"))
    rng = np.random.default_rng(0)
    return {"images": rng.random((32, 16, 16, 3), np.float32), "labels": rng.integers(0, 10, 32)}


def _tflite(folder: Path) -> Names:
    import tensorflow as tf

    inputs = tf.keras.Input((16, 16, 3), batch_size=None)
    tf.keras.utils.set_random_seed(0)
    x = tf.keras.layers.GlobalAveragePooling2D()(tf.keras.layers.Conv2D(8, 3, activation="relu")(inputs))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(10)(x))
    (folder / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_keras_model(model).convert())
    return {}


def _troubleshooting(folder: Path) -> Names:
    _mlp(folder / "mlp.onnx")
    _mlp(folder / "mlp_bad.onnx", first=2e-4)
    _digits(folder)
    _strings(folder / "strings.onnx")
    return {}


def _verification(folder: Path) -> Names:
    import onnxbridge

    _digits(folder)
    images = np.load(folder / "real.npz")["image"]
    (folder / "photos").mkdir()
    np.savez(folder / "photos" / "1.npz", image=images[:4].astype(np.float64))
    for name, factor in (("wrong", 1.001), ("close", 1.00001)):
        model = onnx.load(folder / "digits.onnx")
        (weight,) = (i for i in model.graph.initializer if i.name.startswith("head") and len(i.dims) == 2)
        array = numpy_helper.to_array(weight).copy()
        array.flat[np.abs(array).argmax()] *= factor
        weight.CopyFrom(numpy_helper.from_array(array, weight.name))
        onnx.save(model, folder / f"{name}.onnx")
    large = np.array([1000], np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="MatMul"),
        helper.make_node("Add", ["h", "large"], ["s"], name="shifted"),
        helper.make_node("Sub", ["s", "large"], ["y"], name="back"),
    ]
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32) / 4
    _onnx(folder / "net.onnx", nodes, "float[4, 8] x", "float[4, 8] y", w=w, large=large)
    onnxbridge.convert(folder / "net.onnx", output=folder / "net.mlpackage", compute_precision="fp16", verify=False)
    return {}


def _readme(folder: Path) -> Names:
    import onnxbridge

    names = _mxnet(folder) | _convolution(folder)
    copy_examples(folder)
    _mlp(folder / "a.onnx")
    onnxbridge.convert(folder / "a.onnx", output=folder / "b.mlpackage", verify=False)
    return {"model": names["net"], "x": names["x"], "proto": onnx.load(folder / "a.onnx")}


def _r(folder: Path) -> Names:
    copy_examples(folder)
    (folder / "library").mkdir()
    _mlp(folder / "model.onnx", inputs=3)
    _keras(folder / "net.keras")
    return {}


_PAGES: dict[str, Callable[[Path], Names]] = {
    "compare": _compare,
    "README": _readme,
    "executor": _executor,
    "mxnet": _mxnet,
    "onnx": _onnx_guide,
    "pipelines": _pipelines,
    "r": _r,
    "reports": _reports,
    "tensorflow": _tensorflow,
    "tflite": _tflite,
    "troubleshooting": _troubleshooting,
    "verification": _verification,
}
