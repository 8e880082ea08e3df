"""Sums of many numbers, which some libraries add one after the other."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.executor.numpy.sums import LONG, mean, total, watching_sums
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.verification import verify_runners


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 3, 80, 70), (2, 3)), ((5000,), None), ((5000, 3), 0), ((3, 5000), (-1,))])
def test_sums_in_sequence_add_one_element_after_the_other(shape, axis, keepdims):
    x = np.random.default_rng(0).random(shape, np.float32)
    with watching_sums(in_sequence=True) as seen:
        summed, averaged = total(x, axis, keepdims), mean(x, axis, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    rows = np.moveaxis(x, axes, range(len(axes))).reshape(-1, summed.size)
    expected = rows[0]
    for row in rows[1:]:
        expected = expected + row
    usual = np.sum(x, axis=axis, keepdims=keepdims)
    assert seen.long and summed.shape == usual.shape and summed.dtype == np.float32
    np.testing.assert_array_equal(summed.reshape(-1), expected)
    np.testing.assert_array_equal(averaged.reshape(-1), expected / np.float32(len(rows)))
    np.testing.assert_array_equal(total(x, axis, keepdims), usual)


def test_short_sums_integers_and_empty_ones_are_added_as_ever():
    with watching_sums(in_sequence=True) as seen:
        for x in (np.ones((LONG - 1, 2), np.float32), np.ones((5000, 2), np.int32), np.ones((0, 2), np.float32)):
            np.testing.assert_array_equal(total(x, 0), np.sum(x, axis=0))
            with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if not x.size else np.errstate():
                np.testing.assert_array_equal(mean(x, 0), np.mean(x, axis=0))
    assert not seen.long


def pooled(size):
    """A model that averages images of this size."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [2, 4, size, size])
    return op.model([x], [op.output(op.GlobalAveragePool(op.Relu(x)), "y")])


def in_sequence(factor=1.0):
    """A library that pools by adding one pixel after the other, times a factor."""

    def run(feeds):
        pixels = np.maximum(feeds["x"], 0).reshape(2, 4, -1)
        y = np.add.accumulate(pixels, axis=-1)[..., -1] / np.float32(pixels.shape[-1])
        return {"y": (y * np.float32(factor)).reshape(2, 4, 1, 1)}

    return Runner("library", run)


def test_a_library_that_pools_in_sequence_passes_and_a_small_error_does_not():
    model = pooled(222)
    executor = Executor(model)
    own = Runner("executor", lambda feeds: dict(zip(executor.output_names, executor.run(None, feeds), strict=True)))
    report = verify_runners(model, in_sequence(), own)
    (output,) = report.outputs
    assert report.agrees
    assert output.max_abs > 1e-6  # more than the executor's own rounding explains
    assert not verify_runners(model, in_sequence(1 + 1e-4), own).agrees
