"""Dilated convolutions in TensorFlow are correct at every stride, group and rank, and NaN reaches only the outputs under the
kernel.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.backends.tensorflow import backend
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.runtime import devices

CASES = [
    # operator, spatial sizes, kernel, attributes, input channels, the kernel's two leading sizes
    ("ConvTranspose", (7,), (3,), {"dilations": [2]}, 2, (2, 3)),
    ("ConvTranspose", (7,), (3,), {"dilations": [3], "strides": [2], "pads": [1, 2]}, 2, (2, 3)),
    ("ConvTranspose", (5, 6), (3, 2), {"dilations": [2, 2]}, 2, (2, 3)),
    ("ConvTranspose", (5, 6), (3, 2), {"dilations": [2, 1], "strides": [1, 3], "output_padding": [0, 1]}, 4, (4, 3)),
    ("ConvTranspose", (5, 6), (3, 2), {"dilations": [2, 3], "strides": [2, 3], "group": 2, "pads": [1, 0, 2, 1]}, 4, (4, 3)),
    ("ConvTranspose", (5, 6), (3, 3), {"dilations": [2, 2], "strides": [2, 2], "group": 4}, 4, (4, 1)),
    ("ConvTranspose", (5, 6), (3, 3), {"dilations": [2, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}, 2, (2, 3)),
    ("ConvTranspose", (4, 5, 3), (2, 3, 2), {"dilations": [2, 1, 2], "strides": [1, 2, 2]}, 2, (2, 3)),
    ("Conv", (9, 8, 7), (2, 3, 2), {"dilations": [2, 2, 3]}, 2, (3, 2)),
    ("Conv", (9, 8, 7), (2, 3, 2), {"dilations": [2, 1, 3], "strides": [2, 2, 1], "group": 2}, 4, (6, 2)),
    ("Conv", (9, 8), (3, 2), {"dilations": [2, 2], "strides": [2, 2], "group": 2}, 2, (4, 1)),
    ("Conv", (9, 8), (3, 2), {"dilations": [2, 3], "strides": [1, 2], "group": 2}, 2, (2, 1)),
    ("Conv", (9,), (3,), {"dilations": [2], "strides": [2], "group": 2}, 2, (2, 1)),
]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(("kind", "sizes", "kernel", "attrs", "channels", "leading"), CASES)
def test_dilated(kind, sizes, kernel, attrs, channels, leading, dynamic):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, channels, *sizes)).astype(np.float32)
    w = rng.standard_normal((*leading, *kernel)).astype(np.float32)
    op = Builder()
    shape = ["n", channels, *(f"s{i}" for i in range(len(sizes)))] if dynamic else list(x.shape)
    value = op.input("x", ir.DataType.FLOAT, shape)
    model = op.model([value], [op.output(op.call(kind, value, w, **attrs), "y")])
    run = backend.runner(backend.from_hub(model))
    session = devices.session(model, "cpu")
    expected = devices.run(session, {"x": x})["y"]
    np.testing.assert_allclose(run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
    position = (1, channels - 1, *(s // 2 for s in sizes))
    x[position] = 1e30  # affects the outputs that a NaN must affect
    affected = np.abs(devices.run(session, {"x": x})["y"]) > 1e20
    x[position] = np.nan
    np.testing.assert_array_equal(np.isnan(run({"x": x})["y"]), affected)
    assert 0 < affected.sum() < affected.size / 2
