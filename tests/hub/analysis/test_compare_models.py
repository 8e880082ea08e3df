"""`diff` on real pairs: one known change is made to a model, and exactly that has to be found."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxbridge

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
DENSENET, INCEPTION, RESNET = (LIGHT / f"light_{name}.onnx" for name in ("densenet121", "inception_v1", "resnet50"))


def renamed(model):
    """The same model; nodes, inner values and weights have other names."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    kept = {v.name for v in (*made.graph.input, *made.graph.output)} - {t.name for t in made.graph.initializer}
    names = {}

    def new(name):
        return name if not name or name in kept else names.setdefault(name, f"v{len(names)}")

    for i, node in enumerate(made.graph.node):
        node.name = f"n{i}"
        node.input[:], node.output[:] = [new(n) for n in node.input], [new(n) for n in node.output]
    for item in (*made.graph.initializer, *made.graph.value_info, *made.graph.input):
        item.name = new(item.name)
    return made


def node_of(model, op, index=0):
    return [n for n in model.graph.node if n.op_type == op][index]


def with_insertion(model, op, index, position=None):
    """The model with a new node of one input before the index-th node of an operator; all names are numbered anew."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    at = list(made.graph.node).index(node_of(made, op, index))
    reader = made.graph.node[at]
    made.graph.node.insert(at, helper.make_node("Abs", [reader.input[0]], ["inserted"]))
    made.graph.node[at + 1].input[0] = "inserted"
    return renamed(made)


def only(found, *fields):
    """Whether nothing differs beside these fields, names and metadata."""
    every = (
        "interface", "opsets", "operators", "added", "removed", "replaced", "changed", "moved", "weights_changed",
        "weights_added", "weights_removed", "shapes", "functions_added", "functions_removed",
    )  # fmt: skip
    assert {f for f in every if getattr(found, f)} == set(fields), str(found)
    return True


def test_a_model_is_identical_to_itself():
    found = onnxbridge.diff(RESNET, onnx.load(RESNET))
    assert found.identical and found.equal and str(found).startswith("IDENTICAL")
    assert sum(found.matched.values()) == found.first.nodes > 170


@pytest.mark.parametrize("path", [DENSENET, INCEPTION, RESNET], ids=lambda p: p.stem)
def test_a_model_with_other_names_is_equal(path):
    model = onnx.load(path)
    found = onnxbridge.diff(model, renamed(model))
    assert found.equal and not found.identical and only(found)
    assert len(found.renamed_nodes) == found.first.nodes


@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("path", [DENSENET, INCEPTION, RESNET], ids=lambda p: p.stem)
def test_one_attribute(path, rename):
    model, other = onnx.load(path), onnx.load(path)
    node = node_of(other, "MaxPool", 1 if path == INCEPTION else 0)
    next(a for a in node.attribute if a.name == "strides").ints[:] = [1, 1]
    found = onnxbridge.diff(model, renamed(other) if rename else other)
    assert only(found, "changed")
    (change,) = found.changed
    assert change.node.op == "MaxPool" and [(s.name, s.old, s.new) for s in change.settings] == [("strides", (2, 2), (1, 1))]
    assert "strides [2, 2] -> [1, 1]" in str(found)


@pytest.fixture
def weighted(tmp_path):
    """A network of twelve equal layers whose weights differ, as a function of a change to it."""

    def make(name, change=lambda nodes, weights: None, opset=17):
        rng = np.random.default_rng(0)
        weights = {f"w{i}": rng.standard_normal((8, 8)).astype(np.float32) for i in range(12)}
        nodes = []
        for i in range(12):
            nodes.append(helper.make_node("MatMul", [f"a{i}", f"w{i}"], [f"p{i}"], name=f"product{i}"))
            nodes.append(helper.make_node("Relu", [f"p{i}"], [f"a{i + 1}"], name=f"relu{i}"))
        change(nodes, weights)
        x, y = (helper.make_tensor_value_info(v, TensorProto.FLOAT, ["N", 8]) for v in ("a0", "a12"))
        tensors = [numpy_helper.from_array(a, n) for n, a in weights.items()]
        model = helper.make_model(
            helper.make_graph(nodes, "g", [x], [y], tensors), opset_imports=[helper.make_opsetid("", opset)], ir_version=8
        )
        onnx.save(model, tmp_path / f"{name}.onnx")
        return model

    return make


@pytest.mark.parametrize("rename", [False, True])
def test_one_scaled_weight(weighted, rename):
    def scale(nodes, weights):
        weights["w5"] = weights["w5"] * np.float32(1.1)

    model, other = weighted("a"), weighted("b", scale)
    found = onnxbridge.diff(model, renamed(other) if rename else other)
    assert only(found, "weights_changed")
    (change,) = found.weights_changed
    assert change.name == "w5" and bool(change.new_name) == rename and change.distance.different == change.distance.elements == 64
    assert change.distance.relative == pytest.approx(0.1, rel=1e-5)
    assert len(found.renamed_weights) == (11 if rename else 0)


def test_all_weights_trained_further_and_renamed(weighted):
    def train(nodes, weights):
        for name in weights:
            weights[name] = weights[name] + np.float32(0.01)

    found = onnxbridge.diff(weighted("a"), renamed(weighted("b", train)))
    assert only(found, "weights_changed") and len(found.weights_changed) == 12
    assert all(c.distance.max_abs == pytest.approx(0.01, rel=1e-4) for c in found.weights_changed)


def test_swapped_weights_are_moves(weighted):
    def swap(nodes, weights):
        nodes[4].input[1], nodes[6].input[1] = nodes[6].input[1], nodes[4].input[1]

    found = onnxbridge.diff(weighted("a"), weighted("b", swap))
    assert only(found, "moved")
    assert [(m.node.name, m.input, m.old, m.new) for m in found.moved] == [
        ("product2", "B", "w2", "w3"), ("product3", "B", "w3", "w2")
    ]  # fmt: skip


def test_a_node_that_reads_another_value_is_moved(weighted):
    def skip(nodes, weights):
        nodes[6].input[0] = "a2"

    found = onnxbridge.diff(weighted("a"), weighted("b", skip))
    assert only(found, "moved")
    assert [(m.node.name, m.input, m.old, m.new) for m in found.moved] == [("product3", "A", "a3", "a2")]


@pytest.mark.parametrize(("path", "op", "index"), [(DENSENET, "Relu", 60), (INCEPTION, "Conv", 20), (RESNET, "Conv", 30)])
def test_one_inserted_node_in_a_renamed_model(path, op, index):
    model = onnx.load(path)
    found = onnxbridge.diff(model, with_insertion(model, op, index))
    assert only(found, "operators", "added")
    assert [n.op for n in found.added] == ["Abs"] and found.operators == {"Abs": (0, 1)}


def test_nodes_between_two_insertions_are_matched(weighted):
    def insert(nodes, weights):
        for i in (20, 4):
            nodes.insert(i, helper.make_node("Abs", [nodes[i].input[0]], [f"abs{i}"]))
            nodes[i + 1].input[0] = f"abs{i}"

    found = onnxbridge.diff(weighted("a"), renamed(weighted("b", insert)))
    assert only(found, "operators", "added") and len(found.added) == 2
    assert sum(found.matched.values()) == 24


def test_a_removed_node(weighted):
    def remove(nodes, weights):
        del nodes[7]
        nodes[7].input[0] = "p3"

    found = onnxbridge.diff(weighted("a"), renamed(weighted("b", remove)))
    assert only(found, "operators", "removed") and [n.name for n in found.removed] == ["relu3"]


def test_a_replaced_node(weighted):
    def replace(nodes, weights):
        nodes[7].op_type = "Abs"

    found = onnxbridge.diff(weighted("a"), renamed(weighted("b", replace)))
    assert only(found, "operators", "replaced")
    assert [(a.name, a.op, b.op) for a, b in found.replaced] == [("relu3", "Relu", "Abs")]
    assert "Relu relu3 -> Abs n7" in str(found)


@pytest.mark.parametrize("rename", [False, True])
def test_float16(weighted, rename):
    """As converters to float16 write it: weights in float16, casts after the inputs and before the outputs."""

    def half(nodes, weights):
        for name in weights:
            weights[name] = weights[name].astype(np.float16)
        nodes[0].input[0], nodes[-1].output[0] = "half", "result"
        nodes.insert(0, helper.make_node("Cast", ["a0"], ["half"], to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Cast", ["result"], ["a12"], to=TensorProto.FLOAT))

    other = weighted("b", half)
    found = onnxbridge.diff(weighted("a"), renamed(other) if rename else other)
    assert only(found, "operators", "added", "weights_changed")
    assert len(found.weights_changed) == 12 and [n.op for n in found.added] == ["Cast", "Cast"]
    assert all(c.new.startswith("float16") and 0 < c.distance.relative < 2**-11 for c in found.weights_changed)


def test_opset_conversion():
    """From 17 to 18, the axes of a reduction become an input."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 8] x) => (float[N, 1] y) {
        h = Softmax (x)
        y = ReduceMean <axes = [1]> (h)
    }"""
    model = parser.parse_model(text)
    found = onnxbridge.diff(model, onnxbridge.opset.convert(model, to=18))
    assert only(found, "opsets") and found.opsets == {"ai.onnx": (17, 18)}
    assert onnxbridge.diff(model, onnxbridge.opset.convert(model, to=18), as_hub=True).equal


def test_interface():
    text = '<ir_version: 8, opset_import: ["" : 17]> g ({}) => (float[N, 8] y) {{ y = Relu ({}) }}'
    model = parser.parse_model(text.format("float[N, 8] x", "x"))
    for inputs, reads, old, new in (
        ("float[N, 8] image", "image", "float32[N, 8]", "float32[N, 8]"),
        ("float[4, 8] x", "x", "float32[N, 8]", "float32[4, 8]"),
        ("float16[N, 8] x", "x", "float32[N, 8]", "float16[N, 8]"),
    ):
        found = onnxbridge.diff(model, parser.parse_model(text.format(inputs, reads)))
        assert [(c.kind, c.old, c.new) for c in found.interface] == [("input", old, new)] and not found.equal
    found = onnxbridge.diff(model, parser.parse_model(text.format("float[N, 8] x, float[N] mask", "x")))
    assert [(c.name, c.old, c.new) for c in found.interface] == [("mask", None, "float32[N]")]


BRANCHES = """<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[2] x) => (float[2] y) {{
    y = If (c) <then_branch = t () => (float[2] a) {{ h = Relu (x) a = LeakyRelu <alpha = {alpha}> (h) }},
                else_branch = e () => (float[2] b) {{ b = {op} (x) }}>
}}"""


def test_subgraphs():
    model = parser.parse_model(BRANCHES.format(alpha=0.1, op="Abs"))
    found = onnxbridge.diff(model, parser.parse_model(BRANCHES.format(alpha=0.2, op="Abs")))
    assert only(found, "changed") and found.changed[0].node.scope == "y.then_branch"
    found = onnxbridge.diff(model, parser.parse_model(BRANCHES.format(alpha=0.1, op="Neg")))
    assert only(found, "operators", "added", "removed")
    assert found.added[0].scope == found.removed[0].scope == "y.else_branch"


FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[2] x) => (float[2] y) {{ y = acme.Twice (x) }}
<opset_import: ["" : 17], domain: "acme"> Twice (a) => (b) {{ h = {op} (a) b = Add (h, h) }}"""


