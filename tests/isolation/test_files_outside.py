"""What a conversion touches: it writes into the folder of its output and nowhere else, and reads nothing beside the model."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz_readers.readers import PLAIN, READERS, onnx_seeds

pytestmark = pytest.mark.slow

NAMES = ("onnx", "torchscript", "pt2", "keras", "hdf5", "saved-model", "graphdef", "tflite", "coreml")
INPUTS = {"torchscript": "x:float32[2,3,8,8]"}
KEPT_BY_PYTORCH = re.compile(r"torchinductor_\w+")  # its cache, which it makes in the folder for temporary files
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|^(?:rename|mkdir|unlink|rmdir|link|symlink|creat|chmod|truncate)")
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]+)"')


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    found = {}
    for name in NAMES:
        (folder / name).mkdir()
        seeds = onnx_seeds(folder / name, PLAIN) if name == "onnx" else READERS[name].seeds(folder / name)
        found[name] = seeds[0]
    return found


class Place:
    """Folders for everything that a command could touch, each with a file that is none of its business."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        for name in ("home", "tmp", "cache", "here", "models", "out"):
            (folder / name).mkdir()
        self.canaries = [folder / "home" / ".secret", folder / "here" / "secret", folder / "secret"]
        for canary in self.canaries:
            canary.write_text("unchanged")
        self.source = folder / "models" / source.name
        shutil.copytree(source.parent, folder / "models", dirs_exist_ok=True)
        self.before = self.files("models")

    def files(self, name: str) -> dict[str, bytes]:
        root = self.folder / name
        return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else b"" for p in root.rglob("*")}

    def run(self, *command: str) -> None:
        environment = {
            "PATH": os.defpath, "HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp"),
            "ONNXBRIDGE_CACHE": str(self.folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8",
        }  # fmt: skip
        ran = subprocess.run(command, cwd=self.folder / "here", env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    @staticmethod
    def output(name: str) -> str:
        return "net.pt2" if name == "onnx" else "net.onnx"

    def convert(self, name: str) -> list[str]:
        given = ["--inputs", INPUTS[name]] if name in INPUTS else []
        target = str(self.folder / "out" / self.output(name))
        return [sys.executable, "-m", "onnxbridge", "convert", str(self.source), "-o", target, *given]


@pytest.mark.parametrize("name", NAMES)
def test_a_conversion_writes_only_its_output(sources, name, tmp_path):
    place = Place(tmp_path, sources[name])
    place.run(*place.convert(name))
    assert all(canary.read_text() == "unchanged" for canary in place.canaries)
    assert place.files("home").keys() == {".secret"}
    assert place.files("here").keys() == {"secret"}
    assert place.files("models") == place.before
    assert os.listdir(tmp_path / "out") == [place.output(name)]
    assert not [left for left in place.files("tmp") if not KEPT_BY_PYTORCH.match(left)]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which lists what a process opens, is not installed")
@pytest.mark.parametrize("name", ["torchscript", "saved-model", "coreml"])
def test_a_conversion_opens_nothing_else(sources, name, tmp_path):
    place = Place(tmp_path, sources[name])
    log = tmp_path / "log"
    calls = "trace=open,openat,creat,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat"
    place.run("strace", "-f", "-y", "--seccomp-bpf", "-qq", "-e", calls, "-o", str(log), *place.convert(name))
    allowed = tuple(str(tmp_path / name) for name in ("tmp", "cache", "out")) + ("/dev/", "/proc/", "/memfd:")
    outside, opened = [], set()
    for line in log.read_text(errors="replace").splitlines():
        call = line.partition(" ")[2].lstrip()
        paths = [os.path.join(place.folder / "here", start, path) for start, path in PATH.findall(call)]
        if " = -1 " in call or not paths:
            continue
        opened.update(paths)
        if WRITES.search(call) and not all(path.startswith(allowed) for path in paths):
            outside.append(call)
    assert str(place.source) in opened or any(path.startswith(f"{place.source}/") for path in opened)  # the log is one
    assert not outside
    assert not {str(canary) for canary in place.canaries} & opened
