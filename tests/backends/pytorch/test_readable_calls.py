"""Readable calls: torch functions with scalar arguments, and layers for decomposed operators."""

from __future__ import annotations

import runpy

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxbridge
from onnxbridge.backends.pytorch.ops import reduction


def round_trip(module, *inputs, **options):
    """The module restored through ONNX."""
    torch.manual_seed(0)
    exported = onnxbridge.convert(module.eval(), inputs=inputs, verify=False, **options)
    conversion = onnxbridge.convert(exported.model, "pytorch")
    assert conversion.report.passed
    return conversion.model


def calls(module):
    return [n.target for n in module.graph.nodes if n.op in ("call_function", "call_method")]


def layers(module):
    return [type(m) for m in module.modules() if type(m).__module__.startswith("torch.nn")]


class Scaled(nn.Module):
    """The norm of T5 and Llama, with the weight on either side."""

    def __init__(self, first):
        super().__init__()
        self.weight, self.first = nn.Parameter(torch.rand(6)), first

    def forward(self, x):
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * normed if self.first else normed * self.weight


class Divided(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(2, keepdim=True) + 1e-5) * self.weight


@pytest.mark.parametrize("norm", [nn.RMSNorm(6, eps=1e-4), Scaled(True), Scaled(False), Divided()], ids=repr)
def test_decomposed_rms_norm_is_a_layer(norm):
    made = round_trip(nn.Sequential(nn.Linear(4, 6), norm), torch.randn(2, 3, 4))
    assert layers(made) == [nn.Linear, nn.RMSNorm]
    assert set(made.state_dict()) == {"0.weight", "0.bias", "1.weight"}


class Other(nn.Module):
    """Almost such a norm: over another axis, with the mean used twice, or without the root."""

    def __init__(self, variant):
        super().__init__()
        self.weight, self.variant = nn.Parameter(torch.rand(6)), variant

    def forward(self, x):
        mean = (x * x).mean(1 if self.variant == "axis" else -1, keepdim=True)
        y = x / (mean + 1e-5 if self.variant == "root" else torch.sqrt(mean + 1e-5)) * self.weight
        return y + mean if self.variant == "twice" else y


@pytest.mark.parametrize("variant", ["axis", "twice", "root"])
def test_variants_of_rms_norm_are_not_matched(variant):
    assert nn.RMSNorm not in layers(round_trip(Other(variant), torch.randn(2, 6, 6)))


def test_layers_without_weights_keep_their_paths():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Flatten(), nn.Linear(64, 2), nn.Softplus())
    made = round_trip(net, torch.randn(2, 3, 2, 2), dynamic={"input": {0: "N"}})
    assert {name: type(m) for name, m in made.named_children()} == {name: type(m) for name, m in net.named_children()}
    x = torch.randn(5, 3, 2, 2)
    torch.testing.assert_close(made(x), net(x))


class Mixed(nn.Module):
    def forward(self, x):
        y = 1.0 - (x + 0.1) * 3.0
        y = torch.where(y > 0.5, y, -1.0) + y**2.0
        return y.sum((0, 2)), y.flatten(1).mean(1, keepdim=True), torch.where(y < 0.0, 2.0, y).amax(1)


def test_scalars_are_inlined():
    made = round_trip(Mixed(), torch.randn(2, 3, 4))
    assert not list(made.buffers())
    used = {n for node in made.graph.nodes for n in node.args if isinstance(n, float)}
    assert {0.1, 3.0, 1.0, 0.5, -1.0, 2.0} <= used
    assert {torch.flatten, torch.sum, torch.mean, torch.amax} <= set(calls(made))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Less", "GreaterOrEqual", "Pow"])
