"""Source modules restored as modules with their own forward, wherever their calls are contiguous."""

from __future__ import annotations

import copy
import io
import itertools
import re
import subprocess
import sys

import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import fx, nn

import onnxbridge
from onnxbridge.backends.pytorch.codegen import source_file
from onnxbridge.backends.pytorch.modules import build_submodules


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.reshape(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, 2)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        x = x + torch.where(mask, self.attention(self.norm(x)), 0.0)
        return x + self.mlp(x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layers = nn.ModuleList(Layer(8) for _ in range(3))

    def forward(self, ids):
        x, mask = self.words(ids), (ids > 0)[:, :, None]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Down(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride=2, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


class Up(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(before, after, 2, stride=2), nn.Conv2d(2 * after, after, 3, padding=1)

    def forward(self, x, skip):
        return torch.tanh(self.conv(torch.cat([skip, self.up(x)], 1)))


class UNet(nn.Module):
    """The calls of each list enclose those of the other; only their elements are blocks."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.downs, self.ups = nn.ModuleList([Down(4, 8), Down(8, 16)]), nn.ModuleList([Up(16, 8), Up(8, 4)])

    def forward(self, x):
        skips = [self.stem(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return x


class Twice(nn.Module):
    """A module called three times, in sequence and in parallel."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = Down(4, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        return self.head(self.layer(self.layer(x))), self.head(self.layer(-x))


class WithChoice(nn.Module):
    """A branch inside a module, and calls beside the branch."""

    def __init__(self):
        super().__init__()
        self.layer = Choice()

    def forward(self, x):
        return torch.relu(self.layer(x * 2))


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: y * 2 + 1, lambda y: y - 3, (self.first(x),)) + self.second(x)


class Cached(nn.Module):
    """Blocks with several results."""

    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(Step() for _ in range(2))

    def forward(self, x, a, b):
        x, a = self.steps[0](x, a)
        x, b = self.steps[1](x, b)
        return x, a, b


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, past):
        keys = torch.cat([past, self.key(x)], 1)
        return self.out(x + keys.mean(1, keepdim=True)), keys


CASES = {
    "encoder": (Encoder, (torch.arange(10).reshape(2, 5),), {"ids": {0: "batch", 1: "length"}}),
    "unet": (UNet, (torch.randn(2, 3, 8, 8),), {"x": {0: "batch"}}),
    "twice": (Twice, (torch.randn(2, 4, 8, 8),), {"x": {0: "batch"}}),
    "chosen": (WithChoice, (torch.randn(2, 3),), {"x": {0: "batch"}}),
    "cached": (Cached, (torch.randn(2, 1, 4), torch.randn(2, 3, 4), torch.randn(2, 3, 4)), None),
}


def flat(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.fixture(scope="module", params=CASES)
def round_trip(request, tmp_path_factory):
    """A module, its inputs, and the module restored from its ONNX file."""
    torch.manual_seed(0)
    kind, inputs, dynamic = CASES[request.param]
    module, path = kind().eval(), tmp_path_factory.mktemp("round_trip") / "net.onnx"
    onnxbridge.convert(module, inputs=inputs, dynamic=dynamic, verify=False, output=path)
    return request.param, module, inputs, onnxbridge.convert(path, "pytorch", emit="source").model


def blocks(module):
    """The class names of modules with a graph, by path."""
    return {path: type(m).__name__ for path, m in module.named_modules() if isinstance(m, fx.GraphModule)}


def test_modules_have_their_own_forward(round_trip):
    name, module, inputs, restored = round_trip
    layers = {f"layers.{i}": "Layer" for i in range(3)} | {f"layers.{i}.attention": "Attention" for i in range(3)}
    wanted = {
        "encoder": {"": "Encoder", **layers},
        "unet": {"": "UNet", "downs.0": "Down", "downs.1": "Down", "ups.0": "Up", "ups.1": "Up"},
        "twice": {"": "Twice", "layer": "Down"}, "chosen": {"": "WithChoice", "layer": "Choice"},
        "cached": {"": "Cached", "steps.0": "Step", "steps.1": "Step"},
    }[name]  # fmt: skip
    found = {path: kind for path, kind in blocks(restored).items() if "body" not in path}
    assert found == wanted
    assert set(restored.state_dict()) == set(module.state_dict())
    restored.load_state_dict(module.state_dict())
    for a, b in zip(flat(restored(*inputs)), flat(module(*inputs)), strict=True):
        torch.testing.assert_close(a, b)


def test_a_block_computes_what_the_source_module_does(round_trip):
    """Each block is called on the inputs of the source's module of the same path."""
    _, module, inputs, restored = round_trip
    seen = {}
    for path in blocks(restored):
        if path and "body" not in path:

            def store(initializers, inputs_, result, path=path):
                seen[path] = inputs_, result

            module.get_submodule(path).register_forward_hook(store)
    module(*inputs)
    assert seen
    for path, (inputs_, result) in seen.items():
        for a, b in zip(flat(restored.get_submodule(path)(*inputs_)), flat(result), strict=True):
            torch.testing.assert_close(a, b)


def test_hooks_freezing_copying_and_pickling(round_trip):
    _, _, inputs, restored = round_trip
    path = next(p for p in blocks(restored) if p and "body" not in p)
    whole = flat(restored(*inputs))
    stored = io.BytesIO()
    torch.save(restored, stored)
    stored.seek(0)
    for other in (copy.deepcopy(restored), torch.load(stored, weights_only=False)):
        assert blocks(other) == blocks(restored)
        assert all(torch.equal(a, b) for a, b in zip(flat(other(*inputs)), whole, strict=True))
        other.get_submodule(path).requires_grad_(False)
        assert {n for n, p in other.named_parameters() if not p.requires_grad} == {
            n for n, _ in other.named_parameters() if n.startswith(f"{path}.")
        }
        times = []

        def count(initializers, inputs_, result, times=times):
            times.append(initializers)

        other.get_submodule(path).register_forward_hook(count)
        other(*inputs)
        assert len(times) == (3 if path == "layer" and "Down" in blocks(restored).values() else 1)
    assert all(p.requires_grad for p in restored.parameters())


def test_it_exports(round_trip):
    _, _, inputs, restored = round_trip
    program = torch.export.export(restored, inputs, strict=False)
    for a, b in zip(flat(program.module()(*inputs)), flat(restored(*inputs)), strict=True):
        torch.testing.assert_close(a, b)


def test_similar_blocks_share_one_class(round_trip, tmp_path):
    name, _, inputs, restored = round_trip
    code, _ = source_file.save(restored, tmp_path / "net.py")
    text = code.read_text()
    classes = re.findall(r"^class (\w+)\(nn.Module\):", text, re.MULTILINE)
    assert classes == {
        "encoder": ["Attention", "Layer", "Encoder"], "unet": ["Down", "Up", "UNet"], "twice": ["Down", "Twice"],
        "chosen": ["Choice", "WithChoice"], "cached": ["Step", "Cached"],
    }[name]  # fmt: skip
    for a, b in zip(flat(source_file.loaded(restored)(*inputs)), flat(restored(*inputs)), strict=True):
        torch.testing.assert_close(a, b)
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--check", code]
    assert subprocess.run(ruff, capture_output=True).returncode == 0
    lines = {
        "encoder": "        for layer in self.layers:\n            x = layer(x, y)\n        return x\n",
        "unet": "        self.ups = nn.ModuleList([Up(16, 8), Up(8, 4)])\n", "twice": "self.layer(self.layer(x))",
        "chosen": "@staticmethod", "cached": "self.steps = nn.ModuleList(Step() for _ in range(2))",
    }  # fmt: skip
    assert lines[name] in text


def test_sizes_come_from_the_blocks_own_input(round_trip):
    name, _, _, restored = round_trip
    if name == "encoder":
        assert [n.target for n in restored.layers[0].attention.graph.nodes if n.op == "placeholder"] == ["x"]
        assert {n.name for n in restored.layers[0].attention.graph.nodes if n.target == "size"} == {"batch", "length"}


class ReservedNames(nn.Module):
    """Its members have names that an fx module itself has."""

    def __init__(self):
        super().__init__()
        self.code, self.graph = nn.Parameter(torch.rand(4)), nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.graph(x) * self.code)


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.meta, self.notes = ReservedNames(), nn.ModuleList([ReservedNames(), ReservedNames()])

    def forward(self, x):
        for note in self.notes:
            x = note(x)
        return self.meta(torch.relu(x))


def test_members_with_reserved_names(tmp_path):
    module, x = Holder().eval(), torch.randn(3, 4)
    restored = onnxbridge.convert(module, "pytorch", inputs=(x,), emit="source").model
    torch.testing.assert_close(restored(x), module(x))
    torch.testing.assert_close(source_file.loaded(restored)(x), module(x))


# ONNX files whose nodes are named after modules


def model_of_nodes(nodes, weights=(), width=4):
    """A model of nodes given as (name, operator, inputs, output)."""
    made = [helper.make_node(kind, inputs_, [out], name=name) for name, kind, inputs_, out in nodes]
    value = helper.make_tensor_value_info
    initializers = [numpy_helper.from_array(torch.randn(width, width).numpy(), name) for name in weights]
    graph = helper.make_graph(
        made, "g", [value("x", TensorProto.FLOAT, ["N", width])], [value("y", TensorProto.FLOAT, None)], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name="pytorch")


def test_interrupted_calls_are_no_block():
    """The second half of m depends on n, which depends on the first half of m."""
    nodes = [
        ("/m/MatMul", "MatMul", ["x", "m.w"], "a"), ("/n/MatMul", "MatMul", ["a", "n.w"], "b"),
        ("/m/MatMul_1", "MatMul", ["b", "m.v"], "c"), ("/m/Add", "Add", ["c", "a"], "y"),
    ]  # fmt: skip
    module = onnxbridge.convert(model_of_nodes(nodes, ["m.w", "n.w", "m.v"]), "pytorch").model
    assert "m" not in blocks(module)


def test_interdependent_modules_are_not_both_blocks():
    """Each is contiguous without the other: a feeds b and c feeds d, where a and d are in m, b and c in n."""
    nodes = [
        ("/m/MatMul", "MatMul", ["x", "m.w"], "a"), ("/n/MatMul", "MatMul", ["x", "n.w"], "c"),
        ("/n/MatMul_1", "MatMul", ["a", "n.v"], "b"), ("/m/MatMul_1", "MatMul", ["c", "m.v"], "d"),
        ("/Add", "Add", ["b", "d"], "y"),
    ]  # fmt: skip
    model = model_of_nodes([*nodes], ["m.w", "n.w", "m.v", "n.v"])
    assert len(set(blocks(onnxbridge.convert(model, "pytorch").model)) & {"m", "n"}) == 1


def test_lists_with_repeated_names_are_restored():
    """As torch.onnx's TorchScript exporter names nodes: by the list, then by the element with the list."""
    nodes = [
        ("/body/body.0/lin/MatMul", "MatMul", ["x", "onnx::MatMul_5"], "a"), ("/body/body.0/act/Relu", "Relu", ["a"], "b"),
        ("/body/body.1/lin/MatMul", "MatMul", ["b", "onnx::MatMul_6"], "c"), ("/body/body.1/act/Relu", "Relu", ["c"], "y"),
    ]  # fmt: skip
    module = onnxbridge.convert(model_of_nodes(nodes, ["onnx::MatMul_5", "onnx::MatMul_6"]), "pytorch").model
    assert type(module.body) is nn.Sequential and blocks(module) == {"": "G", "body.0": "Body", "body.1": "Body"}
    assert [type(m.act) for m in module.body] == [nn.ReLU, nn.ReLU]


@pytest.mark.parametrize("seed", range(8))
def test_random_scopes(seed):
    """Operators with random scopes: whichever become blocks, the outputs are the same."""
    generator = torch.Generator().manual_seed(seed)
    scopes = ["", "/a", "/a/b", "/a/c", "/d", "/d/d.0", "/d/d.1", "/e"]
    values, nodes, weights = ["x"], [], []
    for i in range(24):
        scope = scopes[int(torch.randint(len(scopes), (), generator=generator))]
        first, second = (values[-1 - int(torch.randint(min(len(values), 4), (), generator=generator))] for _ in range(2))
        kind = ["MatMul", "Tanh", "Add", "Sub"][int(torch.randint(4, (), generator=generator))]
        weight = f"{scope.strip('/').replace('/', '.')}.w{i}".strip(".")
        weights += [weight] if kind == "MatMul" else []
        inputs_ = {"MatMul": [first, weight], "Tanh": [first]}.get(kind, [first, second])
        nodes.append((f"{scope}/{kind}_{i}", kind, inputs_, f"v{i}"))
        values.append(f"v{i}")
    used = set(itertools.chain.from_iterable(n[2] for n in nodes))
    ends = [v for v in values[1:] if v not in used]
    nodes.append(("/Sum", "Sum", ends, "y"))
    conversion = onnxbridge.convert(model_of_nodes(nodes, weights), "pytorch", emit="source")
    assert conversion.report.agrees
    torch.testing.assert_close(source_file.loaded(conversion.model)(torch.ones(2, 4)), conversion.model(torch.ones(2, 4)))


class Table(nn.Module):
    """Creates as many rows as its argument says, and has no input of that size."""

    def forward(self, count):
        return torch.ones(count, 3).cumsum(0) / 10


class Between(nn.Module):
    """A mask of constants, several of which have the same name."""

    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        steps = torch.arange(3)
        return torch.where((steps >= self.low) & (steps <= self.high), self.linear(x), 0.5) + self.linear(x)


class WithTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Table()
        self.layers = nn.ModuleList([Between(0, 1), Between(1, 2), Between(1, 1)])

    def forward(self, x):
        x = x + self.table(x.shape[0])
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_block_of_sizes_and_constants_of_the_same_name(tmp_path):
    net = WithTable().eval()
    onnxbridge.convert(net, inputs=(torch.randn(4, 3),), dynamic={"x": {0: "rows"}}, verify=False, output=tmp_path / "net.onnx")
    made = onnxbridge.convert(tmp_path / "net.onnx", "pytorch", output=tmp_path / "net.pt2").model
    x = torch.randn(6, 3)
    torch.testing.assert_close(made(x), net(x))
    torch.testing.assert_close(torch.export.load(tmp_path / "net.pt2").module()(x), net(x))


def test_a_module_stays_flat_if_its_blocks_cannot_be_built(tmp_path, monkeypatch):
    def refuse(*_):
        raise build_submodules.MissingValue("x")

    monkeypatch.setattr(build_submodules, "build_submodules", refuse)
    net = WithTable().eval()
    exported = onnxbridge.convert(net, inputs=(torch.randn(4, 3),), dynamic={"x": {0: "rows"}}, verify=False).model
    made = onnxbridge.convert(exported, "pytorch", output=tmp_path / "net.pt2").model
    x = torch.randn(6, 3)
    torch.testing.assert_close(made(x), net(x))
    assert onnxbridge.convert(exported, "pytorch", output=tmp_path / "net.py").report.passed
