"""Operators of ai.onnx.ml converted to PyTorch and Core ML, which have no such operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxbridge
from tests.hub.decompositions.cases_onnx_ml import CASES
from tests.hub.decompositions.compare import feeds_of, run, single_node_model

# PyTorch has no strings; CategoryMapper has string inputs or outputs
NUMERIC_CASES = [c for c in CASES if all(v.dtype != object for v in feeds_of(c).values()) and not c.op.endswith("CategoryMapper")]
CASE_BY_OPERATOR = {c.op.partition("::")[2]: c for c in reversed(NUMERIC_CASES)}


@pytest.mark.parametrize("op", CASE_BY_OPERATOR)
def test_to_pytorch(op):
    case = CASE_BY_OPERATOR[op]
    model, expected = single_node_model(case), run(case, single_node_model(case), case.reference)
    del model.graph.output[:]
    for i, value in enumerate(map(np.asarray, expected)):
        dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"y{i}", dtype, value.shape))
    conversion = onnxbridge.convert(model, to="pytorch", inputs=feeds_of(case))
    assert conversion.report.passed


SCALER = "Scaler <offset=[1.0, 0.0, 2.0], scale=[2.0, 1.0, 0.5]>"


@pytest.mark.parametrize("call", [SCALER, 'Normalizer <norm="L1">', "Imputer <imputed_value_floats=[1.0]>"])
def test_shapes_are_inferred_after_preprocessing_operators(call):
    """onnx infers none of these shapes, which ArrayFeatureExtractor needs."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
        net (float[n, 3] x) => (float[n, 2] y) <int64[2] indices = {{2, 0}}> {{
            z = ai.onnx.ml.{call} (x)
            y = ai.onnx.ml.ArrayFeatureExtractor (z, indices)
        }}
    """)
    assert onnxbridge.convert(model, to="coreml").report.passed
