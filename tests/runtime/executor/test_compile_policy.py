"""When compiled kernels are taken: never for little work, and without anybody waiting for the compiler in vain."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import availability, cache, compile_policy
from tests.runtime.executor.fused import drawing, model

draw = drawing(3)
CONV = """agraph (float[1,24,24,24] x) => (float[1,24,24,24] y) { a = Conv<pads = [1,1,1,1]>(x, w) y = Relu(a) }"""


@pytest.fixture(autouse=True)
def by_default(monkeypatch):
    monkeypatch.delenv("ONNXBRIDGE_NATIVE")


SMALL = """
import sys
from onnxbridge.cli import main
sys.argv = ["onnxbridge", *sys.argv[1:]]
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
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


@pytest.mark.skipif(not availability.available(), reason="without numba there are no kernels to take")
def test_a_model_that_runs_on_and_on_gets_kernels(monkeypatch):
    monkeypatch.setattr(compile_policy, "COMPILE", 0.0)
    executor = Executor(model(CONV, w=draw(24, 24, 3, 3)))
    x = draw(1, 24, 24, 24)
    (first,) = executor.run(None, {"x": x})
    assert not executor._compiled._kernels
    for _ in range(500):
        if executor._compiled._kernels:
            break
        executor.run(None, {"x": x})
    assert executor._compiled._kernels
    assert [step.native for step in executor._compiled._joined.steps] == [True]
    np.testing.assert_allclose(executor.run(None, {"x": x})[0], first, rtol=1e-4, atol=1e-4)


def test_kernels_that_were_not_compiled_before_have_to_save_more(monkeypatch, tmp_path):
    monkeypatch.setenv("ONNXBRIDGE_CACHE", str(tmp_path))
    cache.folder.cache_clear()
    monkeypatch.setattr(availability, "available", lambda: True)

    def account():
        made = compile_policy.Account(["Conv", "Relu", "Conv", "TopK"])
        made._spent = 1.5 * compile_policy.COMPILE * compile_policy.OF_COMPILE
        return made

    assert not account().pays()
    folder = cache.folder() / "numba"
    folder.mkdir()
    (folder / "convolution.convolve-1.py3.nbi").touch()
    assert account().pays()  # one of two is left to compile
    assert not compile_policy.Account(["TopK"]).pays()
    monkeypatch.setenv("ONNXBRIDGE_NATIVE", "1")
    assert compile_policy.Account([]).pays()
    monkeypatch.undo()
    cache.folder.cache_clear()
