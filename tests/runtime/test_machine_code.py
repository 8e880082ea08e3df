"""Object files: linked here or by LLVM, and made for processors with less than this one."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from onnxbridge.runtime.native import link, machine, placed, presence

pytestmark = pytest.mark.skipif(not presence.available(), reason="without llvmlite there is no machine code")

ADDS = """
define i64 @added(i64 %a, i64 %b) {
 %p = load i64, ptr @more
 %s = add i64 %a, %b
 %t = call i64 @taken(i64 %s)
 %u = add i64 %t, %p
 ret i64 %u
}
@more = internal constant i64 40
declare i64 @taken(i64)
"""
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@pytest.mark.parametrize("by_llvm", [False, True])
def test_code_that_calls_other_code_and_reads_constants(by_llvm, monkeypatch):
    triple = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 3 * x)
    machine.symbol("taken", ctypes.cast(triple, ctypes.c_void_p).value)
    if by_llvm:
        monkeypatch.setattr(machine, "linked", lambda *_: None)
    (address,) = machine.loaded(machine.assembled(ADDS), "added")
    assert FUNCTION(address)(2, 5) == 3 * 7 + 40


def test_what_is_no_object_file_of_this_system_is_left_to_llvm():
    image = machine.assembled(ADDS)
    assert link.linked(b"\x7fELF\x01" + image[5:], {"taken": 1}) is None
    assert link.linked(b"MZ" + image[2:], {"taken": 1}) is None
    if placed.possible():
        assert set(link.linked(image, {"taken": 1})) == {"added"}
        assert link.linked(image, {}) is None  # nobody has the function that it calls


MIXED = """
import sys
from onnxbridge.runtime.native import build, presence
build.loop("layout", "interleaved")
presence.folder.cache_clear()
assert "llvmlite" not in sys.modules
presence.os.environ["ONNXBRIDGE_CACHE"] = sys.argv[1]
build.loop("recurrent", "lstm")
"""


@pytest.mark.skipif(not placed.possible(), reason="elsewhere LLVM loads everything")
def test_what_is_compiled_late_finds_what_was_loaded_early(tmp_path):
    from onnxbridge.runtime.native.build import loop

    loop("layout", "interleaved")  # kept from now on
    command = [sys.executable, "-c", MIXED, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


ALL = """
import os, sys
from onnxbridge.runtime.native import ahead, build
for module, name in ahead.loops():
    build.loop(module, name)
assert not os.environ.get("LINKED") or "llvmlite" not in sys.modules
print(len(ahead.loops()))
"""


def doctor(folder, **more):
    command = [sys.executable, "-c", "from onnxbridge.cli import main; main()", "doctor", "--compile", "--json"]
    environment = {**os.environ, "ONNXBRIDGE_CACHE": str(folder), **more}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_all_loops_compiled_ahead_of_time_are_all_that_is_needed(tmp_path):
    ran = doctor(tmp_path)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    found = json.loads(ran.stdout)["machine_code"]
    files = list((tmp_path / "native").glob("*.o"))
    assert found["compiled"] == found["loops"] > 25
    assert found["folder"] == str(tmp_path / "native") and found["bytes"] == sum(f.stat().st_size for f in files)
    linked = "1" if placed.possible() else ""
    environment = {**os.environ, "ONNXBRIDGE_CACHE": str(tmp_path), "LINKED": linked}
    ran = subprocess.run([sys.executable, "-c", ALL], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and int(ran.stdout) == found["loops"], ran.stderr
    assert sorted((tmp_path / "native").glob("*.o")) == sorted(files)  # nothing had to be made


def test_what_is_in_the_way_of_compiling_is_told(tmp_path):
    (tmp_path / "file").touch()
    ran = doctor(tmp_path / "file")
    assert ran.returncode == 2 and "ONNXBRIDGE_CACHE" in ran.stderr
    ran = doctor(tmp_path, ONNXBRIDGE_NATIVE="0")
    assert ran.returncode == 2 and "ONNXBRIDGE_NATIVE=0" in ran.stderr


def test_an_older_llvmlite_is_left_alone(tmp_path):
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").touch()
    (tmp_path / "llvmlite" / "_version.py").write_text("version_version = '0.44.0'")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = doctor(tmp_path, PYTHONPATH=path)
    assert ran.returncode == 5 and "pip install 'llvmlite>=0.45'" in ran.stderr


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only the administrator's files are taken from another")
def test_object_files_of_the_administrator_are_used_where_nobody_else_may_write(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    for mode, folder in ((0o755, tmp_path / "native"), (0o777, None), (0o775, None)):
        (tmp_path / "native").mkdir(exist_ok=True)
        (tmp_path / "native").chmod(mode)
        presence.folder.cache_clear()
        assert machine.object_files() == folder
    presence.folder.cache_clear()


PROGRAM = """
import sys, numpy as np, onnx
from onnxbridge.runtime import Executor
from onnxbridge.runtime.native import machine, quantized
with np.load(sys.argv[2]) as file:
    (y,) = Executor(sys.argv[1]).run(None, {"x": file["x"]})
np.save(sys.argv[3], y)
print(machine.lanes(), machine.registers(), quantized.lanes())
"""


@pytest.mark.skipif(not placed.possible(), reason="the processor that is pretended is an x86-64 under Linux")
def test_a_processor_with_shorter_vectors(tmp_path):
    import onnx
    from onnx import numpy_helper, parser

    from onnxbridge.runtime import Executor

    if not machine.feature("avx2"):
        pytest.skip("this processor has no AVX2 to pretend")
    rng = np.random.default_rng(1)
    text = """<ir_version: 10, opset_import: ["" : 26]> agraph (float[1,20,9,9] x) => (float[1,9] y) {
        a = Conv<pads = [1,1,1,1]>(x, w1) b = Relu(a) c = Conv<group = 20>(b, w2) d = HardSwish(c) e = GlobalAveragePool(d)
        f = Flatten(e) y = MatMul(f, w3) }"""
    proto = parser.parse_model(text)
    shapes = {"w1": (20, 20, 3, 3), "w2": (20, 1, 3, 3), "w3": (20, 9)}
    proto.graph.initializer.extend(
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), name) for name, s in shapes.items()
    )
    onnx.save(proto, tmp_path / "net.onnx")
    x = rng.standard_normal((1, 20, 9, 9)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    folder = tmp_path / "cache" / "native"
    folder.mkdir(parents=True)
    features = "+avx2,+fma,+avx,+sse4.2,+f16c,+bmi2"
    few = {"llvm": "0", "triple": machine.triple(), "cpu": "haswell", "features": features}
    file = machine._facts_file()
    assert file is not None
    (folder / file.name).write_text(json.dumps(few))
    environment = {**os.environ, "ONNXBRIDGE_CACHE": str(tmp_path / "cache"), "ONNXBRIDGE_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", ALL], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and int(ran.stdout) > 20, ran.stderr
    arguments = [str(tmp_path / name) for name in ("net.onnx", "x.npz", "y.npy")]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["8", "16", "0"]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), Executor(proto).run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)
