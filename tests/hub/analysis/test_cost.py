"""MACs, activation memory and parameters, against PyTorch's own counter, published figures and sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import parser

import onnxbridge
from onnxbridge.errors import UsageError
from onnxbridge.hub.analysis.cost.activation_memory import activation_memory
from onnxbridge.hub.analysis.cost.fixed_sizes import at_sizes, dynamic_sizes
from onnxbridge.hub.analysis.cost.macs import count_macs
from onnxbridge.hub.analysis.cost.parameters import parameters

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def macs_of(text):
    return count_macs(onnxbridge.load(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')).graph)


def networks():
    from torch import nn
    from torch.nn import functional as F

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).reshape(2, 10, 3, 4, 8).permute(2, 0, 3, 1, 4)
            return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 10, 32))

    class Products(nn.Module):
        def forward(self, a, b):
            import torch

            return torch.einsum("bij,bkj->bik", a, b) + torch.baddbmm(a @ b, b, a)

    convolutions = nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3, groups=3),
        nn.Conv2d(24, 24, 3, groups=24, dilation=2), nn.ConvTranspose2d(24, 10, 4, stride=2, groups=2), nn.Conv2d(10, 4, (1, 3)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 7),
    )  # fmt: skip
    return {
        "convolutions": (convolutions, [(2, 3, 32, 30)]),
        "conv1d": (nn.Sequential(nn.Conv1d(4, 8, 5), nn.ConvTranspose1d(8, 2, 3, stride=3)), [(3, 4, 40)]),
        "conv3d": (nn.Conv3d(2, 6, (1, 2, 3)), [(1, 2, 5, 6, 7)]),
        "linear": (nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 5, bias=False)), [(4, 6, 20)]),
        "attention": (Attention(), [(2, 10, 32)]),
        "products": (Products(), [(3, 5, 5), (3, 5, 5)]),
        "encoder": (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), [(2, 7, 16)]),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convolutions", "conv1d", "conv3d", "linear", "attention", "products", "encoder"])
def test_macs_are_half_of_pytorch_s_flops(name):
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    net, shapes = networks()[name]
    net.train(name == "encoder")  # in eval mode it calls a fused operator that PyTorch does not count
    xs = tuple(torch.ones(shape) for shape in shapes)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # others are not counted on a CPU
        net(*xs)
    found = count_macs(onnxbridge.load(net.eval(), inputs=xs).graph)
    assert not found.unknown and 2 * found.total == counter.get_total_flops() > 0


@pytest.mark.parametrize(
    ("name", "published"),
    [("vgg19", 19.63e9), ("resnet50", 4.09e9), ("densenet121", 2.83e9)],  # in the documentation of torchvision
)
def test_macs_of_published_models(name, published):
    found = count_macs(onnxbridge.load(LIGHT / f"light_{name}.onnx").graph)
    assert not found.unknown and found.total == pytest.approx(published, rel=0.005)


def test_macs_of_recurrent_layers():
    """Four gates of an LSTM, three of a GRU: each multiplies the input and the state, at every step, in both directions."""
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        found = macs_of(
            f"g (float[7, 2, 5] x, float[2, {gates * 6}, 5] w, float[2, {gates * 6}, 6] r) => (float[7, 2, 2, 6] y) "
            f'{{ y = {op} <hidden_size = 6, direction = "bidirectional"> (x, w, r) }}'
        )
        assert found.by_operator == {op: 7 * 2 * 2 * gates * 6 * (5 + 6)}


def test_macs_of_matrix_products():
    found = macs_of("g (float[4, 5] a, float[5] b) => (float[4] y) { y = MatMul (a, b) }")
    assert found.by_operator == {"MatMul": 20}
    found = macs_of("g (float[5, 4] a, float[3, 5] b) => (float[4, 3] y) { y = Gemm <transA = 1, transB = 1> (a, b) }")
    assert found.by_operator == {"Gemm": 60}
    found = macs_of('g (float[2, 3, 4] a, float[4, 5] b) => (float[2, 3, 5] y) { y = Einsum <equation = "...i,ij"> (a, b) }')
    assert found.by_operator == {"Einsum": 120}
    found = macs_of("g (uint8[4, 5] a, uint8[5, 6] b) => (int32[4, 6] y) { y = MatMulInteger (a, b) }")
    assert found.by_operator == {"MatMulInteger": 120}


def test_macs_of_attention_with_groups_and_past():
    model = parser.parse_model(
        '<ir_version: 11, opset_import: ["" : 23]> g (float[2, 4, 3, 8] q, float[2, 2, 5, 8] k, float[2, 2, 5, 6] v, '
        "float[2, 2, 7, 8] pk, float[2, 2, 7, 6] pv) => (float[2, 4, 3, 6] y, float[2, 2, 12, 8] a, float[2, 2, 12, 6] b) "
        "{ y, a, b = Attention (q, k, v, , pk, pv) }"
    )
    assert count_macs(onnxbridge.load(model).graph).by_operator == {"Attention": 2 * 4 * 3 * 12 * (8 + 6)}


def test_of_branches_the_larger_one_counts():
    found = macs_of("""g (bool c, float[4, 4] x) => (float[4, 4] y) { y = If (c) <
        then_branch = t () => (float[4, 4] a) { h = MatMul (x, x) a = MatMul (h, x) },
        else_branch = e () => (float[4, 4] b) { b = MatMul (x, x) }> }""")
    assert found.by_operator == {"MatMul": 128}


def test_branches_that_are_certainly_taken():
    """Which one is known from a size; the shape of its result, too, in a chain of two."""
    text = """g (float[N, 4] x) => (y) <int64 zero = {0}, int64 one = {1}, float[4, 4] w = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> {
        s0 = Shape (x)
        n = Gather (s0, zero)
        c = Equal (n, one)
        h = If (c) <then_branch = t () => (float[4] a) { s = Constant <value_ints = [0]> () a = Squeeze (x, s) },
                    else_branch = e () => (float[N, 4] b) { b = MatMul (x, w) }>
        r = Shape (h)
        k = Size (r)
        two = Constant <value_int = 2> ()
        d = Equal (k, two)
        y = If (d) <then_branch = t2 () => (f) { g = MatMul (h, w) f = MatMul (g, w) },
                    else_branch = e2 () => (i) { i = Neg (h) }>
    }"""
    model = onnxbridge.load(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    assert count_macs(at_sizes(model, {"N": 1}).graph).total == 0
    found = count_macs(at_sizes(model, {"N": 3}).graph)
    assert found.by_operator == {"MatMul": 3 * 48} and not found.unknown
    assert activation_memory(at_sizes(model, {"N": 3}).graph).unknown == 0


LOOP = """g (float[4, 4] x{}) => (float[4, 4] y) {} {{ y = Loop (n, , x) <
    body = b (int64 i, bool c, float[4, 4] s) => (bool d, float[4, 4] t) {{ d = Identity (c) t = MatMul (s, s) }}> }}"""


def test_loops():
    assert macs_of(LOOP.format("", "<int64 n = {10}>")).by_operator == {"MatMul": 640}
    found = macs_of(LOOP.format(", int64 n", ""))
    assert found.by_operator == {"MatMul": 64} and found.loops == 1


@pytest.fixture
def dynamic():
    """y = relu(x @ x'.T @ x), for N rows."""
    text = "g (float[N, 4] x) => (float[N, 4] y) { t = Transpose (x) p = MatMul (x, t) q = MatMul (p, x) y = Relu (q) }"
    return onnxbridge.load(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))