@pytest.mark.parametrize("first", [False, True])
def test_an_inlined_scalar_is_bit_identical(op, dtype, first):
    number = np.array(3 if np.dtype(dtype).kind == "i" else 0.3, dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    out = TensorProto.BOOL if op in ("Less", "GreaterOrEqual") else kind
    node = helper.make_node(op, ["c", "x"] if first else ["x", "c"], ["y"])
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(number))
    graph = helper.make_graph(
        [constant, node], "g", [helper.make_tensor_value_info("x", kind, [5])], [helper.make_tensor_value_info("y", out, [5])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made = onnxbridge.convert(model, "pytorch", verify=False).model
    x = torch.from_numpy(np.array([1, 2, 3, 4, 7], dtype))
    c = torch.from_numpy(number)
    a, b = (c, x) if first else (x, c)
    rounding = "trunc" if np.dtype(dtype).kind == "i" else None
    expected = {
        "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Max": torch.maximum, "Less": torch.lt, "GreaterOrEqual": torch.ge,
        "Pow": torch.pow, "Div": lambda a, b: torch.div(a, b, rounding_mode=rounding),
    }[op](a, b)  # fmt: skip
    got = made(x)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=0 if op != "Pow" else 1e-6, atol=0)


class Reduced(nn.Module):
    def forward(self, x):
        return x.amax(2), x.amin((1, 2), keepdim=True), x.prod(1), x.sum(), x.argmax(1)


def test_static_reductions_call_torch():
    made = round_trip(Reduced(), torch.randn(2, 3, 4))
    assert reduction.reduced not in calls(made)
    assert {torch.amax, torch.amin, torch.prod, torch.sum} <= set(calls(made))


def test_a_dynamic_maximum_may_be_empty():
    """PyTorch rejects an empty reduction, ONNX allows it."""
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], keepdims=0)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], [numpy_helper.from_array(np.array([1]), "axes")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made = onnxbridge.convert(model, "pytorch", verify=False).model
    assert made(torch.zeros(2, 0)).tolist() == [-np.inf, -np.inf]
    assert made(torch.tensor([[1.0, 3.0], [2.0, 0.0]])).tolist() == [3.0, 2.0]


class Padded(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, x):
        return nn.functional.pad(x, (2, 1), mode=self.mode)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dynamic", [None, {"x": {2: "T"}}], ids=["static", "dynamic"])
def test_padding_calls_torch_if_supported(mode, dynamic):
    made = round_trip(Padded(mode), torch.randn(2, 3, 6), dynamic=dynamic)
    supported = mode == "constant" or (dynamic is None and mode != "circular")
    assert (nn.functional.pad in calls(made)) == supported


class Rotary(nn.Module):
    """Constants computed from constants, two of them equal."""

    def forward(self, x):
        steps = torch.arange(x.shape[1], dtype=torch.float32)
        angles = steps.unsqueeze(1) * (10.0 ** (-torch.arange(0, 4) / 4.0)).unsqueeze(0)
        return x * angles.cos().unsqueeze(0) + x.flip(2) * angles.sin().unsqueeze(0), x + angles.cos().unsqueeze(0)


def test_computed_constants_have_short_names_and_are_shared():
    made = round_trip(Rotary(), torch.randn(2, 3, 4))
    assert {name for name, _ in made.named_buffers()} == {"cos", "sin"}
    assert not made.state_dict()


class Activated(nn.BatchNorm2d):
    """A layer that contains another one."""

    def __init__(self):
        super().__init__(3)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(super().forward(x))


class Before(Activated):
    def forward(self, x):
        return nn.BatchNorm2d.forward(self, self.act(x))


@pytest.mark.parametrize("kind", [Activated, Before])
def test_a_layer_inside_a_layer(kind, tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 3, 1), kind()).eval()
    x = torch.randn(2, 3, 4, 4)
    exported = onnxbridge.convert(net, inputs=(x,), verify=False, fold_batch_norm=False).model
    made = onnxbridge.convert(exported, "pytorch", output=tmp_path / "net.py").model
    torch.testing.assert_close(made(x), net(x))
    made.load_state_dict(net.state_dict())
    written = runpy.run_path(str(tmp_path / "net.py"))["load"]()
    torch.testing.assert_close(written(x), net(x))


class Reshaped(nn.Module):
    """Weights used in another shape."""

    def __init__(self):
        super().__init__()
        self.gamma, self.bias = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(1, 3))

    def forward(self, x):
        return x * self.gamma.view(1, 3, 1, 1) + self.bias.unsqueeze(-1).unsqueeze(-1)


