"""Calls as people write them: torch's own functions with numbers in them, and layers for what a format writes out."""

from __future__ import annotations

import runpy

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxbridge
from onnxbridge.backends.pytorch.ops import reduction


def back(module, *inputs, **options):
    """The module that comes back through ONNX."""
    torch.manual_seed(0)
    there = onnxbridge.convert(module.eval(), inputs=inputs, verify=False, **options)
    conversion = onnxbridge.convert(there.model, "pytorch")
    assert conversion.report.passed
    return conversion.model


def calls(module):
    return [n.target for n in module.graph.nodes if n.op in ("call_function", "call_method")]


def layers(module):
    return [type(m) for m in module.modules() if type(m).__module__.startswith("torch.nn")]


class Scaled(nn.Module):
    """The norm of T5 and Llama, the weight on either side."""

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
def test_a_norm_by_the_root_of_the_mean_square_is_a_layer(norm):
    made = back(nn.Sequential(nn.Linear(4, 6), norm), torch.randn(2, 3, 4))
    assert layers(made) == [nn.Linear, nn.RMSNorm]
    assert set(made.state_dict()) == {"0.weight", "0.bias", "1.weight"}


class Other(nn.Module):
    """Nearly such a norm: over another axis, with the mean read twice, or without the root."""

    def __init__(self, how):
        super().__init__()
        self.weight, self.how = nn.Parameter(torch.rand(6)), how

    def forward(self, x):
        mean = (x * x).mean(1 if self.how == "axis" else -1, keepdim=True)
        y = x / (mean + 1e-5 if self.how == "root" else torch.sqrt(mean + 1e-5)) * self.weight
        return y + mean if self.how == "twice" else y


@pytest.mark.parametrize("how", ["axis", "twice", "root"])
def test_what_only_looks_like_such_a_norm_is_none(how):
    assert nn.RMSNorm not in layers(back(Other(how), torch.randn(2, 6, 6)))


def test_gates_flattening_and_enlarging_are_layers_where_they_were():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Flatten(), nn.Linear(64, 2), nn.Softplus())
    made = back(net, torch.randn(2, 3, 2, 2), dynamic={"input": {0: "N"}})
    assert {name: type(m) for name, m in made.named_children()} == {name: type(m) for name, m in net.named_children()}
    x = torch.randn(5, 3, 2, 2)
    torch.testing.assert_close(made(x), net(x))


class Mixed(nn.Module):
    def forward(self, x):
        y = 1.0 - (x + 0.1) * 3.0
        y = torch.where(y > 0.5, y, -1.0) + y ** 2.0
        return y.sum((0, 2)), y.flatten(1).mean(1, keepdim=True), torch.where(y < 0.0, 2.0, y).amax(1)


def test_numbers_stand_in_the_calls():
    made = back(Mixed(), torch.randn(2, 3, 4))
    assert not list(made.buffers())
    used = {n for node in made.graph.nodes for n in node.args if isinstance(n, float)}
    assert {0.1, 3.0, 1.0, 0.5, -1.0, 2.0} <= used
    assert {torch.flatten, torch.sum, torch.mean, torch.amax} <= set(calls(made))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Less", "GreaterOrEqual", "Pow"])
@pytest.mark.parametrize("first", [False, True])
def test_a_number_in_a_call_computes_what_the_tensor_did(op, dtype, first):
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
    towards_zero = "trunc" if np.dtype(dtype).kind == "i" else None
    expected = {
        "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Max": torch.maximum, "Less": torch.lt, "GreaterOrEqual": torch.ge,
        "Pow": torch.pow, "Div": lambda a, b: torch.div(a, b, rounding_mode=towards_zero),
    }[op](a, b)  # fmt: skip
    got = made(x)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, rtol=0 if op != "Pow" else 1e-6, atol=0)


class Reduced(nn.Module):
    def forward(self, x):
        return x.amax(2), x.amin((1, 2), keepdim=True), x.prod(1), x.sum(), x.argmax(1)


def test_reductions_are_torchs_own_where_sizes_are_known():
    made = back(Reduced(), torch.randn(2, 3, 4))
    assert reduction.reduced not in calls(made)
    assert {torch.amax, torch.amin, torch.prod, torch.sum} <= set(calls(made))


