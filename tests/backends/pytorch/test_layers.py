"""torch.nn layers restored from ONNX under their original names."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxbridge
from onnxbridge.backends.pytorch.codegen import source_file


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.norm = nn.GroupNorm(3, 6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.norm(self.up(self.stem(x))).mean((2, 3)))


class Text(nn.Module):
    """Tied weights, a product with a plain parameter, attention, and layer norm."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu") for _ in range(2))
        self.mix = nn.Parameter(torch.randn(8, 8))
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(torch.tanh(x @ self.mix))


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4, bias=False)
        self.rnn = nn.RNN(4, 3, num_layers=3, nonlinearity="relu")

    def forward(self, x, h, c):
        y, (last, cell) = self.lstm(x, (h, c))
        z, state = self.rnn(self.gru(y)[0])
        return z, state, last, cell[2:]


class DynamicImage(nn.Module):
    """Layers whose weights have another form in ONNX, and images of dynamic size."""

    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(3, affine=True)
        self.slope, self.slopes = nn.PReLU(), nn.PReLU(3)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear")
        self.rows = nn.GRU(3, 4, num_layers=2, bidirectional=True)

    def forward(self, x):
        y = self.up(self.slopes(self.slope(self.norm(x))))
        return y, self.rows(y.mean(3).permute(2, 0, 1))[0]


def cases():
    ids = torch.arange(14).reshape(2, 7)
    states = torch.randn(4, 2, 5), torch.randn(4, 2, 5)
    return {
        "image": (Image, (torch.randn(2, 3, 16, 16),), {"x": {0: "N"}}),
        "text": (Text, (ids,), None),
        "steps": (Steps, (torch.randn(2, 7, 6), *states), None),
        "dynamic image": (DynamicImage, (torch.randn(2, 3, 6, 8),), {"x": {0: "N"}}),
    }


@pytest.fixture(params=list(cases()))
def round_trip(request, tmp_path):
    torch.manual_seed(0)
    build, inputs, dynamic = cases()[request.param]
    module = build().eval()
    path = tmp_path / "net.onnx"
    onnxbridge.convert(module, inputs=inputs, dynamic=dynamic, verify=False, output=path, fold_batch_norm=False)
    return module, inputs, onnxbridge.convert(path, "pytorch", verify=False).model


def test_the_state_dict_round_trips(round_trip):
    module, inputs, restored = round_trip
    expected, actual = module.state_dict(), restored.state_dict()
    assert set(expected) == set(actual)
    assert all(torch.equal(expected[k], actual[k]) for k in expected)
    other = type(module)().eval()
    restored.load_state_dict(other.state_dict())
    for ours, theirs in zip(flat(restored(*inputs)), flat(other(*inputs)), strict=True):
        torch.testing.assert_close(ours, theirs)


def flat(results):
    return results if isinstance(results, tuple) else (results,)


def test_layers_are_restored(round_trip):
    module, _, restored = round_trip
    kinds = (
        nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d, nn.GroupNorm, nn.Linear, nn.LayerNorm, nn.Embedding, nn.LSTM, nn.GRU,
        nn.RNN, nn.ReLU, nn.InstanceNorm2d, nn.PReLU,
    )  # fmt: skip
    for name, layer in module.named_modules():
        if type(layer) in kinds and "self_attn" not in name:
            found = restored.get_submodule(name)
            assert repr(found) == repr(layer), name


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # torch warns about every exported LSTM
def test_it_exports_and_trains(round_trip, tmp_path):
    _, inputs, restored = round_trip
    program = torch.export.export(restored, inputs)
    torch.testing.assert_close(program.module()(*inputs), restored(*inputs))
    restored.train()
    optimizer = torch.optim.SGD(restored.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = sum((r.square()).mean() for r in flat(restored(*inputs)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(p.grad is not None for p in restored.parameters())
    assert losses[0] > losses[1] > losses[2]


def test_it_compiles(round_trip):
    _, inputs, restored = round_trip
    recurrent = any(isinstance(m, nn.RNNBase) for m in restored.modules())  # torch.compile does not trace these
    compiled = torch.compile(restored, backend="aot_eager", fullgraph=not recurrent)
    with torch.no_grad():
        for ours, theirs in zip(flat(compiled(*inputs)), flat(restored(*inputs)), strict=True):
            torch.testing.assert_close(ours, theirs)


class Branches(nn.Module):
    """Lists called in order, with modules that are absent at inference, and a list that is not called in order."""

    def __init__(self):
        super().__init__()
        within = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Dropout(0.1), nn.Hardsigmoid(), nn.AvgPool2d(3, 1, 1))
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), within)
        self.heads = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(3))
        self.twice = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        x = self.stem(x)
        x = self.heads[0](x) + self.heads[1](x) * self.heads[2](x)
        return self.twice(self.twice(x.mean((2, 3))))


