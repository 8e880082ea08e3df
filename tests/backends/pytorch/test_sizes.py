"""Sizes are computed at run time and not fixed by the example sizes of tracing."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

import onnxbridge
from onnxbridge.backends.pytorch import backend
from onnxbridge.errors import ConversionError
from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices

TABLE = np.arange(64, dtype=np.float32).reshape(1, 64)


def rows_of_a_table(op, x):
    return op.Slice(op.constant(TABLE, "table"), [0], op.Shape(x, start=1, end=2), [1])


def first(count):
    return lambda op, x: op.Slice(x, [0], [count], [1])


def last(count):
    return lambda op, x: op.Slice(x, [-count], [1 << 40], [1])


def every(step):
    return lambda op, x: op.Slice(x, [1], [7], [1], [step])


def pooled(op, x):
    return op.MaxPool(op.Unsqueeze(x, [0]), kernel_shape=[3], strides=[2], ceil_mode=1)


def averaged(op, x):
    return op.AveragePool(op.Unsqueeze(x, [0]), kernel_shape=[3], strides=[3], ceil_mode=1, pads=[1, 1])


def centre(op, x):
    return op.CenterCropPad(x, [4], axes=[1])


def halves(op, x):
    return op.Split(x, axis=-1, num_outputs=2, outputs=2)[0]


def padded(op, x):
    return op.Pad(x, [0, -1, 0, 2])


def largest(op, x):
    return op.TopK(x, op.Min(op.Shape(x, start=1, end=2), np.array([5])), outputs=2)[0]


def halved(op, x):
    """Half of a number that may be negative, truncated toward zero."""
    size = op.size(x, 1)
    odd = op.Sub(size, op.Add(op.Mul(op.Div(op.Sub(size, np.array(1)), np.array(2)), np.array(2)), np.array(2)))
    before = op.Div(odd, np.array(2))
    pads = [op.Unsqueeze(v, [0]) for v in (np.array(0), before, np.array(0), op.Sub(odd, before))]
    return op.Pad(op.Concat(x, x, axis=1), op.Concat(*pads, axis=0))


SLICES = {
    "rows of a table": rows_of_a_table, "first 2": first(2), "first 4": first(4), "last 2": last(2), "last 4": last(4),
    "every third": every(3), "pooled": pooled, "averaged": averaged, "centre": centre, "halves": halves, "padded": padded,
    "largest": largest, "halved": halved,
}  # fmt: skip


@pytest.mark.parametrize("make_slice", SLICES.values(), ids=SLICES)
def test_a_slice_is_as_long_as_the_input_allows(make_slice):
    """The shape of the slice is an output, and is used in arithmetic and a reshape."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "L"])
    part = make_slice(op, x)
    shape = op.Shape(part)
    mean = op.Div(op.ReduceSum(part, keepdims=0), op.Cast(op.ReduceProd(shape, keepdims=0), to=1))
    flat = op.Reshape(part, op.Concat(op.Reshape(op.ReduceProd(shape, keepdims=0), [1]), [1], axis=0))
    hub = op.model([x], [op.output(v, n) for v, n in ((shape, "shape"), (mean, "mean"), (flat, "flat"))])
    passes.infer(hub)
    module, session = backend.from_hub(hub), devices.session(hub, "cpu")
    for length in (4, 2, 3, 5, 8, 64, 70):
        feeds = {"x": np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)}
        expected = devices.run(session, feeds)
        for name, value in backend.runner(module)(feeds).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=f"{name} at {length}")


def test_expand_to_a_smaller_shape():
    """Unnamed dimensions may have different sizes."""
    op = Builder()
    x, y = op.input("x", ir.DataType.FLOAT, [None, 3]), op.input("y", ir.DataType.FLOAT, [None, 1])
    module = backend.from_hub(op.model([x, y], [op.output(op.Expand(x, op.Shape(y)), "z")]))
    for rows, others in ((1, 4), (4, 1), (4, 4)):
        assert module(torch.ones(rows, 3), torch.ones(others, 1)).shape == (4, 3)


def test_slicing_fewer_elements_than_the_bound():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N"])
    shape = op.Shape(op.Slice(x, [0], [2], [0]))
    module = backend.from_hub(op.model([x], [op.output(shape, "shape")]))
    assert [module(torch.ones(n)).item() for n in (0, 1, 2, 3)] == [0, 1, 2, 2]


@pytest.mark.parametrize("which", ["input", "output"])
def test_exporting_strings_is_an_error_with_the_name(which, tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.STRING if which == "input" else ir.DataType.FLOAT, ["N"])
    y = op.output(op.StringSplit(x, outputs=2)[1] if which == "input" else op.Cast(x, to=ir.DataType.STRING), "y")
    model = op.model([x], [y])
    artifact = backend.from_hub(model)
    with pytest.raises(ConversionError, match=f"the {which} '{'x' if which == 'input' else 'y'}' has strings"):
        backend.save(artifact, tmp_path / "net.pt2")


def test_exporting_sequences_with_constant_positions(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 6])
    parts = op.SequenceErase(op.SplitToSequence(x, np.array(2), axis=1), np.array(1))
    more = op.SequenceInsert(parts, op.SequenceAt(parts, np.array(-1)), np.array(0))
    module = backend.from_hub(op.model([x], [op.output(op.ConcatFromSequence(more, axis=1), "y")]))
    backend.save(module, tmp_path / "net.pt2")
    inputs = torch.arange(18.0).reshape(3, 6)
    expected = inputs[:, [4, 5, 0, 1, 4, 5]]
    assert torch.equal(module(inputs), expected) and torch.equal(
        torch.export.load(tmp_path / "net.pt2").module()(inputs), expected
    )


def test_random_numbers_in_a_loop_of_dynamic_size(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N,30] x) => (float[N,30] y) <bool c = {1}> {
          y = Loop (, c, x) <body = b (int64 i, bool k, float[N,30] s) => (bool more, float[N,30] t) {
            u = RandomUniformLike (s) t = Add (s, u) m = ReduceMax <keepdims = 0> (t)
            bound = Constant <value_float = 3.0> () more = Less (m, bound) }>
        }""")
    onnxbridge.convert(model, to="pytorch", output=tmp_path / "net.pt2")
    y = torch.export.load(tmp_path / "net.pt2").module()(torch.zeros(7, 30))
    assert y.shape == (7, 30) and 3 <= y.max() < 4 and y.min() < 3
