"""Tensors of rank 6 and higher, which Core ML does not support, are computed at a lower rank."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.backends.coreml import backend
from onnxbridge.errors import ConversionError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices

R = np.random.default_rng(5)
VIEW, BACK = [2, 3, 4, 2, 4, 2], [2, 3, 8, 8]
WEIGHT = R.standard_normal((2, 3, 1, 2, 1, 2)).astype(np.float32)
KEYS = R.standard_normal((2, 5)).astype(np.float32)
WINDOW = R.standard_normal((2, 1, 3)).astype(np.float32)
PART = np.zeros((1, 3, 4, 2, 4, 1), np.int64)
HIGH_RANK = [2, 1, 2, 3, 2, 1, 2, 2, 2, 2]


def model(write, *shapes, dtype=ir.DataType.FLOAT):
    op = Builder()
    values = [op.input(f"x{i}", dtype, list(shape)) for i, shape in enumerate(shapes)]
    results = write(op, *values)
    results = results if isinstance(results, tuple) else (results,)
    return op.model(values, [op.output(r, f"y{i}") for i, r in enumerate(results)])


def view(op, x, sizes=VIEW):
    return op.Reshape(x, np.array(sizes, np.int64))


def back(op, x, sizes=BACK):
    return op.Reshape(x, np.array(sizes, np.int64))


def reduced(op, x):
    """Pooling by a view, over separate, adjacent and last axes; with keepdims."""
    v = view(op, x)
    kept = op.ReduceSum(v, [1, 4], keepdims=1)
    return (
        op.ReduceMean(v, [3, 5], keepdims=0), op.ReduceMax(v, [0, 3], keepdims=0), op.ReduceL2(v, [-1, -2], keepdims=0),
        back(op, op.Sub(v, kept)),
    )  # fmt: skip


def elementwise(op, x, w):
    v = op.Relu(view(op, x))
    chosen = op.Where(op.Greater(v, 0.3), op.Mul(v, WEIGHT), op.Neg(w))
    return back(op, op.Clip(op.Add(chosen, 2.0), 0.0, 3.0)), back(op, op.Cast(op.Cast(chosen, to=ir.DataType.INT64), to=1))


def expanded(op, x):
    grown = op.Expand(op.Unsqueeze(x, [3, 5]), np.array([2, 3, 4, 2, 4, 2]))
    return back(op, grown), op.ReduceMean(op.Transpose(grown, perm=[5, 4, 3, 2, 1, 0]), [0, 2], keepdims=0)


def gather_slice_softmax(op, x):
    v = op.Transpose(view(op, x), perm=[5, 0, 1, 2, 3, 4])
    first, rest = op.Gather(v, np.int64(1), axis=0), op.Gather(v, np.int64([1, 0]), axis=3)
    sliced = op.Slice(v, np.int64([0, 1]), np.int64([1, 3]), np.int64([0, 3]), np.int64([1, 1]))
    return (
        op.ReduceSum(first, [4], keepdims=0), op.ReduceSum(rest, [0, 4], keepdims=0), back(op, op.Softmax(v, axis=2)),
        op.ReduceSum(op.Concat(sliced, sliced, axis=4), [0, 1], keepdims=0),
    )  # fmt: skip


def matrix_products(op, x):
    v = view(op, x)
    return (
        op.ReduceSum(op.MatMul(v, KEYS), [0, 1], keepdims=0),
        op.ReduceSum(op.MatMul(v, op.Transpose(v, perm=[0, 1, 2, 3, 5, 4])), [2], keepdims=0),
    )


def transposed(op, x):
    """Permutations that move more than five groups of axes."""
    v = view(op, x, HIGH_RANK)
    orders = ([9, 7, 5, 3, 1, 8, 6, 4, 2, 0], [3, 0, 7, 1, 9, 2, 8, 4, 6, 5])
    return tuple(op.ReduceSum(back(op, op.Transpose(v, perm=p), [12, -1, 4]), [1], keepdims=0) for p in orders)


def split(op, x):
    """Along the first, an inner and the last axis, to high and to lower rank."""
    v = op.Transpose(view(op, x), perm=[5, 0, 1, 2, 3, 4])
    first, second = op.Split(v, np.int64([1, 1]), axis=0, outputs=2)
    inner = op.Split(v, np.int64([1, 3]), axis=3, outputs=2)
    last = op.Split(op.Squeeze(first, [0]), axis=-1, num_outputs=2, outputs=2)
    return (
        op.ReduceSum(op.Sub(first, second), [0, 1], keepdims=0), op.ReduceSum(inner[1], [0, 4], keepdims=0), op.Exp(last[1]),
    )  # fmt: skip


SHAPES = {expanded: [(2, 3, 4, 4)], elementwise: [(2, 3, 8, 8), (3, 4, 1, 4, 1)], transposed: [(2, 8, 24)]}


def scatter_gather_nd(op, x):
    """What torch's fold decomposes to: overlapping blocks are added with ScatterND, and read with GatherND."""
    v = op.Transpose(view(op, x), perm=[2, 3, 4, 5, 0, 1])  # 4, 2, 4, 2 blocks of 2 x 3
    rows, columns = np.arange(4)[:, None] + np.arange(2), np.arange(4)[:, None] + np.arange(2)
    indices = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns[None, None]), -1)
    added = op.ScatterND(np.zeros((5, 5, 2, 3), np.float32), indices, v, reduction="add")
    return added, op.ReduceMax(op.GatherND(added, indices), [0, 1, 4], keepdims=0)


