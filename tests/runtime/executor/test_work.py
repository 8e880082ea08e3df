"""The count of operations, which decides instead of the time whether to compile kernels."""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.work import ELEMENT, STEP, multiply_adds, operations
from onnxbridge.runtime.verify.rounding.tolerance import Rounding
from tests.runtime.executor.fused import model, normal_arrays

draw = normal_arrays(11)
MATMUL = """agraph (float[N,32] x) => (float[N,8] y) { a = MatMul(x, w) y = Relu(a) }"""


@pytest.mark.parametrize(
    ("op", "shapes", "result", "attrs", "count"),
    [
        ("MatMul", [(4, 5, 6), (6, 7)], (4, 5, 7), {}, 4 * 5 * 7 * 6),
        ("Gemm", [(6, 5), (6, 7)], (5, 7), {"transA": 1}, 5 * 7 * 6),
        ("Conv", [(1, 4, 9, 9), (8, 2, 3, 3)], (1, 8, 7, 7), {"group": 2}, 8 * 49 * 2 * 9),
        ("ConvTranspose", [(1, 4, 9, 9), (4, 8, 2, 2)], (1, 8, 18, 18), {}, 4 * 81 * 8 * 4),
        ("Attention", [(1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 6)], (1, 2, 5, 6), {}, 2 * 5 * 7 * (8 + 6)),
        ("LSTM", [(3, 1, 4), (1, 20, 4), (1, 20, 5)], (3, 1, 1, 5), {}, 3 * 20 * (4 + 5)),
        ("com.example::MatMul", [(2, 3), (3, 4)], (2, 4), {}, 24),
        ("Add", [(2, 3), (3,)], (2, 3), {}, 0),
        ("Conv", [(1, 4, 9, 9)], (1, 8, 7, 7), {}, 0),
    ],
)
def test_multiply_adds_of_matrix_products(op, shapes, result, attrs, count):
    args, y = [np.zeros(shape, np.float32) for shape in shapes], np.zeros(result, np.float32)
    assert multiply_adds(op, args, [y], attrs) == count
    assert operations(op, args, [y], attrs) == STEP + count + ELEMENT * sum(a.size for a in (*args, y))


def test_other_steps_count_elements_read_and_written():
    x = np.zeros((4, 6), np.float32)
    assert operations("Reshape", [x, np.array([24])], [x.reshape(24)], {}) == STEP
    assert operations("Transpose", [x], [x.T.copy()], {}) == STEP + ELEMENT * 48
    assert operations("MaxPool", [x], [x.copy()], {"kernel_shape": [3]}) == STEP + ELEMENT * (48 + 72)
    image, boxes, y = np.zeros((1, 3, 5, 5)), np.zeros((7, 4)), np.zeros((7, 3, 2, 2))
    assert operations("RoiAlign", [image, boxes], [y], {}) == STEP + ELEMENT * (75 + 28 + 84 + 7 * 75)
    assert operations("SequenceLength", [[x]], [np.array(1)], {}) == STEP + ELEMENT


def test_an_executor_counts_work_of_python_steps():
    executor = Executor(model(MATMUL, w=draw(32, 8)), native=False)
    counts = [0]
    for n in (1, 1, 100):
        executor.run(None, {"x": draw(n, 32)})
        counts.append(executor.work)
    one, repeated, many = np.diff(counts)
    assert one == repeated
    assert many - one == 99 * (32 * 8 + ELEMENT * (32 + 8 + 2 * 8))


def test_tolerances_do_not_depend_on_kernels(monkeypatch):
    feeds, weights = {"x": draw(64, 32)}, draw(32, 8)
    found = []
    for native in ("0", "1"):
        monkeypatch.setenv("ONNXBRIDGE_NATIVE", native)
        rounding = Rounding(onnx_files.from_proto(model(MATMUL, w=weights)))
        rounding.measure(feeds)
        found.append(rounding.tolerances({"y": np.zeros((64, 8), np.float32)})["y"])
    assert found[0].atol == found[1].atol > 0
