"""Node test cases where the PyTorch backend differs from the expected outputs in the last digits: which is closer to the exact
result.

The exact result is computed by our executor in float64, independently of PyTorch.
"""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.backends.pytorch import backend
from onnxbridge.runtime import Executor
from tests.backends import standard_cases


def results(name):
    """The backend's result, the expected one, the float64 one, and the inputs."""
    case = standard_cases.node_cases.cases(lowest=1)[name]
    model = standard_cases.node_cases.model_of(case)
    ((inputs, expected),) = standard_cases.node_cases.data_sets(case)
    feeds = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
    ours = backend.runner(backend.from_hub(standard_cases.hub_of(model)))(feeds)
    executor = Executor(model, precision="float64")
    exact = executor.run(None, feeds)[0]
    first = next(iter(ours.values()))
    return *(np.asarray(v, np.float64) for v in (first, expected[0], exact)), inputs


HALF_PRECISION = (
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded", "test_attention_4d_padded_kv_bf16",
    "test_attention_4d_attn_mask_causal_bf16", "test_attention_3d_causal_bf16_expanded",
)  # fmt: skip


@pytest.mark.parametrize("name", [*HALF_PRECISION, "test_dft_inverse", "test_dft_inverse_opset19"])
def test_where_they_differ_the_expected_output_is_less_accurate(name):
    ours, expected_output, exact, _ = results(name)
    differs = ~np.isclose(ours, expected_output, rtol=1e-3, atol=1e-7)  # the tolerance of onnx's test cases
    assert differs.any()
    assert np.abs(ours - exact)[differs].max() < np.abs(expected_output - exact)[differs].max()


def test_the_error_is_bounded_by_coordinate_rounding():
    """Where products cancel to 0, the expected output is 0 and its tolerance is below one unit of any product.

    A coordinate in a padded five-pixel image is rounded to a unit of five, which changes the sampled value by that times the
    largest difference between two pixels, for each weight.
    """
    ours, expected_output, exact, (X, W, *_) = results("test_basic_deform_conv_with_padding")
    assert (np.abs(ours - exact) <= 5 * np.finfo(np.float32).eps * np.abs(X).max() * np.abs(W).sum()).all()
    assert np.abs(ours - expected_output).max() > 1e-7
