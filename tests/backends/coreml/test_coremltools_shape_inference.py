"""coremltools' inference of reshaped sizes, replaced by a faster one."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import sympy
from coremltools.converters.mil.mil.ops.defs.iOS15.tensor_transformation import reshape

from onnxbridge.backends.coreml import backend
from onnxbridge.backends.coreml.coremltools_shape_inference import fast_reshape_inference
from onnxbridge.hub.builder.builder import Builder

N, T, NEW, OTHER = sympy.symbols("n t is0 is1", integer=True)
BLOCKS = sympy.floor(T / 4)


@pytest.mark.parametrize(
    "elements, sizes",
    [
        (N * T * 8, [N, NEW]),
        (N * T * 8, [NEW, T, 4]),
        (sympy.expand(N * (T + 1) * 8), [NEW, T + 1, N]),
        (24, [2, NEW, 3]),
        (N * BLOCKS * 32, [N, BLOCKS, NEW]),
        (N * 6, [N, NEW, OTHER]),
        (N * 6, [N, 6]),
    ],
)
def test_sizes_are_those_of_coremltools(elements, sizes):
    expected = reshape.enforce_volumetric_constraint(elements, sizes)
    with fast_reshape_inference():
        assert reshape.enforce_volumetric_constraint(elements, sizes) == expected


def test_no_equations_are_solved(monkeypatch):
    """Padding to whole blocks makes long expressions of sizes; coremltools solved equations of them for minutes."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", "T", 8])
    n, t = op.size(x, 0), op.size(x, 1)
    rest = op.Sub(op.Mul(op.Div(op.Add(t, np.int64(3)), np.int64(4)), np.int64(4)), t)
    padded = op.Pad(x, op.dims([0, 0, 0, 0, rest, 0]))
    y = op.Reshape(padded, op.dims([n, op.Div(op.Add(t, rest), np.int64(4)), 4, 8]))
    solved = []
    monkeypatch.setattr("sympy.solve", lambda *_, **__: solved.append(1) or [])
    backend.from_hub(op.model([x], [op.output(op.Relu(op.Reshape(y, np.int64([-1, 32]))), "y")]))
    assert not solved
