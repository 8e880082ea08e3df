"""With NUMBA_DISABLE_JIT=1 every kernel runs as Python, for debugging: the same tests pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxbridge.runtime.executor.kernels import integers
from onnxbridge.runtime.executor.kernels.compile import availability

pytestmark = [
    pytest.mark.skipif(not availability.available(), reason="without numba there are no compiled kernels"),
    pytest.mark.skipif(not integers.available(), reason="this processor has no sums of products of bytes"),
]

TESTS = """
test_dynamic_quantization.py::test_integer_products_with_scales
test_dynamic_quantization.py::test_weights_whose_zero_point_needs_nine_bits test_dynamic_quantization.py::test_lstm
test_fusion.py::test_attention test_fusion.py::test_batch_normalization_of_rows test_fusion.py::test_normalization_per_channel
test_fusion_convolutions.py::test_a_chain_of_image_operators_is_compiled test_fusion_convolutions.py::test_resized_images
test_fusion_convolutions.py::test_shuffled_channels test_fusion.py::test_decomposed_layer_normalization_is_fused
test_fusion.py::test_mean_over_many_pixels test_fusion.py::test_mean_over_rows
test_fusion.py::test_quantization_equals_the_rule_exactly test_fusion.py::test_recurrent_layers[RNN-True-70]
test_fusion.py::test_recurrent_layers[RNN-False-6] test_plans.py::test_compiled_trees_equal_the_rule
test_loop_replay.py::test_iterations_agree_with_onnxruntime test_quantized_models.py::test_addition
test_quantized_models.py::test_max_pool test_quantized_models.py::test_convolutions[int8-int8-False-case0]
test_quantized_models.py::test_convolutions[int8-int8-False-case8]
test_recorded_runs.py::test_work_is_split_between_threads[depthwise]
test_recorded_runs.py::test_work_is_split_between_threads[tall] test_recorded_runs.py::test_work_is_split_between_threads[pools]
test_recorded_runs.py::test_work_is_split_between_threads[gru] test_recorded_runs.py::test_work_is_split_between_threads[lstm]
test_recorded_runs.py::test_work_is_split_between_threads[groups]
"""


@pytest.mark.slow
def test_every_kernel_runs_as_python():
    root, here = Path(__file__).parents[3], "tests/runtime/executor"
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    tests = [f"{here}/{test}" for test in TESTS.split()]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += ["-p", "tests.runtime.executor.kernels_called", *tests]
    ran = subprocess.run(
        command, cwd=root, env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}, capture_output=True, text=True,
        check=False, timeout=900,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "kernels that were not called: none" in ran.stdout, ran.stdout
