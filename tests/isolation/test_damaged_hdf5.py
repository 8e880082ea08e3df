"""Keras files on which the HDF5 library runs without end, allocates gigabytes or crashes end in one line, soon."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from onnxbridge.hub.io import process_limits

MODEL = """
import sys, keras
layers = [keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, name="convolution"), keras.layers.Flatten(), keras.layers.Dense(2)]
keras.Sequential(layers).save(sys.argv[1])
"""


def _heap_object(content: bytes, text: bytes) -> int:
    """Where the size of a text stands in HDF5's heap of texts of variable length (H5HG in the format's specification)."""
    return content.index(text, content.index(b"GCOL")) - 8


def larger_text(content: bytearray) -> None:
    """The heap's next object begins in its free space, where sizes are 0: the library then reads the same object for ever."""
    at = _heap_object(content, b"convolution\0")
    content[at + 1] = 3


def endless_heap(content: bytearray) -> None:
    """The heap has 2^48 bytes."""
    at = content.index(b"GCOL")
    content[at + 8 : at + 16] = (1 << 48).to_bytes(8, "little")


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("keras") / "net.h5"
    subprocess.run([sys.executable, "-c", MODEL, path], check=True, capture_output=True)
    return path


@pytest.mark.parametrize(("damage", "code"), [(larger_text, 6), (endless_heap, 4)])
def test_a_damaged_heap_ends_soon(honest, tmp_path, damage, code):
    content = bytearray(honest.read_bytes())
    damage(content)
    (tmp_path / "net.h5").write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "onnxbridge", "inspect", "--isolate", tmp_path / "net.h5"]
    made = subprocess.run(command, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert made.returncode == code, made.stderr
    assert len(made.stderr.strip().splitlines()) == 1
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20


def test_a_dataset_larger_than_its_file_can_hold_is_rejected(tmp_path):
    from onnxbridge.errors import UnsafeFileError
    from onnxbridge.frontends.tensorflow.saved_model import hdf5_checks

    with h5py.File(tmp_path / "net.h5", "w") as file:
        file.create_dataset("packed", data=np.zeros(100_000), compression="gzip")
        file["empty"] = h5py.Empty("f")
        file["scalar"], file["text"], file["no rows"] = np.float32(1), "a", np.zeros((0, 3))
        file.attrs["list"] = np.dtype("f4").str
    hdf5_checks.check(tmp_path / "net.h5", "keras-h5")
    with h5py.File(tmp_path / "net.h5", "a") as file:
        file.create_dataset("declared", (1 << 40,), "f4", chunks=(1 << 20,))
    with pytest.raises(UnsafeFileError, match="declared' has 4,398,046,511,104 bytes"):
        hdf5_checks.check(tmp_path / "net.h5", "keras-h5")


def _run(code: str) -> int:
    start = "from onnxbridge.hub.io import process_limits as p; import h5py, time, os\np.in_isolated_process()\n"
    return subprocess.run([sys.executable, "-c", start + code], capture_output=True).returncode


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the memory in use is read from /proc")
def test_limits_of_a_step_hold_in_it_and_not_after_it():
    assert _run("with p.limited_cpu(1):\n  while True: pass") < 0
    assert _run("with p.limited_cpu(0.5): pass\nend = time.process_time() + 2.5\nwhile time.process_time() < end: pass") == 0
    assert _run("with p.limited_memory(1 << 26): bytearray(1 << 25)\nbytearray(1 << 27)") == 0
    assert _run("with p.limited_memory(1 << 26): bytearray(1 << 27)") == 1


def test_datasets_larger_than_the_memory_of_a_step_are_read(tmp_path):
    with h5py.File(tmp_path / "net.h5", "w") as file:
        file.create_dataset("large", data=np.random.default_rng(0).random(1 << 23))
    with zipfile.ZipFile(tmp_path / "net.keras", "w") as archive:
        archive.write(tmp_path / "net.h5", "model.weights.h5")
    code = "from onnxbridge.frontends.tensorflow.saved_model import hdf5_checks as h\nh._MEMORY, h._BLOCK = 64 << 20, 1 << 20\n"
    for name, kind in (("net.h5", "keras-h5"), ("net.keras", "keras")):
        assert _run(f"{code}h.check({str(tmp_path / name)!r}, {kind!r})") == 0


def test_nothing_is_limited_in_the_users_own_process():
    before = [resource.getrlimit(kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_DATA)]
    with process_limits.limited_cpu(0), process_limits.limited_memory(0):
        assert [resource.getrlimit(kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_DATA)] == before