def test_reshaped_weights_keep_the_sources_name_and_shape(tmp_path):
    net = Reshaped()
    onnxbridge.convert(net, inputs=(torch.randn(2, 3, 4, 4),), verify=False, output=tmp_path / "net.onnx")
    made = onnxbridge.convert(tmp_path / "net.onnx", "pytorch").model
    assert {k: tuple(v.shape) for k, v in made.state_dict().items()} == {"gamma": (3,), "bias": (1, 3)}
    torch.testing.assert_close(made.gamma, net.gamma)


class Indexed(nn.Module):
    """A table that may be indexed from its end."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(5, 3))

    def forward(self, ids):
        return self.weight[ids]


@pytest.mark.parametrize("exporter", ["own", "torch.onnx"])
def test_embedding_indices_are_not_wrapped(exporter):
    ids = torch.tensor([[0, 4, 2]])
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2)).eval()
    exported = onnxbridge.convert(net, inputs=(ids,), verify=False).model
    if exporter == "torch.onnx":  # as torch.onnx stores module scopes
        remaining = [p for p in exported.metadata_props if p.key != "onnxbridge.classes"]
        del exported.metadata_props[:]
        exported.metadata_props.extend(remaining)
        for node in exported.graph.node:
            scope = next(p.value for p in node.metadata_props if p.key == "onnxbridge.scope")
            kind = f"torch.nn.modules.{'sparse.Embedding' if scope == '0' else 'linear.Linear'}"
            del node.metadata_props[:]
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', '{scope}', 'node']")
            whole = "torch.nn.modules.container.Sequential"
            node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=f"['{whole}', '{kind}', 'aten.node']")
    made = onnxbridge.convert(exported, "pytorch").model
    assert {name: type(m) for name, m in made.named_children()} == {"0": nn.Embedding, "1": nn.Linear}
    assert not calls(made)
    torch.testing.assert_close(made(ids), net(ids))


def test_negative_indices_of_a_table():
    net = nn.Sequential(Indexed(), nn.Linear(3, 2)).eval()
    ids = torch.tensor([[0, -1, 2]])
    torch.testing.assert_close(round_trip(net, ids)(ids), net(ids))


class WithBuffers(nn.Module):
    """Buffers, persistent or not, used as weights."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))
        self.register_buffer("scale", torch.rand(3))
        self.register_buffer("blur", torch.rand(3, 1, 2, 2))
        self.register_buffer("steps", torch.rand(3), persistent=False)

    def forward(self, x):
        y = x * self.weight.view(3, 1, 1) + self.scale.view(3, 1, 1)
        return nn.functional.conv2d(y, self.blur, groups=3) * self.steps.cos().view(3, 1, 1)


def test_buffers_are_not_trained(tmp_path):
    net = WithBuffers()
    onnxbridge.convert(net, inputs=(torch.randn(2, 3, 4, 4),), verify=False, output=tmp_path / "net.onnx")
    made = onnxbridge.convert(tmp_path / "net.onnx", "pytorch").model
    assert {name for name, _ in made.named_parameters()} == {"weight"}
    assert set(made.state_dict()) == {"weight", "scale", "blur"}
    made.load_state_dict(net.state_dict())
    torch.testing.assert_close(made.blur, net.blur)


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rest", torch.from_numpy(np.broadcast_to(np.float32(0), (2, 0))))

    def forward(self, x):
        return torch.cat([x, self.rest], 1)


def test_an_empty_constant(tmp_path):
    conversion = onnxbridge.convert(onnxbridge.convert(Empty(), inputs=(torch.ones(2, 3),), verify=False).model, "pytorch")
    conversion.save(tmp_path / "net.pt2")
    assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(torch.ones(2, 3)), torch.ones(2, 3))


def test_strings():
    nodes = [helper.make_node("Unsqueeze", ["x", "axes"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1, "n"])], [numpy_helper.from_array(np.array([0]), "axes")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made = onnxbridge.convert(model, "pytorch", verify=False).model
    assert made(np.array(["a", "b"], dtype=object)).tolist() == [["a", "b"]]
