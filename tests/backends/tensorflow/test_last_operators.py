"""Models that end with any operator behind a convolution, whose transposes then meet an output of the graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxbridge

WEIGHTS = """<float[4,3,3,3] w, float[4] s = {1,2,3,4}, float[4] b = {1,2,3,4}, float[4] m = {0.1,0.2,0.3,0.4},
float[4] v = {1,2,3,4},
int64[2] flat = {0,-1}, int64[3] rows = {0,4,-1}, int64[1] channel = {1}, int64[2] pixels = {2,3}, int64[1] zero = {0},
int64[1] one = {1}>"""
LAST = {
    "Relu": "y = Relu(c)",
    "BatchNormalization": "y = BatchNormalization(c, s, b, m, v)",
    "Flatten": "y = Flatten(c)",
    "Flatten of pooled": "p = GlobalAveragePool(c) y = Flatten(p)",
    "Reshape of pooled": "p = GlobalAveragePool(c) y = Reshape(p, flat)",
    "Squeeze of pooled": "p = GlobalAveragePool(c) y = Squeeze(p, pixels)",
    "Reshape": "y = Reshape(c, rows)",
    "Shape": "y = Shape(c)",
    "ReduceMean": "y = ReduceMean<keepdims = 0>(c, pixels)",
    "Softmax": "y = Softmax<axis = 1>(c)",
    "ArgMax": "y = ArgMax<axis = 1>(c)",
    "Transpose": "y = Transpose<perm = [0,2,3,1]>(c)",
    "Concat": "y = Concat<axis = 1>(c, c)",
    "Slice": "y = Slice(c, zero, one, channel)",
    "Cast": "y = Cast<to = 10>(c)",
    "Identity": "y = Identity(c)",
    "TopK": "y, z = TopK<axis = 1>(c, one)",
    "Unsqueeze": "y = Unsqueeze(c, channel)",
    "two outputs": "y = Relu(c) z = Flatten(c)",
}


@pytest.mark.parametrize("batch", ["N", "2"])
@pytest.mark.parametrize("name", LAST)
def test_the_last_operator(name, batch):
    outputs = "float y, float z" if "z = " in LAST[name] or "y, z" in LAST[name] else "float y"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[{batch},3,8,8] x) => ({outputs}) {WEIGHTS} '
    model = onnx.parser.parse_model(text + f"{{ c = Conv<pads = [1,1,1,1]>(x, w) {LAST[name]} }}")
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    for output in model.graph.output:
        output.type.Clear()  # inferred below
    report = onnxbridge.convert(onnx.shape_inference.infer_shapes(model), "tensorflow", mutants=0).report
    assert report.agrees, report
