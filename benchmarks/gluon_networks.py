"""The networks of Gluon's model zoo with random weights to ONNX. It runs in the environment of MXNet."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from session import Session

_NAMES = (
    "alexnet", "densenet121", "inceptionv3", "mobilenet1.0", "mobilenetv2_1.0", "resnet18_v1", "resnet18_v2", "resnet50_v1",
    "squeezenet1.0", "squeezenet1.1", "vgg11", "vgg11_bn",
)  # fmt: skip
_LAYERS = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}


@dataclass
class Case:
    """The two files of a network, its inputs (with the states of a recurrent layer), and what MXNet computes."""

    files: tuple
    inputs: list
    expected: list


def prepare(folder, match):
    return [name for name in (*_NAMES, *_LAYERS) if match in name]


def case(name, folder):
    import mxnet as mx

    if not hasattr(np, "bool"):  # MXNet uses names that NumPy has not any more
        np.bool = bool
    mx.random.seed(0)
    if name in _LAYERS:
        net, shape = getattr(mx.gluon.rnn, _LAYERS[name])(8, input_size=6), (5, 2, 6)
    else:
        net, shape = mx.gluon.model_zoo.vision.get_model(name), (1, 3, 299, 299) if name == "inceptionv3" else (1, 3, 224, 224)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    x = mx.nd.array(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    states = net.begin_state(shape[1]) if name in _LAYERS else []
    found = net(x, states) if states else net(x)
    expected = [found[0], *found[1]] if states else [found]
    path = Path(tempfile.mkdtemp()) / "net"
    net.export(str(path))
    files = f"{path}-symbol.json", f"{path}-0000.params"
    return Case(files, [a.asnumpy() for a in (x, *states)], [y.asnumpy() for y in expected])


def onnxbridge(one):
    import onnxbridge

    names = ["data"] if len(one.inputs) == 1 else [f"data{i}" for i in range(len(one.inputs))]
    inputs = {name: (a.shape, "float32") for name, a in zip(names, one.inputs, strict=True)}
    return Session(onnxbridge.convert(one.files, to="onnx", inputs=inputs, verify=False).model)


def mx2onnx(one):
    import onnx
    from mxnet import onnx as exporter

    target = Path(tempfile.mkdtemp()) / "net.onnx"
    exporter.export_model(*one.files, [a.shape for a in one.inputs], np.float32, str(target))
    return Session(onnx.load(str(target)))


ENGINES = {"onnxbridge": onnxbridge, "mx2onnx": mx2onnx}