def test_local_functions():
    model = parser.parse_model(FUNCTION.format(op="Abs"))
    assert onnxbridge.diff(model, model).identical
    found = onnxbridge.diff(model, parser.parse_model(FUNCTION.format(op="Neg")))
    assert only(found, "operators", "replaced") and found.replaced[0][0].scope == "acme::Twice()"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Add (x, x) }'
    found = onnxbridge.diff(model, parser.parse_model(text))
    assert found.functions_removed == ("acme::Twice",)


def test_constants_are_compared_wherever_they_are_stored():
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[3, 2] y)'
    model = parser.parse_model(head + " { s = Constant <value_ints = [3, 2]> () y = Reshape (x, s) }")
    other = parser.parse_model(head + " <int64[2] shape = {3, 2}> { y = Reshape (x, shape) }")
    assert onnxbridge.diff(model, other).equal
    other = parser.parse_model(head + " <int64[2] shape = {6, 1}> { y = Reshape (x, shape) }")
    (change,) = onnxbridge.diff(model, other).changed
    assert [(s.name, s.old, s.new) for s in change.settings] == [("shape", (3, 2), (6, 1))]


def test_operands_of_commutative_operators_may_be_swapped():
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] a, float[2] b) => (float[2] y) {{ y = {} }}'
    sums = [parser.parse_model(text.format(t)) for t in ("Add (a, b)", "Add (b, a)", "Sub (a, b)", "Sub (b, a)")]
    assert onnxbridge.diff(sums[0], sums[1]).equal
    assert len(onnxbridge.diff(sums[2], sums[3]).moved) == 2


