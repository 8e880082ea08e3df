"""With NUMBA_DISABLE_JIT=1 every kernel is run by Python: the same tests pass, and a debugger stops where one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxbridge.runtime.executor.kernels.compile import availability

pytestmark = pytest.mark.skipif(not availability.available(), reason="without numba there are no compiled kernels")

TESTS = """
test_dynamic_quantization.py::test_products_with_their_scales test_dynamic_quantization.py::test_weights_that_need_nine_bits
test_dynamic_quantization.py::test_lstm
test_fusion.py::test_attention test_fusion.py::test_norms_of_rows test_fusion.py::test_norms_of_channels
test_fusion_convolutions.py::test_a_chain_in_one_layout test_fusion_convolutions.py::test_resized_pictures
test_fusion_convolutions.py::test_shuffled_channels
test_fusion.py::test_layer_normalization_written_out test_fusion.py::test_means_of_many_pixels
test_fusion.py::test_means_of_rows
test_fusion.py::test_quantization_is_exactly_that_of_the_rule test_fusion.py::test_recurrent_layers[RNN-True-70]
test_fusion.py::test_recurrent_layers[RNN-False-6]
test_plans.py::test_trees_are_walked_as_by_the_rule test_loop_replay.py::test_trips_agree_with_onnxruntime
test_quantized_models.py::test_sums test_quantized_models.py::test_maxima
test_quantized_models.py::test_convolutions[int8-int8-False-case0]
test_quantized_models.py::test_convolutions[int8-int8-False-case8] test_recorded_runs.py::test_threads_share_the_work[depthwise]
test_recorded_runs.py::test_threads_share_the_work[tall] test_recorded_runs.py::test_threads_share_the_work[pools]
test_recorded_runs.py::test_threads_share_the_work[gru] test_recorded_runs.py::test_threads_share_the_work[lstm]
test_recorded_runs.py::test_threads_share_the_work[groups]
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
