"""Types and shapes that onnx's inference leaves out or gets wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxbridge.hub import passes
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor


def _shapes(text, feeds):
    """The inferred shapes and types of the outputs, after a check that those are what the executor computes."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]>\n{text}')
    hub = onnx_files.from_proto(model)
    passes.infer(hub)
    found = [(o.dtype.numpy(), tuple(o.shape)) for o in hub.graph.outputs]
    for (dtype, shape), value in zip(found, Executor(model).run(None, feeds), strict=True):
        assert value.dtype == dtype
        assert value.shape == shape
    return [shape for _, shape in found]


def test_transposed_convolutions_with_an_output_smaller_than_the_input():
    text = "g (float[1,1,7,3] x, float[1,2,1,2] w) => (y) { y = ConvTranspose <output_shape = [6, 7], strides = [1, 3]> (x, w) }"
    feeds = {"x": np.ones((1, 1, 7, 3), np.float32), "w": np.ones((1, 2, 1, 2), np.float32)}
    assert _shapes(text, feeds) == [(1, 2, 6, 7)]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scans_along_other_axes(axis):
    text = f"""g (float[2] state, float[2,5] items) => (last, ys) {{
        last, ys = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [{axis}], body =
            b (float[2] s, float[2] i) => (float[2] next, float[2] y) {{ next = Add (s, i)  y = Identity (next) }}> (state, items)
    }}"""
    feeds = {"state": np.zeros(2, np.float32), "items": np.ones((2, 5), np.float32)}
    assert _shapes(text, feeds) == [(2,), (5, 2) if axis == 0 else (2, 5)]


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_splits_into_more_parts_than_there_are_elements(size):
    text = f"g (float[3,{size}] x) => (a, b, c, d) {{ a, b, c, d = Split <axis = -1, num_outputs = 4> (x) }}"
    assert sum(shape[1] for shape in _shapes(text, {"x": np.ones((3, size), np.float32)})) == size


def test_normalization_with_a_scale_of_another_type():
    text = "g (float16[2,3] x, float[3] scale) => (y) { y = RMSNormalization (x, scale) }"
    assert _shapes(text, {"x": np.ones((2, 3), np.float16), "scale": np.ones(3, np.float32)}) == [(2, 3)]


def test_one_hot_of_a_scalar():
    text = "g (int64 i, int64 depth, float[2] values) => (y) { y = OneHot (i, depth, values) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> {text}')
    hub = onnx_files.from_proto(model)
    passes.infer(hub)
    assert hub.graph.outputs[0].shape == [None]


def test_sizes_that_depend_on_dynamic_ones_are_unknown():
    """Onnx's inference writes 0 for such sizes of Attention, and fails for a Resize to an unknown number of sizes."""
    attention = """g (float[b,s,h] q, float[b,t,h] k, float[b,t,w] v) => (y)
        { y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }"""
    resize = 'g (float[1,1,h,w] x, int64[n] sizes) => (y) { y = Resize <mode = "nearest"> (x, , , sizes) }'
    results = []
    for text in (attention, resize):
        hub = onnx_files.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> {text}'))
        passes.infer(hub)
        results.append(hub.graph.outputs[0])
    assert len(results[0].shape) == 3 and 0 not in results[0].shape
    assert results[1].dtype.name == "FLOAT"