def along_an_axis(op, x):
    v = op.Transpose(view(op, x), perm=[5, 0, 1, 2, 3, 4])
    order = op.ArgMax(v, axis=3, keepdims=1)
    least = op.ArgMin(v, axis=-1, keepdims=0)
    values, places = op.TopK(v, np.int64([3]), axis=3, outputs=2)
    gathered = op.GatherElements(v, places, axis=3)
    scattered = op.ScatterElements(v, places, op.Neg(gathered), axis=3)
    return (
        op.Squeeze(order, [3]), least, op.ReduceSum(values, [0, 1], keepdims=0), back(op, op.CumSum(v, np.int64(-2), reverse=1)),
        op.ReduceSum(gathered, [0, 4], keepdims=0), back(op, scattered), back(op, op.Hardmax(v, axis=2)),
    )  # fmt: skip


def normalized(op, x):
    v = op.Transpose(view(op, x), perm=[2, 4, 0, 1, 3, 5])
    scale, bias = np.float32([1, 2]), np.float32([3, -1])
    two, whole = R.standard_normal((2, 2)).astype(np.float32), R.standard_normal((3, 2, 2)).astype(np.float32)
    return tuple(
        op.ReduceMax(n, [0, 2], keepdims=0)
        for n in (
            op.LayerNormalization(v, scale, bias), op.LayerNormalization(v, two, two, axis=-2, epsilon=0.01),
            op.LayerNormalization(v, whole, axis=3), op.RMSNormalization(v, scale), op.RMSNormalization(v, two, axis=4),
        )
    )  # fmt: skip


def padded_and_tiled(op, x):
    v = view(op, x)
    padded = op.Pad(v, np.int64([1, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0]), np.float32(-1))
    mirrored = op.Pad(v, np.int64([1, 1]), None, np.int64([2]), mode="reflect")
    tiled = op.Tile(v, np.int64([1, 1, 2, 1, 1, 3]))
    return tuple(op.ReduceSum(y, [1, 4], keepdims=0) for y in (padded, mirrored, tiled))


@pytest.mark.parametrize(
    "write",
    [
        along_an_axis, elementwise, expanded, gather_slice_softmax, matrix_products, normalized, padded_and_tiled, reduced,
        scatter_gather_nd, split, transposed,
    ],
)  # fmt: skip
def test_intermediate_values_of_high_rank(write):
    assert_matches_onnx_runtime(model(write, *SHAPES.get(write, [BACK])), *SHAPES.get(write, [BACK]))


def test_one_dynamic_size():
    def write(op, x):
        windows = op.Transpose(view(op, x, [-1, *VIEW[1:]]), perm=[0, 2, 4, 3, 5, 1])
        return op.ReduceMean(windows, [1, 3], keepdims=0), back(op, windows, [-1, 4, 3])

    made = model(write, ("N", *BACK[1:]))
    for count in (1, 3):
        assert_matches_onnx_runtime(made, (count, *BACK[1:]))


def test_several_dynamic_sizes():
    """Windows of images of any size, as in a vision transformer, and back; one of the sizes is only known in the shape."""

    def write(op, x):
        n, h, w = (op.size(x, axis) for axis in range(3))
        rows, columns = op.Div(h, np.int64(2)), op.Div(w, np.int64(4))
        v = op.Reshape(x, op.dims([n, rows, 2, columns, 4, 3]))
        windows = op.Reshape(op.Relu(op.Transpose(v, perm=[0, 1, 3, 2, 4, 5])), np.int64([-1, 8, 3]))
        grid = op.Reshape(op.Neg(windows), op.dims([n, rows, columns, 2, 4, 3]))
        means = op.ReduceMean(op.Add(grid, WINDOW), [1, 2, 3], keepdims=0)
        return op.Reshape(op.Transpose(grid, perm=[0, 1, 3, 2, 4, 5]), op.dims([-1, h, w, 3])), means

    made = model(write, ("N", "H", "W", 3))
    for shape in ((1, 2, 8, 3), (2, 6, 4, 3)):
        assert_matches_onnx_runtime(made, shape)


def assert_matches_onnx_runtime(made, *shapes):
    feeds = {f"x{i}": R.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    found, expected = backend.runner(backend.from_hub(made))(feeds), devices.run(devices.session(made, "cpu"), feeds)
    for name, value in expected.items():
        assert found[name].shape == value.shape, name
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_unsupported_cases():
    for write in (view, lambda op, x: op.ReduceSum(op.GatherElements(view(op, x), PART, axis=5), [4], keepdims=0)):
        with pytest.raises(ConversionError, match="a result has rank 6; Core ML supports at most 5"):
            backend.from_hub(model(write, (2, 3, 8, 8)))


def test_explain_names_the_rank():
    lines = backend.explain(model(lambda op, x: op.ReduceMean(view(op, x), [3, 5], keepdims=0), (2, 3, 8, 8)))
    (line,) = [line for line in lines if line.op == "ReduceMean of 6 axes"]
    assert line.how == "decomposed" and "reduce_mean" in line.mil