def test_unknown_sizes_are_said_and_not_guessed(dynamic):
    found = count_macs(dynamic.graph)
    assert found.unknown == {"MatMul": 2} and not found.total and dynamic_sizes(dynamic) == ["N"]
    assert activation_memory(dynamic.graph).unknown == 5


def test_sizes_may_be_given(dynamic):
    made = at_sizes(dynamic, {"N": 10})
    found = count_macs(made.graph)
    assert not found.unknown and found.by_operator == {"MatMul": 2 * 400}
    assert dynamic_sizes(made) == [] and dynamic_sizes(dynamic) == ["N"]  # the model itself is not changed
    with pytest.raises(UsageError, match="no dynamic size 'M'; its dynamic sizes are N"):
        at_sizes(dynamic, {"M": 1})


def test_activation_memory(dynamic):
    found = activation_memory(at_sizes(dynamic, {"N": 10}).graph)
    x, p = 4 * 40, 4 * 100  # bytes of every N x 4 matrix, and of the N x N one
    assert found.total == 4 * x + p and not found.unknown
    assert found.peak == max(x + x + p, x + p + x)  # the product with its operands


def test_memory_of_a_result_is_freed_after_its_last_use():
    text = "g (float[100] x) => (float[100] y) { a = Relu (x) b = Abs (a) c = Neg (b) d = Exp (c) y = Add (d, x) }"
    model = onnxbridge.load(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    found = activation_memory(model.graph)
    assert found.total == 6 * 400 and found.peak == 3 * 400  # x is kept for the end; a result, and the one made of it


def test_memory_of_branches():
    text = """g (bool c, float[100] x) => (float[100] y) { y = If (c) <
        then_branch = t () => (float[100] a) { h = Abs (x) k = Neg (h) a = Exp (k) },
        else_branch = e () => (float[100] b) { b = Relu (x) }> }"""
    model = onnxbridge.load(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    assert activation_memory(model.graph).peak == 1 + 400 + 400 + 2 * 400


def test_parameters(network):
    found = parameters(network, most=1)
    assert found.by_dtype["float32"].elements == 108 + 320 and found.by_dtype["float32"].bytes == 4 * 428
    assert [w.name for w in found.largest] == ["fc.weight"] and found.trained is None


@pytest.mark.slow
def test_trained_parameters_of_pytorch():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    found = parameters(onnxbridge.load(net, inputs=(torch.ones(1, 4),)))
    assert found.trained.elements == sum(p.numel() for p in net.parameters()) == 58


def test_inspect_shows_the_cost(cli, network_file):
    out = cli("inspect", network_file).out
    assert "macs    at least 0\n" in out and "give N (--dynamic N=4)" in out
    out = cli("inspect", network_file, "--dynamic", "N=2").out
    assert "macs    14,464 at N=2: Conv 13,824, Gemm 640" in out and "bytes of activations at the peak" in out
    assert cli("inspect", network_file, "--dynamic", "N=1..2").out == out
    assert "macs    14,464: " in cli("inspect", network_file, "--inputs", "x:float32[2,3,8,8]").out
    found = json.loads(cli("inspect", network_file, "--dynamic", "N=2", "--json").out)
    assert found["macs"]["total"] == 14464 and found["sizes"] == {"N": 2} and found["activations"]["unknown"] == 0
    assert found["parameters"]["largest"][0]["name"] == "fc.weight"


def test_inspect_refuses_wrong_sizes(cli, network_file):
    ran = cli("inspect", network_file, "--dynamic", "M=2")
    assert ran.code == 2 and "no dynamic size 'M'; its dynamic sizes are N" in ran.err and ran.out == ""
    assert cli("inspect", network_file, "--dynamic", "N=x").code == 2


def test_inspect_shows_where_an_onnx_file_comes_from(cli, tmp_path):
    text = '<ir_version: 8, opset_import: ["" : 17], producer_name: "acme", producer_version: "1.2", doc_string: "a test"> '
    model = parser.parse_model(text + "g (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.metadata_props.add(key="license", value="Apache-2.0")
    onnx.save(model, tmp_path / "a.onnx")
    out = cli("inspect", tmp_path / "a.onnx").out
    assert "producer = acme 1.2" in out and "license = Apache-2.0" in out and "doc_string = a test" in out
    origin = json.loads(cli("inspect", tmp_path / "a.onnx", "--json").out)["origin"]
    assert origin["ir_version"] == "8" and origin["opsets"] == "ai.onnx 17"


@pytest.mark.slow
def test_origin_of_pytorch_files(cli, tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(3, 2).eval()
    torch.export.save(torch.export.export(net, (torch.ones(1, 3),)), tmp_path / "net.pt2")
    torch.jit.save(torch.jit.script(net), tmp_path / "net.pt")
    out = cli("inspect", tmp_path / "net.pt2").out
    assert f"torch_version = {torch.__version__}" in out and "archive_format = pt2" in out and "schema_version = " in out
    assert "file_version = 3" in cli("inspect", tmp_path / "net.pt", "--inputs", "input:float32[1,3]").out


@pytest.mark.slow
def test_origin_of_tensorflow_files(cli, tmp_path):
    tf, keras = pytest.importorskip("tensorflow"), pytest.importorskip("keras")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    net.save(tmp_path / "net.keras"), net.save(tmp_path / "net.h5"), net.export(tmp_path / "saved")
    assert f"keras_version = {keras.__version__}" in cli("inspect", tmp_path / "net.keras").out
    assert f"keras_version = {keras.__version__}" in cli("inspect", tmp_path / "net.h5").out
    assert f"tensorflow_version = {tf.__version__}" in cli("inspect", tmp_path / "saved").out


def test_origin_of_core_ml_files(cli, tmp_path):
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil import Builder as mb

    @mb.program(input_specs=[mb.TensorSpec((2, 3))])
    def program(x):
        return mb.relu(x=x)

    made = ct.convert(program, convert_to="mlprogram", skip_model_load=True)
    made.author, made.license, made.short_description, made.version = "A. Author", "MIT", "A rectifier", "1.0"
    made.save(str(tmp_path / "net.mlpackage"))
    out = cli("inspect", tmp_path / "net.mlpackage").out
    assert all(text in out for text in ("author = A. Author", "license = MIT", "description = A rectifier", "version = 1.0"))
    assert "com.github.apple.coremltools.version = " in out


def test_origin_of_mxnet_files(cli, tmp_path):
    symbol = {
        "nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "Activation", "name": "y", "attrs": {"act_type": "relu"},
                  "inputs": [[0, 0, 0]]}],
        "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]},
    }  # fmt: skip
    (tmp_path / "net-symbol.json").write_text(json.dumps(symbol))
    out = cli("inspect", tmp_path / "net-symbol.json", "--inputs", "x:float32[2,3]").out
    assert "origin  mxnet_version = 1.9.1" in out