def test_the_models_are_not_changed(network):
    before = ir.to_proto(network).SerializeToString(deterministic=True)
    onnxbridge.diff(network, network)
    assert ir.to_proto(network).SerializeToString(deterministic=True) == before


@pytest.mark.slow
def test_a_large_model_takes_seconds(tmp_path):
    """3,000 nodes in equal blocks, renamed, with a node inserted, an attribute and a weight changed."""
    rng = np.random.default_rng(0)
    nodes, weights, value = [], {}, "x"
    for i in range(600):
        weights[f"w{i}"] = rng.standard_normal((16, 16)).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", [value, f"w{i}"], [f"m{i}"]),
            helper.make_node("LeakyRelu", [f"m{i}"], [f"r{i}"], alpha=0.1),
            helper.make_node("Softmax", [f"r{i}"], [f"s{i}"], axis=-1),
            helper.make_node("Mul", [f"r{i}", f"s{i}"], [f"g{i}"]),
            helper.make_node("Add", [f"g{i}", value], [f"o{i}"]),
        ]
        value = f"o{i}"

    def model():
        ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, [2, 16]) for v in ("x", value)]
        graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(a, n) for n, a in weights.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    before = model()
    weights["w300"] = weights["w300"] * np.float32(1.1)
    nodes[2500 + 1].attribute[0].f = 0.2
    after = with_insertion(model(), "Softmax", 50)
    start = time.process_time()
    found = onnxbridge.diff(before, after)
    assert time.process_time() - start < 20
    assert only(found, "operators", "added", "changed", "weights_changed")
    assert len(found.added) == len(found.changed) == len(found.weights_changed) == 1


