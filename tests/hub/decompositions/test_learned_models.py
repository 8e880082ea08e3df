"""Models of ai.onnx.ml in a framework that knows nothing of them: one of each operator, as PyTorch programs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxbridge
from tests.hub.decompositions.cases_learned import CASES
from tests.hub.decompositions.compare import alone, inputs_of, run

# PyTorch has no strings, of which a CategoryMapper has some on either side
NUMBERS = [c for c in CASES if all(v.dtype != object for v in inputs_of(c).values()) and not c.op.endswith("CategoryMapper")]
ONE_OF_EACH = {c.op.partition("::")[2]: c for c in reversed(NUMBERS)}


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_to_pytorch(op):
    case = ONE_OF_EACH[op]
    model, expected = alone(case), run(case, alone(case), case.judge)
    del model.graph.output[:]
    for i, value in enumerate(map(np.asarray, expected)):
        dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"y{i}", dtype, value.shape))
    made = onnxbridge.convert(model, to="pytorch", inputs=inputs_of(case))
    assert made.report.passed


SCALER = "Scaler <offset=[1.0, 0.0, 2.0], scale=[2.0, 1.0, 0.5]>"


@pytest.mark.parametrize("call", [SCALER, 'Normalizer <norm="L1">', "Imputer <imputed_value_floats=[1.0]>"])
def test_tells_the_shape_behind(call):
    """onnx infers none of these, and what picks features asks for it."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
        net (float[n, 3] x) => (float[n, 2] y) <int64[2] places = {{2, 0}}> {{
            z = ai.onnx.ml.{call} (x)
            y = ai.onnx.ml.ArrayFeatureExtractor (z, places)
        }}
    """)
    assert onnxbridge.convert(model, to="coreml").report.passed
