"""Models run without Numba, and on systems that the compiled tiles do not support."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor

NET = """<ir_version: 10, opset_import: ["" : 26]> agraph (float[n,3,12,12] x) => (float[n,8,12,12] y, float[n,4] z) {
    a = Conv<pads = [1,1,1,1]>(x, w) b = Relu(a) t = Tanh(b) y = Mul(t, b) m = GlobalAveragePool(y) f = Flatten(m)
    z = Gemm(f, v) }"""
RUN = """
import platform, sys
import numpy as np, onnx, onnx_ir, ml_dtypes
{pretend}
from onnxbridge.runtime import Executor
executor = Executor(sys.argv[1])
x = np.load(sys.argv[2])
runs = [executor.run(None, {{"x": v}}) for v in (x, x, x[::-1].copy(), x)]
executor = Executor(sys.argv[1])
runs.append(executor.run(None, {{"x": x}}))
np.savez(sys.argv[3], *[a for run in runs for a in run])
"""
SYSTEMS = {
    "another system": "import llvmlite.binding; sys.platform = 'win32'",  # llvmlite loads the library of this system
    "without numba": "sys.modules['numba'] = sys.modules['llvmlite'] = None",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SYSTEMS)
def test_models_run_without_compiled_kernels(tmp_path, kind):
    if "llvmlite" in SYSTEMS[kind]:
        pytest.importorskip("llvmlite")
    rng = np.random.default_rng(2)
    net = parser.parse_model(NET)
    weights = {"w": rng.standard_normal((8, 3, 3, 3)), "v": rng.standard_normal((8, 4))}
    net.graph.initializer.extend(numpy_helper.from_array(a.astype(np.float32), k) for k, a in weights.items())
    onnx.save(net, tmp_path / "net.onnx")
    x = rng.standard_normal((2, 3, 12, 12)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    files = [str(tmp_path / name) for name in ("net.onnx", "x.npy", "found.npz")]
    command = [sys.executable, "-c", RUN.format(pretend=SYSTEMS[kind]), *files]
    subprocess.run(command, check=True, timeout=300)
    found = [a for _, a in np.load(files[2]).items()]
    forward, reversed_ = (Executor(net, precision="float64").run(None, {"x": v}) for v in (x, x[::-1]))
    for got, expected in zip(found, [*forward, *forward, *reversed_, *forward, *forward], strict=True):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