def test_lists_called_in_order_are_sequential(tmp_path):
    torch.manual_seed(0)
    module, x = Branches().eval(), torch.randn(2, 3, 12, 12)
    onnxbridge.convert(module, inputs=(x,), dynamic={"x": {0: "N"}}, verify=False, output=tmp_path / "net.onnx")
    conversion = onnxbridge.convert(tmp_path / "net.onnx", "pytorch", emit="source")
    restored, kinds = conversion.model, (nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.Hardsigmoid)
    assert type(restored.stem) is type(restored.stem[4]) is nn.Sequential and type(restored.stem[1]) is nn.Identity
    assert [type(m) for m in restored.stem.modules() if isinstance(m, kinds)] == [
        nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Conv2d, nn.Hardsigmoid, nn.AvgPool2d
    ]  # fmt: skip
    assert repr(restored.stem[4][3]) == repr(module.stem[4][3])
    assert type(restored.heads) is nn.ModuleList and type(restored.twice) is nn.Sequential
    assert [str(n.target) for n in restored.graph.nodes if n.op == "call_module"][0] == "stem"
    text, _ = source_file.written(restored)
    assert "self.stem = nn.Sequential(\n            nn.Conv2d(3, 4, 3),\n            nn.Identity(),\n" in text
    torch.testing.assert_close(source_file.loaded(restored)(x), module(x))
    assert set(source_file.loaded(restored).state_dict()) == set(restored.state_dict())


def test_tied_weights_are_one_parameter(tmp_path):
    module = Text().eval()
    made = onnxbridge.convert(module, "pytorch", inputs=(torch.arange(14).reshape(2, 7),), verify=False).model
    assert made.words.weight is made.out.weight
    assert made.words.weight.data_ptr() == module.words.weight.data_ptr()


def graph(nodes, weights, inputs, producer=""):
    shapes = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()}
    initializers = [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", list(shapes.values()), [y], initializers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name=producer)


def random_array(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape)


def dense(producer=""):
    nodes = [
        helper.make_node("MatMul", ["x", "dense/kernel:0"], ["a"], name="/net/dense/MatMul"),
        helper.make_node("Add", ["b", "a"], ["c"]),
        helper.make_node("Gemm", ["c", "W"], ["y"], name="last"),
    ]
    return graph(
        nodes, {"dense/kernel:0": random_array(4, 3), "b": random_array(3), "W": random_array(3, 5)}, {"x": ["N", 4]}, producer
    )


def test_products_with_weights_of_any_name_are_linear_layers():
    made = onnxbridge.convert(dense(), "pytorch").model
    assert repr(made.net.dense) == repr(nn.Linear(4, 3))
    assert repr(made.W) == repr(nn.Linear(3, 5, bias=False))
    assert set(made.state_dict()) == {"net.dense.weight", "net.dense.bias", "W.weight"}


def test_a_plain_torch_parameter_stays_one():
    made = onnxbridge.convert(dense("pytorch"), "pytorch").model
    assert made.W.shape == (3, 5) and isinstance(made.W, nn.Parameter)


def test_transposed_torch_onnx_weights_become_layers():
    """Its exporter names a bias but not a transposed weight, and stores the module scopes of an operator."""
    nodes = [
        helper.make_node("MatMul", ["x", "val_3"], ["a"], name="node_linear"),
        helper.make_node("Add", ["a", "blocks.0.q.bias"], ["c"]),
        helper.make_node("Mul", ["c", "val_1"], ["d"]), helper.make_node("MatMul", ["d", "val_4"], ["y"], name="node_linear_1"),
    ]  # fmt: skip
    weights = {"val_3": random_array(4, 3), "blocks.0.q.bias": random_array(3), "val_1": 0.5, "val_4": random_array(3, 2)}
    model = graph(nodes, weights, {"x": ["N", 4]}, "pytorch")
    for node, scopes in ((nodes[0], "['', 'blocks.0', 'blocks.0.q', 'linear']"), (nodes[3], "['', 'out', 'linear_1']")):
        scoped = next(n for n in model.graph.node if n.name == node.name)
        scoped.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    made = onnxbridge.convert(model, "pytorch").model
    assert repr(made.blocks.get_submodule("0").q) == repr(nn.Linear(4, 3))
    assert repr(made.out) == repr(nn.Linear(3, 2, bias=False))
    assert set(dict(made.named_parameters())) == {"blocks.0.q.weight", "blocks.0.q.bias", "out.weight"}


def test_a_weight_shared_by_two_products_stays_one():
    nodes = [helper.make_node("MatMul", ["x", "W"], ["a"]), helper.make_node("MatMul", ["a", "W"], ["y"])]
    made = onnxbridge.convert(graph(nodes, {"W": random_array(3, 3)}, {"x": [2, 3]}), "pytorch").model
    assert len(list(made.parameters())) == 1


@pytest.mark.parametrize("name", ["forward", "x", "a b", "class", "training", "__dict__", "_parameters", "a..b", "è.1"])
def test_any_name_of_a_weight(name):
    node = helper.make_node("Gemm", ["input", name, "b"], ["y"], transB=1)
    made = onnxbridge.convert(graph([node], {name: random_array(3, 4), "b": random_array(3)}, {"input": [2, 4]}), "pytorch")
    assert made.report.passed and len(list(made.model.parameters())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"mode": "bilinear"}, {"mode": "nearest"}, {"mode": "bicubic"}])
def test_dynamic_images_are_upsampled_by_a_layer(options, tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.Upsample(scale_factor=2, **options))
    x = torch.randn(2, 3, 6, 10)
    dynamic = {"input": {0: "N", 2: "H", 3: "W"}}
    onnxbridge.convert(net.eval(), inputs=(x,), dynamic=dynamic, verify=False, output=tmp_path / "net.onnx")
    conversion = onnxbridge.convert(tmp_path / "net.onnx", "pytorch", output=tmp_path / "net.pt2")
    assert [type(m) for m in conversion.model.children()] == [nn.Conv2d, nn.Upsample]
    loaded = torch.export.load(tmp_path / "net.pt2").module()
    for size in ((2, 3, 6, 10), (1, 3, 5, 4)):
        x = torch.randn(size)
        torch.testing.assert_close(loaded(x), net(x))
