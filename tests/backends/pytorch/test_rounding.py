"""Cases of the standard that the PyTorch backend answers with other last digits than their files: whose are nearer to the truth.

The truth is computed by our executor in float64, which shares nothing with PyTorch.
"""

from __future__ import annotations

import numpy as np
import pytest

from onnxbridge.backends.pytorch import backend
from onnxbridge.runtime import Executor
from tests.backends import standard_cases


def results(name):
    """What the backend gives, what the case's file says, the truth; and the inputs."""
    case = standard_cases.node_cases.cases(lowest=1)[name]
    model = standard_cases.node_cases.model_of(case)
    ((inputs, expected),) = standard_cases.node_cases.data_sets(case)
    feeds = dict(zip((i.name for i in model.graph.input), inputs, strict=True))
    ours = backend.runner(backend.from_hub(standard_cases.hub_of(model)))(feeds)
    exact = Executor(model, precision="float64")
    truth = exact.run(None, feeds)[0]
    first = next(iter(ours.values()))
    return *(np.asarray(v, np.float64) for v in (first, expected[0], truth)), inputs


HALVES = (
    "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded", "test_attention_4d_padded_kv_bf16",
    "test_attention_4d_attn_mask_causal_bf16", "test_attention_3d_causal_bf16_expanded",
)  # fmt: skip


@pytest.mark.parametrize("name", [*HALVES, "test_dft_inverse", "test_dft_inverse_opset19"])
def test_where_they_differ_the_file_is_further_from_the_truth(name):
    ours, files, truth, _ = results(name)
    off = ~np.isclose(ours, files, rtol=1e-3, atol=1e-7)
    assert off.any()
    assert np.abs(ours - truth)[off].max() < np.abs(files - truth)[off].max()


def test_what_is_lost_is_what_rounding_a_place_loses():
    """Where products cancel to nothing, the standard's file has 0 and its tolerance is below one unit of any of them.

    A place in an image of five pixels with its border is rounded to a unit of five, and moves what is read there by that much of
    the largest step between two pixels, for each weight.
    """
    ours, files, truth, (X, W, *_) = results("test_basic_deform_conv_with_padding")
    assert (np.abs(ours - truth) <= 5 * np.finfo(np.float32).eps * np.abs(X).max() * np.abs(W).sum()).all()
    assert np.abs(ours - files).max() > 1e-7