def test_pytorch_against_what_it_was_converted_to(tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    x = torch.ones(2, 4)
    onnxbridge.convert(net, inputs=(x,), output=tmp_path / "net.onnx", verify=False)
    found = onnxbridge.diff(net, tmp_path / "net.onnx", inputs=(x,))
    assert found.equal and found.first.read_as == "hub"
    with torch.no_grad():
        net[2].weight *= 1.1
    found = onnxbridge.diff(net, tmp_path / "net.onnx", inputs=(x,))
    assert [c.name for c in found.weights_changed] == ["2.weight"]


def test_command(cli, weighted, tmp_path):
    def scale(nodes, weights):
        weights["w5"] = weights["w5"] * np.float32(1.1)

    weighted("a"), weighted("b", scale)
    ran = cli("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert ran.code == 1 and ran.err == "" and ran.out.startswith("DIFFERENT  a.onnx (ONNX, opset 17)")
    assert "w5 float32[8, 8]: max abs" in ran.out and "10% of the largest" in ran.out
    assert cli("diff", tmp_path / "a.onnx", tmp_path / "a.onnx").code == 0


def test_long_lists_are_cut(cli, weighted, tmp_path):
    def train(nodes, weights):
        for name in weights:
            weights[name] = weights[name] + np.float32(0.01)

    weighted("a"), weighted("b", train)
    out = cli("diff", tmp_path / "a.onnx", tmp_path / "b.onnx").out
    assert "and 2 more; -v shows them" in out and out.count("max abs") == 10
    assert cli("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "-v").out.count("max abs") == 12


def test_json(cli, weighted, tmp_path):
    def scale(nodes, weights):
        weights["w5"] = weights["w5"] * np.float32(1.1)

    weighted("a"), weighted("b", scale)
    ran = cli("diff", tmp_path / "a.onnx", tmp_path / "b.onnx", "--json", "--report", tmp_path / "r.json")
    found = json.loads(ran.out)
    assert found == json.loads((tmp_path / "r.json").read_text()) and found["exit_code"] == 1 and found["error"] is None
    assert not found["equal"] and found["weights_changed"][0]["name"] == "w5" and found["matched"] == {"structure": 23, "name": 1}


def test_bad_input(cli, weighted, tmp_path, monkeypatch):
    weighted("a")
    monkeypatch.chdir(tmp_path)
    ran = cli("diff", "a.onnx", "nowhere.onnx")
    assert ran.code == 2 and "nowhere.onnx: no such file" in ran.err and ran.out == ""
    Path("broken.onnx").write_bytes(Path("a.onnx").read_bytes()[:-40])
    ran = cli("diff", "a.onnx", "broken.onnx")
    assert ran.code == 4 and "broken.onnx" in ran.err
    assert cli("diff", "a.onnx").code == 2
    assert sorted(os.listdir()) == ["a.onnx", "broken.onnx"]


def test_implied_attributes_of_convolutions_are_no_difference():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 5, 5] x) => (float[1, 1, 3, 3] y)
        <float[1, 1, 3, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{ y = Conv {} (x, w) }}"""
    model = parser.parse_model(text.format(""))
    written = "<kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1>"
    assert onnxbridge.diff(model, parser.parse_model(text.format(written))).equal
    assert not onnxbridge.diff(model, parser.parse_model(text.format("<strides = [2, 2]>"))).equal


@pytest.mark.slow
def test_torch_onnx_against_our_conversion(tmp_path):
    """The same module, exported by torch.onnx and by us: Gelu in five operators and in one, other names."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GELU(), torch.nn.Conv2d(8, 4, 3), torch.nn.ReLU()).eval()
    x = torch.ones(1, 3, 8, 8)
    torch.onnx.export(net, (x,), str(tmp_path / "torch.onnx"), dynamo=False, opset_version=18, input_names=["input"])
    onnxbridge.convert(net, inputs=(x,), output=tmp_path / "ours.onnx", verify=False)
    written = onnxbridge.diff(tmp_path / "torch.onnx", tmp_path / "ours.onnx")
    assert written.operators["Gelu"] == (0, 1) and not written.changed and not written.weights_changed
    assert only(onnxbridge.diff(tmp_path / "torch.onnx", tmp_path / "ours.onnx", as_hub=True), "interface")


def test_readers_of_a_removed_node_are_not_moved():
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[3, 2] y)'
    model = parser.parse_model(head + " <int64[1] a = {3}, int64[1] b = {2}> { s = Concat <axis = 0> (a, b) y = Reshape (x, s) }")
    other = parser.parse_model(head + " <int64[2] s = {3, 2}> { y = Reshape (x, s) }")
    found = onnxbridge.diff(model, other)
    assert only(found, "operators", "removed") and [n.op for n in found.removed] == ["Concat"]


