"""Padding SAME of dynamic sizes with strides reaches every target: its amount is known only when the model runs."""

import numpy as np
import onnx
import pytest

import onnxbridge

LAYERS = {
    "Conv": 'Conv<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, w)',
    "depthwise": 'Conv<auto_pad = "SAME_UPPER", strides = [2, 3], group = 3>(x, d)',
    "MaxPool": 'MaxPool<auto_pad = "SAME_UPPER", strides = [2, 2], kernel_shape = [3, 2]>(x)',
    "AveragePool": 'AveragePool<auto_pad = "SAME_UPPER", strides = [2, 2], kernel_shape = [3, 3]>(x)',
}


@pytest.mark.parametrize("target", ["pytorch", "coreml", "tensorflow"])
@pytest.mark.parametrize("layer", LAYERS)
def test_strided_layers(layer, target):
    text = f'<ir_version: 10, opset_import: ["" : 22]> g (float[N,3,H,W] x) => (float[n,c,h,w] y) {{ y = {LAYERS[layer]} }}'
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (4, 3, 3, 4)), ("d", (3, 1, 3, 3))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    report = onnxbridge.convert(model, target).report
    assert report.verdict == "PASSED" and {"H", "W"} <= set(report.varied_sizes)