def test_the_largest_of_none_is_asked_for_when_the_module_runs():
    """PyTorch refuses it, the standard does not."""
    node = helper.make_node("ReduceMax", ["x", "axes"], ["y"], keepdims=0)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])], [numpy_helper.from_array(np.array([1]), "axes")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made = onnxbridge.convert(model, "pytorch", verify=False).model
    assert made(torch.zeros(2, 0)).tolist() == [-np.inf, -np.inf]
    assert made(torch.tensor([[1.0, 3.0], [2.0, 0.0]])).tolist() == [3.0, 2.0]


class Bordered(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def forward(self, x):
        return nn.functional.pad(x, (2, 1), mode=self.mode)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dynamic", [None, {"x": {2: "T"}}], ids=["fixed", "open"])
def test_padding_is_torchs_own_where_it_takes_the_sizes(mode, dynamic):
    made = back(Bordered(mode), torch.randn(2, 3, 6), dynamic=dynamic)
    own = mode == "constant" or (dynamic is None and mode != "circular")
    assert (nn.functional.pad in calls(made)) == own


class Rotary(nn.Module):
    """Constants that are computed from constants, twice the same."""

    def forward(self, x):
        steps = torch.arange(x.shape[1], dtype=torch.float32)
        angles = steps.unsqueeze(1) * (10.0 ** (-torch.arange(0, 4) / 4.0)).unsqueeze(0)
        return x * angles.cos().unsqueeze(0) + x.flip(2) * angles.sin().unsqueeze(0), x + angles.cos().unsqueeze(0)


def test_computed_constants_have_short_names_and_are_there_once():
    made = back(Rotary(), torch.randn(2, 3, 4))
    assert {name for name, _ in made.named_buffers()} == {"cos", "sin"}
    assert not made.state_dict()


class Activated(nn.BatchNorm2d):
    """A layer that holds another one."""

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
    there = onnxbridge.convert(net, inputs=(x,), verify=False, fold_batch_norm=False).model
    made = onnxbridge.convert(there, "pytorch", output=tmp_path / "net.py").model
    torch.testing.assert_close(made(x), net(x))
    made.load_state_dict(net.state_dict())
    written = runpy.run_path(str(tmp_path / "net.py"))["load"]()
    torch.testing.assert_close(written(x), net(x))


class Stretched(nn.Module):
    """Weights of which the model takes another shape."""

    def __init__(self):
        super().__init__()
        self.gamma, self.bias = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(1, 3))

    def forward(self, x):
        return x * self.gamma.view(1, 3, 1, 1) + self.bias.unsqueeze(-1).unsqueeze(-1)


def test_weights_that_are_used_in_another_shape_are_the_sources_own(tmp_path):
    net = Stretched()
    onnxbridge.convert(net, inputs=(torch.randn(2, 3, 4, 4),), verify=False, output=tmp_path / "net.onnx")
    made = onnxbridge.convert(tmp_path / "net.onnx", "pytorch").model
    assert {k: tuple(v.shape) for k, v in made.state_dict().items()} == {"gamma": (3,), "bias": (1, 3)}
    torch.testing.assert_close(made.gamma, net.gamma)


class Counted(nn.Module):
    """A table of its own that may be read from its end."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(5, 3))

    def forward(self, ids):
        return self.weight[ids]


@pytest.mark.parametrize("exporter", ["own", "torch.onnx"])
def test_indices_go_to_an_embedding_as_they_are(exporter):
    ids = torch.tensor([[0, 4, 2]])
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2)).eval()
    there = onnxbridge.convert(net, inputs=(ids,), verify=False).model
    if exporter == "torch.onnx":  # which tells of modules in this way
        told = [p for p in there.metadata_props if p.key != "onnxbridge.classes"]
        del there.metadata_props[:]
        there.metadata_props.extend(told)
        for node in there.graph.node:
            scope = next(p.value for p in node.metadata_props if p.key == "onnxbridge.scope")
            kind = f"torch.nn.modules.{'sparse.Embedding' if scope == '0' else 'linear.Linear'}"
            del node.metadata_props[:]
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"['', '{scope}', 'node']")
            whole = "torch.nn.modules.container.Sequential"
            node.metadata_props.add(key="pkg.torch.onnx.class_hierarchy", value=f"['{whole}', '{kind}', 'aten.node']")
    made = onnxbridge.convert(there, "pytorch").model
    assert {name: type(m) for name, m in made.named_children()} == {"0": nn.Embedding, "1": nn.Linear}
    assert not calls(made)
    torch.testing.assert_close(made(ids), net(ids))


def test_a_table_may_be_read_from_its_end():
    net = nn.Sequential(Counted(), nn.Linear(3, 2)).eval()
    ids = torch.tensor([[0, -1, 2]])
    torch.testing.assert_close(back(net, ids)(ids), net(ids))


class Kept(nn.Module):
    """Buffers, saved and not, in places where parameters are as well."""

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
    net = Kept()
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


def test_a_constant_of_no_elements(tmp_path):
    back_again = onnxbridge.convert(onnxbridge.convert(Empty(), inputs=(torch.ones(2, 3),), verify=False).model, "pytorch")
    back_again.save(tmp_path / "net.pt2")
    assert torch.equal(torch.export.load(tmp_path / "net.pt2").module()(torch.ones(2, 3)), torch.ones(2, 3))


def test_strings_are_no_tensors():
    nodes = [helper.make_node("Unsqueeze", ["x", "axes"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1, "n"])], [numpy_helper.from_array(np.array([0]), "axes")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    made = onnxbridge.convert(model, "pytorch", verify=False).model
    assert made(np.array(["a", "b"], dtype=object)).tolist() == [["a", "b"]]