def test_weights_are_not_copied_as_a_whole(tmp_path):
    import tracemalloc

    weight = np.random.default_rng(0).standard_normal((4000, 4000)).astype(np.float32)  # 64 MB
    for name, factor in (("a", 1), ("b", 1.1)):
        ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, ["N", 4000]) for v in "xy"]
        tensor = numpy_helper.from_array(weight * np.float32(factor), "w")
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [tensor])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / f"{name}.onnx")
    tracemalloc.start()
    try:
        found = onnxbridge.diff(tmp_path / "a.onnx", tmp_path / "b.onnx")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found.weights_changed) == 1 and peak < 60 << 20


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "int4", "uint8", "bool", "double", "complex64", "string"])
def test_weights_of_any_dtype(dtype, tmp_path):
    kind = TensorProto.DataType.Value(dtype.upper())

    def model(values):
        tensor = helper.make_tensor("w", kind, [2, 3], values)
        y = helper.make_tensor_value_info("y", kind, [2, 3])
        graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [y], [tensor])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)

    values = [b"a", b"b", b"c", b"d", b"e", b"f"] if dtype == "string" else [0, 1, 1, 0, 1, 1]
    other = [b"a", b"b", b"c", b"d", b"e", b"g"] if dtype == "string" else [0, 1, 1, 0, 1, 0]
    assert onnxbridge.diff(model(values), model(values)).identical
    (change,) = onnxbridge.diff(model(values), model(other)).weights_changed
    assert change.name == "w" and (change.distance is None if dtype == "string" else change.distance.different == 1)


