"""Tensors of six axes and more, which Core ML has not: what is computed with them is written in fewer."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.backends.coreml import backend
from onnxbridge.errors import ConversionError
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.runtime import devices

R = np.random.default_rng(5)
VIEW, BACK = [2, 3, 4, 2, 4, 2], [2, 3, 8, 8]
WEIGHT = R.standard_normal((2, 3, 1, 2, 1, 2)).astype(np.float32)
KEYS = R.standard_normal((2, 5)).astype(np.float32)
MANY = [2, 1, 2, 3, 2, 1, 2, 2, 2, 2]


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
    """Pools by a view, along axes that lie apart, beside each other and at the end; with kept axes."""
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


def upsampled(op, x):
    grown = op.Expand(op.Unsqueeze(x, [3, 5]), np.array([2, 3, 4, 2, 4, 2]))
    return back(op, grown), op.ReduceMean(op.Transpose(grown, perm=[5, 4, 3, 2, 1, 0]), [0, 2], keepdims=0)


def picked(op, x):
    v = op.Transpose(view(op, x), perm=[5, 0, 1, 2, 3, 4])
    first, rest = op.Gather(v, np.int64(1), axis=0), op.Gather(v, np.int64([1, 0]), axis=3)
    sliced = op.Slice(v, np.int64([0, 1]), np.int64([1, 3]), np.int64([0, 3]), np.int64([1, 1]))
    return (
        op.ReduceSum(first, [4], keepdims=0), op.ReduceSum(rest, [0, 4], keepdims=0), back(op, op.Softmax(v, axis=2)),
        op.ReduceSum(op.Concat(sliced, sliced, axis=4), [0, 1], keepdims=0),
    )  # fmt: skip


def multiplied(op, x):
    v = view(op, x)
    return (
        op.ReduceSum(op.MatMul(v, KEYS), [0, 1], keepdims=0),
        op.ReduceSum(op.MatMul(v, op.Transpose(v, perm=[0, 1, 2, 3, 5, 4])), [2], keepdims=0),
    )


def permuted(op, x):
    """More blocks change places than there are axes."""
    v = view(op, x, MANY)
    orders = ([9, 7, 5, 3, 1, 8, 6, 4, 2, 0], [3, 0, 7, 1, 9, 2, 8, 4, 6, 5])
    return tuple(op.ReduceSum(back(op, op.Transpose(v, perm=p), [12, -1, 4]), [1], keepdims=0) for p in orders)


SHAPES = {upsampled: [(2, 3, 4, 4)], elementwise: [(2, 3, 8, 8), (3, 4, 1, 4, 1)], permuted: [(2, 8, 24)]}


def placed(op, x):
    """What folding writes: blocks added where they overlap, at places of several axes; and read from there again."""
    v = op.Transpose(view(op, x), perm=[2, 3, 4, 5, 0, 1])  # 4, 2, 4, 2 places of 2 x 3
    rows, columns = np.arange(4)[:, None] + np.arange(2), np.arange(4)[:, None] + np.arange(2)
    places = np.stack(np.broadcast_arrays(rows[:, :, None, None], columns[None, None]), -1)
    added = op.ScatterND(np.zeros((5, 5, 2, 3), np.float32), places, v, reduction="add")
    return added, op.ReduceMax(op.GatherND(added, places), [0, 1, 4], keepdims=0)


@pytest.mark.parametrize("write", [reduced, elementwise, upsampled, picked, multiplied, permuted, placed])
def test_more_than_five_axes_on_the_way(write):
    compared(model(write, *SHAPES.get(write, [BACK])), *SHAPES.get(write, [BACK]))


def test_one_of_the_sizes_may_be_known_to_the_running_model_only():
    def write(op, x):
        windows = op.Transpose(view(op, x, [-1, *VIEW[1:]]), perm=[0, 2, 4, 3, 5, 1])
        return op.ReduceMean(windows, [1, 3], keepdims=0), back(op, windows, [-1, 4, 3])

    made = model(write, ("N", *BACK[1:]))
    for count in (1, 3):
        compared(made, (count, *BACK[1:]))


def compared(made, *shapes):
    feeds = {f"x{i}": R.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    found, wanted = backend.runner(backend.from_hub(made))(feeds), devices.run(devices.session(made, "cpu"), feeds)
    for name, value in wanted.items():
        assert found[name].shape == value.shape, name
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def test_what_stays_refused():
    for write in (view, lambda op, x: back(op, op.CumSum(view(op, x), np.int64(2)))):
        with pytest.raises(ConversionError, match="a result has rank 6; Core ML holds 5 at most"):
            backend.from_hub(model(write, (2, 3, 8, 8)))


def test_what_is_told_of_it():
    lines = backend.explain(model(lambda op, x: op.ReduceMean(view(op, x), [3, 5], keepdims=0), (2, 3, 8, 8)))
    (line,) = [line for line in lines if line.op == "ReduceMean of 6 axes"]
    assert line.how == "expanded" and "reduce_mean" in line.mil
