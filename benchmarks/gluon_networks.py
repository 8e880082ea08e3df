"""Networks of gluon, gluoncv, gluoncv2 and GluonNLP with random weights to ONNX. It runs in the environment of MXNet.

Packages beside MXNet: gluoncv 0.10.5, gluoncv2, gluonnlp 0.10. Where one is missing, its networks count as failing.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from session import Session

_GLUON = (
    *(f"resnet{depth}_v{version}" for version in (1, 2) for depth in (18, 34, 50, 101, 152)),
    *(f"vgg{depth}{suffix}" for suffix in ("", "_bn") for depth in (11, 13, 16, 19)),
    *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
    *(f"mobilenet{version}{width}" for version in ("", "v2_") for width in ("1.0", "0.75", "0.5", "0.25")),
    "alexnet", "inceptionv3", "squeezenet1.0", "squeezenet1.1",
)  # fmt: skip
_GLUONCV = (
    "resnet50_v1d", "resnext50_32x4d", "se_resnext50_32x4d", "mobilenetv3_small", "mobilenetv3_large", "darknet53",
    "googlenet", "hrnet_w18_c", "resnest50", "residualattentionnet56", "xception", "cifar_wideresnet16_10",
    "simple_pose_resnet18_v1b", "mobile_pose_mobilenet1.0", "fcn_resnet50_ade", "psp_resnet50_ade", "deeplab_resnet50_ade",
    "fastscnn_citys", "icnet_resnet50_citys", "danet_resnet50_citys", "ssd_512_resnet50_v1_voc", "ssd_512_mobilenet1.0_voc",
    "yolo3_darknet53_voc",
)  # fmt: skip
"""With random weights, the other detectors give many boxes the same score."""
_GLUONCV2 = (
    "bninception", "cbam_resnet18", "darknet53", "diracnet18v2", "dpn68", "efficientnet_b0", "fdmobilenet_wd2", "ghostnet",
    "hrnet_w18_small_v1", "igcv3_w1", "menet228_12x1_g3", "mnasnet_b1", "nasnet_4a1056", "pnasnet5large", "peleenet",
    "polynet", "proxylessnas_cpu", "regnetx002", "resneta10", "senet16", "shufflenet_g1_w1", "shufflenetv2_w1", "sknet50",
    "spnasnet", "sqnxt23_w1", "vovnet27s", "xdensenet121_2",
)  # fmt: skip
_WITH_A_BASE = ("_voc", "_coco", "_ade", "_citys", "_v1d", "_v1b", "mobile_pose_mobilenet1.0")
_RECURRENT = {
    "lstm": ("LSTM", {}), "lstm_2_layers_both_directions": ("LSTM", {"num_layers": 2, "bidirectional": True}),
    "lstm_projected": ("LSTM", {"projection_size": 4}), "lstm_batch_first": ("LSTM", {"layout": "NTC"}), "gru": ("GRU", {}),
    "gru_2_layers_both_directions": ("GRU", {"num_layers": 2, "bidirectional": True}),
    "rnn_relu": ("RNN", {"activation": "relu"}), "rnn_tanh": ("RNN", {"activation": "tanh"}),
}  # fmt: skip
_CELLS = ("LSTMCell", "GRUCell", "RNNCell")
_CONTROL_FLOW = ("foreach", "while_loop", "cond")
_SIZES = {
    "inceptionv3": 299, "xception": 299, "pnasnet5large": 331, "polynet": 331, "cifar_wideresnet16_10": 32,
    "fastscnn_citys": 1024, "icnet_resnet50_citys": 480, "danet_resnet50_citys": 240,
}  # fmt: skip
_NAMES = (
    *(f"gluon {name}" for name in _GLUON), *(f"gluoncv {name}" for name in _GLUONCV), *(f"gluoncv2 {name}" for name in _GLUONCV2),
    *(f"recurrent {name}" for name in (*_RECURRENT, *_CELLS)), *(f"control_flow {name}" for name in _CONTROL_FLOW),
    "gluonnlp bert",
)  # fmt: skip


@dataclass
class Case:
    """The two files of a network, its inputs (with the states of a recurrent layer), and what MXNet computes."""

    files: tuple
    inputs: list
    expected: list


def prepare(folder, match):
    return [name for name in _NAMES if match in name]


def _image_network(library, name):
    if library == "gluon":
        from mxnet.gluon.model_zoo.vision import get_model

        return get_model(name)
    if library == "gluoncv":
        from gluoncv.model_zoo import get_model

        return get_model(name, **({"pretrained_base": False} if name.endswith(_WITH_A_BASE) else {}))
    from gluoncv2.model_provider import get_model

    return get_model(name)


def _size(name):
    if name in _SIZES:
        return _SIZES[name]
    return 512 if "512" in name else 320 if "yolo3" in name else 480 if "_ade" in name else 224


def _recurrent_network(name):
    import mxnet as mx

    if name in _RECURRENT:
        layer, options = _RECURRENT[name]
        net = getattr(mx.gluon.rnn, layer)(8, input_size=6, **options)
        return net, [(2, 5, 6) if options.get("layout") == "NTC" else (5, 2, 6)], net.begin_state
    cell = getattr(mx.gluon.rnn, name)(8, input_size=6)

    class Unrolled(mx.gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def hybrid_forward(self, F, x):
            return self.cell.unroll(5, x, layout="NTC", merge_outputs=True)[0]

    return Unrolled(), [(2, 5, 6)], None


def _control_flow_network(name):
    import mxnet as mx

    class Network(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            if name == "foreach":
                return F.contrib.foreach(lambda row, total: (F.tanh(row + total), total + row), x, F.zeros((6,)))[0]
            if name == "while_loop":
                first = F.sum(x) * 0
                return F.contrib.while_loop(
                    lambda i, y: i < 4, lambda i, y: (y, (i + 1, y * 2)), (first, F.sum(x)), max_iterations=6
                )[0]
            return F.contrib.cond(F.sum(x) > 0, lambda: x * 2, lambda: x - 1)

    return Network(), [(5, 6)], None


def _bert():
    import gluonnlp

    encoder = gluonnlp.model.BERTEncoder(num_layers=4, units=128, hidden_size=512, num_heads=4, max_length=64, dropout=0.0)
    return gluonnlp.model.BERTModel(
        encoder, vocab_size=1000, token_type_vocab_size=2, units=128, embed_size=128, use_decoder=False, use_classifier=False
    )


def _inputs(library, name):
    """The network and its inputs; of a recurrent layer with its states."""
    import mxnet as mx

    rng = np.random.default_rng(0)
    if library == "gluonnlp":
        ids, types = (mx.nd.array(rng.integers(0, n, (2, 32)), dtype="float32") for n in (1000, 2))
        return _bert(), [ids, types, mx.nd.array([32, 20])]
    if library in {"recurrent", "control_flow"}:
        net, shapes, states = (_recurrent_network if library == "recurrent" else _control_flow_network)(name)
        tensors = [mx.nd.array(rng.standard_normal(shape).astype(np.float32)) for shape in shapes]
        return net, [*tensors, *(states(2) if states else ())]
    net = _image_network(library, name)
    return net, [mx.nd.array(rng.standard_normal((1, 3, _size(name), _size(name))).astype(np.float32))]


def _initializer():
    import mxnet as mx

    class Random(mx.init.Xavier):
        """Xavier's numbers, and ones for the scales that gluoncv calls weights."""

        def _init_weight(self, name, arr):
            if arr.ndim < 2:
                arr[:] = 1.0
            else:
                super()._init_weight(name, arr)

        _init_default = _init_weight

    return mx.init.register(Random)()