def test_a_weight_that_is_an_output():
    text = '<ir_version: 8, opset_import: ["" : 17]> g () => (float[3] w) <float[3] w = {1, 2, %s}> { }'
    model = parser.parse_model(text % 3)
    assert onnxbridge.diff(model, model).identical
    assert only(onnxbridge.diff(model, parser.parse_model(text % 4)), "weights_changed")


def test_small_constants_of_any_dtype(tmp_path):
    def model(value, kind):
        tensor = helper.make_tensor("c", kind, [], [value])
        x, y = (helper.make_tensor_value_info(v, kind, [2]) for v in "xy")
        graph = helper.make_graph([helper.make_node("Add", ["x", "c"], ["y"])], "g", [x], [y], [tensor])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)

    for kind in (TensorProto.BFLOAT16, TensorProto.COMPLEX64, TensorProto.INT32, TensorProto.DOUBLE):
        found = onnxbridge.diff(model(1, kind), model(2, kind))
        assert only(found, "changed") and [s.name for s in found.changed[0].settings] == ["B"]
        json.dumps(found.as_dict())


@pytest.mark.slow
def test_sizes_of_one_model_serve_the_other(tmp_path):
    """A module needs sizes: those given, whose names the file does not have, or those of the file."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()).eval()
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 4] {0}) => (float[2, 4] y) {{ y = Relu ({0}) }}'
    onnx.save(parser.parse_model(text.format("input")), tmp_path / "same.onnx")
    onnx.save(parser.parse_model(text.format("x")), tmp_path / "other.onnx")
    assert len(onnxbridge.diff(net, tmp_path / "same.onnx").removed) == 1
    assert len(onnxbridge.diff(net, tmp_path / "other.onnx", inputs="input:float32[2,4]").removed) == 1
    assert len(onnxbridge.diff(tmp_path / "other.onnx", net, inputs="input:float32[2,4]").added) == 1
    with pytest.raises(onnxbridge.UsageError, match="no input 'z'"):
        onnxbridge.diff(tmp_path / "same.onnx", tmp_path / "other.onnx", inputs="z:float32[2,4]")
