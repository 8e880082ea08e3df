"""Input specifications, and the samples that verification draws."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.errors import UsageError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import Executor
from onnxbridge.runtime.verify.samples.random_inputs import parse_dynamic, parse_specs, samples_for
from onnxbridge.runtime.verify.samples.sizes import draw_samples, never_varied


def test_specs():
    assert parse_specs("x:float32[N, 3,224,224] ids:int64[1,?] s:bool t:float16[]") == {
        "x": (("N", 3, 224, 224), "float32"),
        "ids": ((1, None), "int64"),
        "s": ((), "bool"),
        "t": ((), "float16"),
    }
    assert parse_specs(["a:0:float32[2]", "b:int32[1]"])["a:0"] == ((2,), "float32")


@pytest.mark.parametrize("text", ["x", "x:float33[1]", "x:float32[1", "x:float32[1.5]", "x:float32[1] x:int8[1]", ""])
def test_the_message_for_a_malformed_spec_shows_the_syntax(text):
    with pytest.raises(UsageError, match="x:float32|twice|neither"):
        parse_specs(text)


def test_dynamic():
    assert parse_dynamic(["N=1..64", "T=2.."]) == {"N": (1, 64), "T": (2, None)}
    for wrong in ("N", "N=5..2", "N=a..b"):
        with pytest.raises(UsageError, match="N=1..64"):
            parse_dynamic(wrong)


def graph_of(*inputs, build=lambda op, *xs: xs[0]):
    op = Builder()
    values = [op.input(f"x{i}", dtype, shape) for i, (dtype, shape) in enumerate(inputs)]
    return op.model(values, [op.output(build(op, *values), "y")]).graph


def test_samples_are_seeded_and_have_two_sizes():
    graph = graph_of((ir.DataType.FLOAT, ["N", 3]), (ir.DataType.FLOAT, ["N", "M"]))
    a, b = samples_for(graph, 4, seed=1), samples_for(graph, 4, seed=1)
    assert all(np.array_equal(x[k], y[k]) for x, y in zip(a, b, strict=True) for k in x)
    assert not np.array_equal(a[0]["x0"], samples_for(graph, 4, seed=2)[0]["x0"])
    assert {s["x0"].shape[0] for s in a} == {2, 3}
    assert all(s["x0"].shape[0] == s["x1"].shape[0] for s in a), "one name, one size"
    assert a[0]["x0"].dtype == np.float32 and (a[-1]["x0"] == 0).any()


@pytest.mark.parametrize(
    ("bounds", "sizes"), [((1, 64), {2, 3}), ((5, 6), {5, 6}), ((1, 1), {1}), ((4, 4), {4}), ((1, 2), {2, 1})]
)
def test_sizes_stay_inside_the_bounds(bounds, sizes):
    graph = graph_of((ir.DataType.FLOAT, ["N"]))
    assert {s["x0"].shape[0] for s in samples_for(graph, 4, bounds={"N": bounds})} == sizes


def test_integers_stay_within_what_they_index():
    def embed(op, ids):
        table = op.constant(np.zeros((7, 4), np.float32), "table")
        return op.Gather(table, op.Cast(op.Unsqueeze(ids, [0]), to=ir.DataType.INT64))

    for sample in samples_for(graph_of((ir.DataType.INT32, [200]), build=embed), 3):
        assert sample["x0"].min() == 0 and sample["x0"].max() == 6 and sample["x0"].dtype == np.int32
    mask = samples_for(graph_of((ir.DataType.INT64, [50])), 1)[0]["x0"]
    assert set(mask.tolist()) == {0, 1}


def _dequantized(op, x):
    return op.DequantizeLinear(op.Transpose(x), np.float32(0.5), np.array(3, x.dtype.numpy()))


@pytest.mark.parametrize("build", [_dequantized, lambda op, x: op.Cast(x, to=ir.DataType.FLOAT)], ids=["numbers", "pixels"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantized_numbers_and_pixels_have_the_range_of_their_dtype(build, dtype):
    info = np.iinfo(dtype)
    for sample in samples_for(graph_of((ir.DataType.from_numpy(np.dtype(dtype)), [1, 3, 16, 16]), build=build), 2):
        assert sample["x0"].min() < info.min + 9 and sample["x0"].max() > info.max - 9


def test_masks_leave_something_in_every_row():
    """Attention to masked positions only would be decided by rounding."""
    for sample in samples_for(graph_of((ir.DataType.INT64, [40, 2])), 2):
        assert sample["x0"].any(axis=-1).all() and not sample["x0"].all()


def test_a_batch_of_one_stays_one():
    graph = graph_of((ir.DataType.FLOAT, ["N", "H"]))
    assert [s["x0"].shape for s in samples_for(graph, 2, least=32, batch=1)] == [(1, 32), (1, 64)]


def test_constants_of_comparisons_are_drawn():
    def known(op, rate):
        return op.Equal(op.Identity(rate), op.constant(np.array(16000), "rate"))

    scalars = [int(s["x0"]) for s in samples_for(graph_of((ir.DataType.INT64, []), build=known), 4)]
    assert scalars[::2] == [16000, 16000] and set(scalars[1::2]) <= {0, 1}
    array = samples_for(graph_of((ir.DataType.INT64, [50]), build=known), 1)[0]["x0"]
    assert set(array.tolist()) == {0, 1, 16000}
    graph = graph_of((ir.DataType.UINT8, [50]), build=lambda op, x: known(op, op.Cast(x, to=ir.DataType.INT64)))
    assert set(samples_for(graph, 1)[0]["x0"].tolist()) == {0, 1}, "a byte holds no 16000"


def fitting(graph):
    """How a sample suits the executor."""
    executor = Executor(ir.Model(graph, ir_version=10))

    def fit(feed):
        try:
            return 2 if all(r.size for r in executor.run(None, feed)) else 1
        except Exception:
            return 0

    return fit


def test_a_model_that_accepts_one_height_gets_that():
    graph = graph_of((ir.DataType.FLOAT, ["N", 1, "H", 8]), build=lambda op, x: op.Reshape(x, [0, 64, 8]))
    samples, notes = draw_samples(graph, 3, 0, None, fitting(graph))
    assert [s["x0"].shape for s in samples] == [(3, 1, 64, 8), (4, 1, 64, 8), (3, 1, 64, 8)]
    assert notes == ["H was 64 in every sample, since the model fails at the other sizes that were tried"]
    assert never_varied(graph, samples) == {"H": 64}


def test_a_dimension_without_a_name_may_be_the_batch():
    def build(op, x, state):
        summed = op.ReduceSum(op.Squeeze(op.Slice(state, [0], [1]), [0]), [1])
        return op.Concat(op.Gather(x, np.array([40]), axis=1), summed, axis=1)

    graph = graph_of((ir.DataType.FLOAT, [None, None]), (ir.DataType.FLOAT, [2, None, 4]), build=build)
    samples, notes = draw_samples(graph, 3, 0, None, fitting(graph))
    assert [(s["x0"].shape, s["x1"].shape) for s in samples][:2] == [((2, 48), (2, 2, 4)), ((3, 80), (2, 3, 4))]
    assert not notes
