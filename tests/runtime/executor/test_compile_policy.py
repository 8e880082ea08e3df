"""When kernels are compiled: only if the work of a model justifies the compilation time."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import availability, cache, compile_policy, kernel
from tests.runtime.executor.fused import EPS, model, normal_arrays

draw = normal_arrays(3)
with_numba = pytest.mark.skipif(not availability.available(), reason="without numba there are no compiled kernels")
CONV = """agraph (float[1,24,24,24] x) => (float[1,24,24,24] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Relu(a) }"""
CONV_ERROR = 8 * np.sqrt(24 * 9) * EPS  # rounding error of a sum of so many terms, relative to the largest result


@pytest.fixture(autouse=True)
def by_default(monkeypatch):
    monkeypatch.delenv("ONNXBRIDGE_NATIVE")


SMALL = """
import sys
from onnxbridge.cli import main
sys.argv = ["onnxbridge", *sys.argv[1:]]
try:
    main()
except SystemExit as e:
    assert not e.code, e.code
loaded = {name.partition(".")[0] for name in sys.modules} & {"numba", "llvmlite"}
assert not loaded, loaded
"""


@pytest.mark.parametrize("command", ["convert", "verify"])
def test_small_models_are_converted_and_verified_without_numba(command, network_file, tmp_path):
    out = tmp_path / "out.onnx"
    arguments = ["convert", network_file, "--to", "onnx", "-o", out, "--opset", "18"]
    if command == "verify":
        subprocess.run([sys.executable, "-m", "onnxbridge", *map(str, arguments)], check=True, capture_output=True, timeout=300)
        arguments = ["verify", network_file, out]
    ran = subprocess.run(
        [sys.executable, "-c", SMALL, *map(str, arguments)], env=dict(os.environ), capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """An empty kernel cache, on disk and in memory."""
    monkeypatch.setenv("ONNXBRIDGE_CACHE", str(tmp_path))
    cache.folder.cache_clear()
    kernel.load_kernel.cache_clear()
    yield
    monkeypatch.undo()
    cache.folder.cache_clear()


def work_of_a_run(proto, x):
    executor = Executor(proto, native=False)
    executor.run(None, {"x": x})
    return executor.work


@with_numba
def test_kernels_are_loaded_after_enough_work(monkeypatch):
    monkeypatch.setattr(compile_policy, "COMPILE", 0)
    executor = Executor(model(CONV, w=draw(24, 24, 3, 3)))
    x = draw(1, 24, 24, 24)
    (first,) = executor.run(None, {"x": x})
    each = executor.work
    assert 24**4 * 9 < each < compile_policy.LOAD
    for n in range(2, 500):
        if executor.work >= compile_policy.LOAD:
            break
        executor.run(None, {"x": x})
        assert executor.work == n * each, "each run counts the same work, regardless of its duration"
    work = executor.work
    (last,) = executor.run(None, {"x": x})
    assert executor.work == work, "the run used compiled kernels, which count no work"
    np.testing.assert_allclose(last, first, rtol=0, atol=CONV_ERROR * np.abs(first).max())


@with_numba
@pytest.mark.parametrize("other", [False, True], ids=["no kernel", "another kernel"])
def test_uncached_kernels_are_compiled_only_after_more_work(other, monkeypatch, empty_cache):
    monkeypatch.setattr(compile_policy, "LOAD", 0)
    if other:
        (cache.folder() / "numba").mkdir()
        (cache.folder() / "numba" / "trees.ensemble-1.py3.nbi").touch()
    proto, x = model(CONV, w=draw(24, 24, 3, 3)), draw(1, 24, 24, 24)
    each = work_of_a_run(proto, x)
    monkeypatch.setattr(compile_policy, "COMPILE", 3 * each)
    executor = Executor(proto)
    (first,) = executor.run(None, {"x": x})
    for n in range(2, 4):
        executor.run(None, {"x": x})
        assert executor.work == n * each and not cache.has("convolution", "convolve")
    (last,) = executor.run(None, {"x": x})
    assert executor.work == 3 * each, "the run used compiled kernels, which count no work"
    np.testing.assert_allclose(last, first, rtol=0, atol=CONV_ERROR * np.abs(first).max())


@with_numba
def test_a_model_with_kernels_compiles_further_ones():
    account = compile_policy.Account()
    with pytest.raises(compile_policy.TooEarly), account.guarding():
        compile_policy.check("no", "kernel")
    assert not account.pays()
    account.compiles = True
    with account.guarding():
        compile_policy.check("no", "kernel")


def test_native_false_runs_every_step_in_python(monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", "1")
    executor = Executor(model(CONV, w=draw(24, 24, 3, 3)), native=False)
    for n in range(1, 4):
        executor.run(None, {"x": draw(1, 24, 24, 24)})
        assert executor.work >= n * 24**4 * 9
    assert {step.runs for step in executor.explain()} == {"Python"}


WAITING = """
import sys
import numpy as np, onnx
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import compile_policy
compile_policy.LOAD = 0
executor = Executor(sys.argv[1])
for _ in range(3):
    executor.run(None, {"x": np.ones((1, 24, 24, 24), np.float32)})
assert executor.work
assert not {"numba", "llvmlite"} & set(sys.modules)
"""


def test_missing_kernels_are_detected_without_importing_numba(tmp_path):
    path = tmp_path / "conv.onnx"
    onnx.save(model(CONV, w=draw(24, 24, 3, 3)), path)
    environment = {**os.environ, "ONNXBRIDGE_CACHE": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", WAITING, str(path)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
