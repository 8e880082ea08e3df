"""The cache of compiled kernels, corrupt files in it, and processors with fewer features."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import availability, cache, llvm

pytestmark = pytest.mark.skipif(not availability.available(), reason="without numba there are no compiled kernels")


def run_python(*command, **environment):
    return subprocess.run(
        [sys.executable, *map(str, command)], env={**os.environ, **environment}, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip


def doctor(**environment):
    return run_python("-c", "from onnxbridge.cli import main; main()", "doctor", "--compile", "--json", **environment)


def files_of(folder):
    return sorted((path, path.stat().st_mtime_ns) for path in Path(folder).rglob("*") if path.is_file())


@pytest.mark.slow
def test_kernels_compiled_ahead_of_time_are_loaded_by_later_processes(tmp_path):
    ran = doctor(ONNXBRIDGE_CACHE=str(tmp_path))  # other tests, which run meanwhile, use the usual one
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    found = json.loads(ran.stdout)["native_code"]
    assert found["compiled"] == found["kernels"] > 25
    assert found["folder"] == str(tmp_path / cache.folder().name)
    before = files_of(found["folder"])
    assert found["bytes"] == sum(path.stat().st_size for path, _ in before)
    assert doctor(ONNXBRIDGE_CACHE=str(tmp_path)).returncode == 0
    assert files_of(found["folder"]) == before


def test_doctor_reports_why_kernels_cannot_be_compiled(tmp_path):
    (tmp_path / "file").touch()
    ran = doctor(ONNXBRIDGE_CACHE=str(tmp_path / "file"))
    assert ran.returncode == 2 and "ONNXBRIDGE_CACHE" in ran.stderr
    ran = doctor(ONNXBRIDGE_NATIVE="0")
    assert ran.returncode == 2 and "ONNXBRIDGE_NATIVE=0" in ran.stderr


def test_unused_cache_folders_of_other_versions_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_CACHE", str(tmp_path / "cache"))
    root, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    names = {"old": "kernels-" + "0" * 16, "used": "kernels-" + "1" * 16, "link": "kernels-" + "2" * 16,
             "shared": "kernels-" + "3" * 16, "other": "kernels-of-mine", "file": "kernels-" + "4" * 16}  # fmt: skip
    for name in ("old", "used", "shared", "other"):
        (root / names[name] / "loops").mkdir(parents=True)
        (root / names[name] / "loops" / "a.nbi").touch()
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    (root / names["link"]).symlink_to(elsewhere)
    (root / names["old"] / "loops" / "link").symlink_to(elsewhere)
    (root / names["file"]).touch()
    (root / names["shared"]).chmod(0o777)
    for name, known in names.items():
        days = 29 if name == "used" else 31
        os.utime(root / known, (then := time.time() - days * 24 * 60 * 60, then), follow_symlinks=False)
    cache.folder.cache_clear()
    try:
        made = cache.folder()
        assert {path.name for path in root.iterdir()} == {made.name, *names.values()} - {names["old"]}
        assert (elsewhere / "mine").exists()
        (root / names["old"]).mkdir()
        os.utime(root / names["old"], (then, then))
        os.utime(made, (then, then))
        cache.folder.cache_clear()
        assert cache.folder() == made and (root / names["old"]).exists(), "folders are deleted only when a new one is created"
        assert time.time() - made.stat().st_mtime < 60, "the modification time is that of the last use"
    finally:
        monkeypatch.undo()
        cache.folder.cache_clear()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no file modes")
def test_a_cache_folder_writable_or_owned_by_others_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_CACHE", str(tmp_path))
    cache.folder.cache_clear()
    folder = cache.folder()
    assert folder is not None and folder.stat().st_mode & 0o777 == 0o700
    for mode, found in ((0o755, folder), (0o775, None), (0o777, None)):
        folder.chmod(mode)
        cache.folder.cache_clear()
        assert cache.folder() == found
    folder.chmod(0o700)
    for mode, found in ((0o777, None), (0o1777, folder)):  # others may rename the folder, unless the bit for /tmp is set
        tmp_path.chmod(mode)
        cache.folder.cache_clear()
        assert cache.folder() == found
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    cache.folder.cache_clear()
    assert cache.folder() is None
    monkeypatch.undo()
    cache.folder.cache_clear()


ONE = """
import numpy as np
from onnxbridge.runtime.executor.kernels import array_layout
from onnxbridge.runtime.executor.kernels.compile import kernel
from onnxbridge.runtime.executor.kernels.numba import tiles
x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
kernel.load_kernel("rows", "softmax")(array_layout.address(x), array_layout.address(y), 2, 3, 2)
np.testing.assert_allclose(y[:3], np.exp(x[:3]) / np.exp(x[:3]).sum(), rtol=1e-6)
"""


def one_bit_changed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    return bytes(content)


@pytest.mark.slow
def test_corrupt_cache_files_are_recompiled(tmp_path):
    assert run_python("-c", ONE, ONNXBRIDGE_CACHE=str(tmp_path)).returncode == 0
    files = [path for path, _ in files_of(tmp_path)]
    assert any(path.suffix == ".nbc" for path in files)
    if llvm.tiled():
        assert any(path.suffix == ".o" for path in files)
    for content in (lambda path: path.read_bytes()[:-100], lambda path: b"", lambda path: b"\x80nothing" * 50, one_bit_changed):
        for path in files:
            path.write_bytes(content(path))
        for _ in range(2):
            before = files_of(tmp_path)
            ran = run_python("-c", ONE, ONNXBRIDGE_CACHE=str(tmp_path))
            assert ran.returncode == 0 and not ran.stderr, ran.stderr
        assert files_of(tmp_path) == before  # the second run loaded everything from the cache


@pytest.mark.slow
def test_cache_files_that_others_can_write_are_recompiled(tmp_path):
    run_python("-c", ONE, ONNXBRIDGE_CACHE=str(tmp_path))
    (compiled,) = tmp_path.rglob("rows.softmax-*.nbc")
    compiled.chmod(0o666)
    compiled.write_bytes(one_bit_changed(compiled))
    ran = run_python("-c", ONE, ONNXBRIDGE_CACHE=str(tmp_path))
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    (again,) = tmp_path.rglob("rows.softmax-*.nbc")
    assert again.stat().st_mode & 0o022 == 0


@pytest.mark.slow
def test_several_processes_compile_at_once(tmp_path):
    command = [sys.executable, "-c", ONE]
    started = [
        subprocess.Popen(command, env={**os.environ, "ONNXBRIDGE_CACHE": str(tmp_path)}, stderr=subprocess.PIPE) for _ in range(3)
    ]
    for process in started:
        _, text = process.communicate(timeout=600)
        assert process.returncode == 0, text


def test_a_kernel_is_compiled_by_one_process_at_a_time():
    pytest.importorskip("fcntl", reason="this system has no locks of files")
    entered = threading.Event()

    def enter():
        with cache.locked("rows", "softmax"):
            entered.set()

    with cache.locked("rows", "softmax"):
        with cache.locked("rows", "log_softmax"):
            thread = threading.Thread(target=enter)
            thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(60)
    thread.join()


PROGRAM = """
import sys, numpy as np
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.compile import byte_tiles, llvm
with np.load(sys.argv[2]) as file:
    (y,) = Executor(sys.argv[1]).run(None, {"x": file["x"]})
np.save(sys.argv[3], y)
print(llvm.lanes(), llvm.tiled(), byte_tiles.lanes())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [("haswell", "+avx2,+fma,+avx,+sse4.2,+f16c,+bmi2", ["8", "True", "0"]), ("x86-64", "+sse2", ["16", "False", "0"])],
)
def test_processors_with_shorter_vectors_give_the_same_results(tmp_path, name, features, expected):
    if not llvm.feature("avx2"):
        pytest.skip("this processor has no AVX2")
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
    arguments = [tmp_path / name for name in ("net.onnx", "x.npz", "y.npy")]
    ran = run_python("-c", PROGRAM, *arguments, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == expected
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), Executor(proto).run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_the_cache_folder_of_numba_is_unchanged():
    program = """
import numba
before = numba.config.CACHE_DIR
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
load_kernel("rows", "softmax")
assert before == numba.config.CACHE_DIR
"""
    ran = run_python("-c", program)
    assert ran.returncode == 0, ran.stderr
