"""Samples meet the constants of a model: words, thresholds, compared integers; sizes, divisors and ids are such as it takes."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxbridge
from onnxbridge.errors import VerificationError
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir.values import ROWS, SORTED
from onnxbridge.runtime.verify.samples.random_inputs import samples_for


def model_of(text, opset=24, *weights):
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "ai.onnx.ml" : 3]> {text}')
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in weights)
    return made


def elements(model, name="x", count=3):
    graph = onnx_files.from_proto(model).graph
    return np.concatenate([np.asarray(s[name]).reshape(-1) for s in samples_for(graph, count)])


@pytest.mark.parametrize("path", ["", "h = Unsqueeze(x, a) ", "h = Identity(x) ", "h = Reshape(x, r) "])
def test_strings_that_are_compared_are_drawn(path):
    weights = [("a", np.array([0])), ("r", np.array([4, 1])), ("w", np.array(["yes"], object))]
    text = f"g (string[4] x) => (bool[n] y) {{ {path} y = Equal({'h' if path else 'x'}, w) }}"
    found = elements(model_of(text, 24, *weights))
    assert "yes" in found and any(w.startswith("text") for w in found)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ('StringNormalizer<stopwords=["the", "a"]>(x)', {"the", "a"}),
        ('ai.onnx.ml.LabelEncoder<keys_strings=["red", "blue"], values_int64s=[1, 2]>(x)', {"red", "blue"}),
        ('ai.onnx.ml.OneHotEncoder<cats_strings=["red", "blue"]>(x)', {"red", "blue"}),
        ('RegexFullMatch<pattern="^word$">(x)', {"word"}),
    ],
)
def test_strings_of_attributes_are_drawn(node, words):
    assert words <= set(elements(model_of(f"g (string[8] x) => (float[n] y) {{ y = {node} }}")))


@pytest.mark.parametrize("op", ["Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Max", "Clip"])
def test_numbers_on_both_sides_of_a_threshold_and_equal_to_it_are_drawn(op):
    text = f"g (float[40] x) => (float[n] y) {{ h = Squeeze(x)  y = {op}(h, t) }}"
    found = elements(model_of(text, 24, ("t", np.float32(37.5))))
    assert (found == 37.5).any() and all((abs(found - v) < 0.01).any() for v in (37.43, 37.57, 36.33, 38.67))
    assert np.median(abs(found)) < 2, "other numbers occur too"


def test_integers_next_to_a_threshold_are_drawn():
    text = "g (int64[40] x) => (bool[n] y) { h = Cast<to=1>(x)  y = Greater(h, t) }"
    assert {99, 100, 101} <= set(elements(model_of(text, 24, ("t", np.float32(100)))).tolist())


def test_a_compared_index_stays_within_what_it_indexes():
    text = """g (int64[40] x) => (float[n] y) {
        low = Less(x, z)  moved = Add(x, n)  i = Where(low, moved, x)  h = Unsqueeze(i, z1)  y = Gather(t, h) }"""
    weights = [("z", 0), ("n", 7), ("z1", np.array([0])), ("t", np.zeros(7, np.float32))]
    assert set(elements(model_of(text, 24, *weights)).tolist()) <= set(range(7))


def test_the_splits_of_a_tree_are_drawn_in_their_columns():
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, nodes_falsenodeids=[2, 0, 0],
        nodes_featureids=[1, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_nodeids=[0, 1, 2], nodes_treeids=[0, 0, 0],
        nodes_truenodeids=[1, 0, 0], nodes_values=[250.0, 0.0, 0.0], target_ids=[0, 0], target_nodeids=[1, 2],
        target_treeids=[0, 0], target_weights=[1.0, 2.0],
    )  # fmt: skip
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 3])
    graph = helper.make_graph([node], "g", [given], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 1])])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    sample = samples_for(onnx_files.from_proto(helper.make_model(graph, opset_imports=imports)).graph, 1)[0]["x"]
    column = sample[:, 1]
    assert (column == 250).any() and (abs(column - 249.5) < 0.1).any() and (abs(column - 250.5) < 0.1).any()
    assert (abs(sample[:, 2]) < 9).all()


def test_an_error_at_a_compared_string_is_found(tmp_path):
    text = "g (string[4] x) => (bool[4] y) { y = Equal(x, w) }"
    for name, word in (("right", "yes"), ("wrong", "b'yes'")):
        onnx.save(model_of(text, 24, ("w", np.array([word], object))), tmp_path / f"{name}.onnx")
    assert onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "right.onnx").passed
    assert not onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "wrong.onnx").passed


@pytest.mark.parametrize("wrong", ["GreaterOrEqual(x, t)", "Greater(x, u)"])
def test_an_error_at_a_threshold_is_found(tmp_path, wrong):
    weights = [("t", np.float32(100)), ("u", np.float32(101))]
    for name, node in (("right", "Greater(x, t)"), ("wrong", wrong)):
        onnx.save(model_of(f"g (float[40] x) => (bool[40] y) {{ y = {node} }}", 24, *weights), tmp_path / f"{name}.onnx")
    assert not onnxbridge.verify(tmp_path / "right.onnx", tmp_path / "wrong.onnx").passed


@pytest.mark.parametrize("kind", ["bool", "float", "double", "float16", "int64", "string"])
def test_a_scalar_is_verified(tmp_path, kind):
    onnx.save(model_of(f"g ({kind} x) => ({kind} y) {{ y = Identity(x) }}"), tmp_path / "m.onnx")
    assert onnxbridge.verify(tmp_path / "m.onnx", tmp_path / "m.onnx").passed


def test_scalars_reach_the_branches_of_an_if(tmp_path):
    text = """g (bool c, float s) => (float y) {
        y = If<then_branch = a () => (float p) { p = Neg(s) }, else_branch = b () => (float q) { q = Abs(s) }>(c) }"""
    onnx.save(model_of(text), tmp_path / "m.onnx")
    assert onnxbridge.verify(tmp_path / "m.onnx", tmp_path / "m.onnx").passed
    for target in ("pytorch", "tensorflow"):
        assert onnxbridge.convert(tmp_path / "m.onnx", to=target).report.passed


@pytest.mark.parametrize("node", ["Mod(a, x)", "Div(a, x)", "Range(a, b, x)"])
def test_integers_that_must_not_be_zero_are_not(tmp_path, node):
    text = f"g (int64 a, int64 b, int64 x) => (int64[n] y) {{ r = {node}  y = Reshape(r, s) }}"
    onnx.save(model_of(text, 24, ("s", np.array([-1]))), tmp_path / "m.onnx")
    assert onnxbridge.verify(tmp_path / "m.onnx", tmp_path / "m.onnx").agrees


def test_conditions_without_a_trace_in_the_graph_are_tried(tmp_path):
    """ONNX Runtime divides in a node with an unused result, which the hub model does not have."""
    onnx.save(model_of("g (int8[4] a, int8[4] x) => (int8[4] y) { dead = Mod(a, x)  y = Abs(a) }"), tmp_path / "m.onnx")
    report = onnxbridge.verify(tmp_path / "m.onnx", tmp_path / "m.onnx")
    assert report.agrees


def test_an_input_marked_as_sorted_is_sorted():
    model = model_of("g (int64[30] x, float[30] b) => (int64[30] y) { y = Identity(x)  z = Identity(b) }")
    graph = onnx_files.from_proto(model).graph
    for value in graph.inputs:
        value.meta[SORTED] = True
    for sample in samples_for(graph, 3):
        assert all((np.diff(v) >= 0).all() for v in sample.values())


def test_row_splits_and_row_lengths_are_valid():
    text = "g (int64[n] outer, int32[m] inner, int64[k] lengths, float[v,3] values) => (float[v,3] y) { y = Identity(values) }"
    graph = onnx_files.from_proto(model_of(text)).graph
    outer, inner, lengths, values = graph.inputs
    outer.meta[ROWS], inner.meta[ROWS], lengths.meta[ROWS] = ("splits", inner, 1), ("splits", values, 0), ("lengths", values, 0)
    for sample in samples_for(graph, 4):
        for splits, end in ((sample["outer"], len(sample["inner"]) - 1), (sample["inner"], len(sample["values"]))):
            assert splits[0] == 0 and splits[-1] == end and (np.diff(splits) >= 0).all()
        assert sample["lengths"].sum() == len(sample["values"]) and (sample["lengths"] >= 0).all()


@pytest.mark.parametrize(
    ("dtype", "positions"),
    [(t, "Cast<to={to}>(p)") for t in ("float", "float16", "int64")] + [(t, "Range(zero, n, one)") for t in ("float", "int64")],
)
def test_lengths_that_are_compared_with_positions_stay_within_them(dtype, positions):
    to = onnx.TensorProto.DataType.Value(dtype.upper())
    made = f"h = {positions.format(to=to)} l = Unsqueeze(lengths, one_axis) y = Less(h, l)"
    text = f"g ({dtype}[4] lengths) => (bool[4,6] y) {{ {made} }}"
    numbers = [(name, onnx.helper.make_tensor(name, to, [], [v])) for name, v in (("zero", 0), ("n", 6), ("one", 1))]
    weights = [("p", np.arange(6)[None]), ("one_axis", np.array([1]))]
    model = model_of(text, 24, *weights)
    model.graph.initializer.extend(tensor for _, tensor in numbers)
    found = elements(onnx.shape_inference.infer_shapes(model, data_prop=True), "lengths", 8)
    assert set(found.tolist()) == {1, 2, 3, 4, 5, 6}


def test_indices_in_floating_point_reach_the_whole_table():
    text = """g (float[2,8] ids) => (float[2,8,3] y) {
        whole = Cast<to=7>(ids)  low = Max(whole, first)  index = Min(low, last)  y = Gather(table, index) }"""
    table = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    found = elements(model_of(text, 24, ("first", 0), ("last", 49), ("table", table)), "ids", 3)
    assert found.dtype == np.float32 and (found == np.floor(found)).all() and found.min() >= 0 and found.max() > 30
    assert len(set(found.tolist())) > 15


def test_a_model_that_accepts_no_sample_asks_for_inputs(tmp_path):
    text = "g (float[2,3] x, int64[n] s) => (float[m] y) { y = Reshape(x, s) }"
    onnx.save(model_of(text), tmp_path / "m.onnx")
    with pytest.raises(VerificationError, match="describe inputs that it accepts"):
        onnxbridge.verify(tmp_path / "m.onnx", tmp_path / "m.onnx")


def test_the_dtype_of_every_sample_is_that_of_its_input():
    kinds = [d for d in ir.DataType if d.is_floating_point() or d.is_integer()]
    for kind in kinds:
        value = ir.Value(name="x", type=ir.TensorType(kind), shape=ir.Shape([]))
        graph = ir.Graph([value], [], nodes=[], opset_imports={"": 24})
        assert all(isinstance(s["x"], np.ndarray) and s["x"].dtype == kind.numpy() for s in samples_for(graph, 3))
