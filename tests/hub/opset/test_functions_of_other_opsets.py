"""Model-local functions with another opset than the model."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import onnxbridge

TEXT = """<ir_version: 8, opset_import: ["": {model}, "own": 1]>
g (float[N,4] x) => (float[N,4] y) {{
    y = own.F(x)
}}
<domain: "own", opset_import: ["": {function}]>
F (a) => (b) {{
    {mean}
    b = Sub(a, m)
}}"""
MEANS = {
    17: "m = ReduceMean <axes = [1]> (a)",
    18: "axes = Constant <value = int64[1] {1}> ()  m = ReduceMean(a, axes)",
}


@pytest.mark.parametrize(("model", "function"), [(17, 18), (18, 17), (21, 17)])
@pytest.mark.parametrize("to", ["pytorch", "onnx"])
def test_functions_are_converted_from_their_own_opset(model, function, to):
    text = TEXT.format(model=model, function=function, mean=MEANS[function])
    source = onnx.parser.parse_model(text)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    wanted = x - x.mean(1, keepdims=True)
    made = onnxbridge.convert(source, to, verify=False).model  # ONNX Runtime does not load such models
    if to == "onnx":
        found = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]
    else:
        found = made(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-6)