def _flat(found):
    return [y for part in found for y in _flat(part)] if isinstance(found, (list, tuple)) else [found]


def case(name, folder):
    import mxnet as mx

    if not hasattr(np, "bool"):  # MXNet uses names that NumPy has not any more
        np.bool, np.object, np.float, np.int = bool, object, float, int
    mx.random.seed(0)
    library, _, network = name.partition(" ")
    net, inputs = _inputs(library, network)
    net.initialize(_initializer())
    net.hybridize()
    is_layer = library == "recurrent" and len(inputs) > 1
    found = net(inputs[0], inputs[1:]) if is_layer else net(*inputs)
    path = Path(folder) / "net"  # of the case before, too: 99 of them would fill a disk
    net.export(str(path))
    expected = [y.asnumpy() for y in _flat(found)]
    return Case((f"{path}-symbol.json", f"{path}-0000.params"), [a.asnumpy() for a in inputs], expected)


def onnxbridge(one):
    import onnxbridge

    names = ["data"] if len(one.inputs) == 1 else [f"data{i}" for i in range(len(one.inputs))]
    inputs = {name: (a.shape, "float32") for name, a in zip(names, one.inputs, strict=True)}
    return Session(onnxbridge.convert(one.files, to="onnx", inputs=inputs, verify=False).model)


def mx2onnx(one):
    import onnx
    from mxnet import onnx as exporter

    # Its newest operators are those of opset 13. It declares and checks them as operators of the installed onnx.
    onnx.defs.onnx_opset_version, onnx.checker.check_graph = lambda: 13, lambda graph: None
    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/net.onnx"
        exporter.export_model(*one.files, [a.shape for a in one.inputs], np.float32, target)
        return Session(onnx.load(target))


ENGINES = {"onnxbridge": onnxbridge, "mx2onnx": mx2onnx}
