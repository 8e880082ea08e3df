"""The test cases of all decompositions: attributes, dtypes, shapes, edge values."""

from __future__ import annotations

from tests.hub.decompositions import cases_images, cases_numbers, cases_onnx_ml, cases_shapes

CASES = [
    *cases_numbers.CASES,
    *cases_shapes.CASES,
    *cases_images.CASES,
    *cases_onnx_ml.CASES,
]
