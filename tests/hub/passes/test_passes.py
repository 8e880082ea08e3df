"""The passes that every model goes through after its frontend."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime.executor.executor import Executor

FLOAT = ir.DataType.FLOAT


def test_identities_are_removed_and_output_names_kept():
    op = Builder()
    x = op.input("x", FLOAT, [2])
    h = op.Identity(op.Relu(op.Identity(x)))
    model = op.model([x], [op.output(op.Identity(h), "y"), op.output(op.Identity(h), "z"), op.output(op.Identity(x), "w")])
    cleaned = passes.clean(model.clone())
    assert [v.name for v in cleaned.graph.outputs] == ["y", "z", "w"]
    assert sum(n.op_type == "Identity" for n in cleaned.graph) == 2, "a value that is two outputs, and an input that is one"
    feeds = {"x": np.array([-1, 2], np.float32)}
    for a, b in zip(Executor(model).run(None, feeds), Executor(cleaned).run(None, feeds), strict=True):
        assert np.array_equal(a, b)


def test_a_branch_that_returns_an_outer_value_keeps_its_identity():
    op = Builder()
    x, c = op.input("x", FLOAT, [2]), op.input("c", ir.DataType.BOOL, [])
    h = op.Relu(x)
    y = op.If(c, then_branch=lambda: op.Identity(h), else_branch=lambda: op.Neg(op.Identity(h)))
    model = op.model([x, c], [op.output(y, "y")])
    cleaned = passes.clean(model.clone())
    for c in (True, False):
        feeds = {"x": np.array([-1, 2], np.float32), "c": np.array(c)}
        assert np.array_equal(Executor(model).run(None, feeds)[0], Executor(cleaned).run(None, feeds)[0])


def constant_shape(shape, build):
    """The constant shape of the only Reshape of a cleaned model, None if not constant; results are compared too."""
    op = Builder()
    x = op.input("x", FLOAT, shape)
    model = op.model([x], [op.output(build(op, x), "y")])
    cleaned = passes.clean(model.clone())
    feeds = {"x": np.arange(120, dtype=np.float32).reshape([d if isinstance(d, int) else 2 + "NS".index(d) for d in shape])}
    assert np.array_equal(Executor(model).run(None, feeds)[0], Executor(cleaned).run(None, feeds)[0])
    (reshape,) = [n for n in cleaned.graph if n.op_type == "Reshape"]
    known = reshape.inputs[1].const_value
    return None if known is None else known.numpy().tolist()


def test_a_reshape_keeps_its_batch_and_flattens_the_rest():
    def size(op, x, i):
        return op.Shape(x, start=i, end=i + 1)

    assert constant_shape(["N", 60], lambda op, x: op.Reshape(x, op.Concat(size(op, x, 0), np.array([3, 20]), axis=0))) == [
        -1,
        3,
        20,
    ]
    flattened = constant_shape(["N", 3, 20], lambda op, x: op.Reshape(x, op.Concat(size(op, x, 0), np.array([-1]), axis=0)))
    assert flattened == [-1, 60]
    split = ["N", "S", 20]
    assert constant_shape(split, lambda op, x: op.Reshape(x, op.Concat(op.Shape(x, end=2), np.array([4, 5]), axis=0))) == [
        0,
        0,
        4,
        5,
    ]
    behind = np.array([-1, 1])
    inferred = constant_shape(split, lambda op, x: op.Reshape(x, op.Concat(op.Shape(x, end=2), behind, axis=0), allowzero=1))
    assert inferred == [0, 0, 20, 1], "the sizes of the input leave one number for -1"
    swapped = constant_shape(
        split, lambda op, x: op.Reshape(x, op.Concat(size(op, x, 1), size(op, x, 0), np.array([20]), axis=0))
    )
    assert swapped is None, "two sizes that are not where they were stay computed"

    halves = np.array([2, 10])
    kept = constant_shape(split, lambda op, x: op.Reshape(x, op.Concat(op.Shape(x, end=2), halves, axis=0), allowzero=1))
    assert kept == [0, 0, 2, 10], "sizes of 0 are copied as well"
    joined = constant_shape(
        ["N", "S", 20], lambda op, x: op.Reshape(x, op.Concat(size(op, x, 0), np.array([-1]), axis=0), allowzero=1)
    )
    assert joined is None, "-1 says nothing where another size is 0"


def test_sizes_are_known_through_slices_with_steps():
    def build(op, x):
        sizes = op.Slice(op.Shape(x), [-1], [-9], [0], [-1])  # reversed
        behind = op.Slice(sizes, [3], [9], [0], [1])  # empty
        return op.Reshape(op.Transpose(x, perm=[2, 1, 0]), op.Concat(sizes, behind, np.array([1]), axis=0), allowzero=1)

    assert constant_shape(["N", 3, 20], build) == [20, 3, -1, 1]


BRANCHES = """<ir_version: 10, opset_import: ["" : 21]>
    agraph (bool one, float[2,3] x) => (float[k] y) {
        y = If(one) <then_branch = a () => (float[m] u) { u = Squeeze(x, axes) },
                     else_branch = b () => (float[n] v) { v = Reshape(x, flat) }> }"""


def _parsed(text, **weights):
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in weights.items())
    return proto


def test_a_branch_that_is_not_executed_may_have_inconsistent_shapes():
    proto = _parsed(BRANCHES, axes=np.array([0]), flat=np.array([-1]))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = onnxbridge.convert(proto, "onnx", verify=False).model
    assert [n.op_type for n in made.graph.node] == ["If"]
    np.testing.assert_array_equal(Executor(proto).run(None, {"one": np.array(False), "x": x})[0], x.ravel())


def test_inconsistent_shapes_are_reported_as_errors_of_the_file_or_the_inputs():
    text = '<ir_version: 10, opset_import: ["" : 21]> agraph (float[{}] x) => (float[k] y) {{ y = Squeeze(x, axes) }}'
    with pytest.raises(UnsafeFileError, match="Dimension of input 0 must be 1 instead of 2"):
        onnxbridge.convert(_parsed(text.format("2,3"), axes=np.array([0])), "onnx", verify=False)
    with pytest.raises(UsageError, match="inputs of these sizes"):
        onnxbridge.convert(_parsed(text.format("a,b"), axes=np.array([0])), "onnx", inputs="x:float32[2,3]", verify=False)


def test_consecutive_transposes_are_merged():
    op = Builder()
    x = op.input("x", FLOAT, [2, 3, 4])
    back = op.Neg(op.Transpose(op.Transpose(x, perm=[0, 2, 1]), perm=[0, 2, 1]))
    turned = op.Transpose(op.Transpose(x, perm=[1, 2, 0]))
    same = op.Transpose(op.Transpose(x))
    model = op.model([x], [op.output(back, "back"), op.output(turned, "turned"), op.output(same, "same")])
    cleaned = passes.clean(model.clone())
    assert sorted(n.op_type for n in cleaned.graph) == ["Identity", "Neg", "Transpose"]
    feeds = {"x": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    for before, after in zip(Executor(model).run(None, feeds), Executor(cleaned).run(None, feeds), strict=True):
        assert np.array_equal(before, after)


def test_equal_computed_constants_are_merged_and_weights_are_not():
    op = Builder()
    x = op.input("x", FLOAT, [1])
    computed = [op.Mul(x, op.Cast(op.Range(op.constant(0), op.constant(20), op.constant(1)), to=FLOAT)) for _ in range(2)]
    weights = [op.Mul(x, op.Neg(op.constant(np.zeros(20, np.float32), name))) for name in ("a.weight", "b.weight")]
    model = passes.clean(op.model([x], [op.output(op.Concat(*computed, *weights, axis=0), "y")]))
    assert [n.op_type for n in model.graph] == ["Mul", "Mul", "Mul", "Concat"]


@pytest.mark.parametrize(("joined", "apart", "nodes"), [
    ([6], [2, 3], 1), ([3, 2], [2, 3], 1), ([2, 3], [6], 4), ([6], [3, 2], 4),
])  # fmt: skip
def test_reshapes_around_a_batched_matmul_are_removed(joined, apart, nodes):
    op = Builder()
    a, b = op.input("a", FLOAT, [2, 3, 4, 5]), op.input("b", FLOAT, [2, 3, 5, 7])
    product = op.MatMul(op.Reshape(a, [*joined, 4, 5]), op.Reshape(b, [*joined, 5, 7]))
    model = op.model([a, b], [op.output(op.Reshape(product, [*apart, 4, 7]), "y")])
    cleaned = passes.clean(model.clone())
    assert len(cleaned.graph) == nodes
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.standard_normal(v.shape.numpy()).astype(np.float32) for v in (a, b)}
    np.testing.assert_array_equal(Executor(model).run(None, feeds)[0], Executor(cleaned).run(None, feeds)[0])
