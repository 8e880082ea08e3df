"""What the command line writes: never the source, never something else, never through a link, and whole or not at all."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnxbridge import atomic_write
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


@pytest.mark.parametrize("way", ["itself", "link", "hard link", "by a folder's link"])
def test_the_source_is_never_replaced(cli, network_file, tmp_path, way):
    before, target = network_file.read_bytes(), network_file
    if way == "link":
        target = tmp_path / "other.onnx"
        target.symlink_to(network_file)
        target, source = network_file, target
    elif way == "hard link":
        source, target = network_file, tmp_path / "other.onnx"
        os.link(network_file, target)
    elif way == "by a folder's link":
        (tmp_path / "folder").symlink_to(tmp_path)
        source, target = network_file, tmp_path / "folder" / "net.onnx"
    else:
        source = network_file
    ran = cli("convert", source, "-o", target, "--force")
    assert ran.code == 2 and "belongs to the source, which is never replaced" in ran.err
    assert cli("opset", source, "--to", 20, "-o", target, "--force").code == 2
    assert cli("verify", source, source, "--report", target, "--force").code == 2
    assert network_file.read_bytes() == before


def test_the_weights_beside_the_source_are_never_replaced(cli, tmp_path):
    large_network(tmp_path / "a.onnx", external=True)
    os.rename(tmp_path / "a.onnx", tmp_path / "b.onnx")  # whose weights are in a.onnx.data still
    ran = cli("opset", tmp_path / "b.onnx", "--to", 20, "-o", tmp_path / "a.onnx.data", "--force")
    assert ran.code == 2 and "belongs to the source" in ran.err


def test_a_factory_s_own_module_is_never_replaced(cli, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "factory.py").write_text("import torch\n\ndef make():\n    return torch.nn.Linear(3, 2)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = content(tmp_path)
    ran = cli("convert", "factory:make", "--to", "pytorch", "--inputs", "x:float32[N,3]", "-o", "factory.py", "--force")
    assert ran.code == 2 and "belongs to the source" in ran.err and before.items() <= content(tmp_path).items()


def test_a_folder_that_is_no_model_is_never_replaced(cli, network_file, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("chapter 1")
    ran = cli("convert", network_file, "-o", tmp_path / "home", "--force")
    assert ran.code == 2 and "not a model" in ran.err and (tmp_path / "home" / "thesis.tex").exists()


def test_a_failed_artifact_of_before_is_kept(cli, network_file, tmp_path, monkeypatch):
    from onnxbridge.backends.onnx import OnnxBackend

    monkeypatch.setattr(OnnxBackend, "runner", lambda self, artifact, device: lambda feeds: {"probabilities": np.zeros((1, 1))})
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "o.onnx.failed").symlink_to(victim)
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx")
    assert ran.code == 1 and "the artifact was not saved" in ran.err and victim.read_text() == "mine"
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx", "--force")
    assert ran.code == 1 and "saved as" in ran.err and victim.read_text() == "mine" and onnx.load(tmp_path / "o.onnx.failed")


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("{tmp}/no/r.json", "there is no folder"),
        ("{tmp}/there.json", "exists; --force"),
        ("{tmp}/link.json", "exists; --force"),
        ("{tmp}", "where the model is written"),
        ("{tmp}/o.onnx", "where the model is written"),
        ("{tmp}/r.pdf", "the suffix '.pdf' is not that of a report; a report is one of .html, .json, .md, .sarif, .xml"),
        ("{tmp}/" + 300 * "r", "File name too long"),
    ],
)
def test_a_report_that_cannot_be_written_is_told_at_once(cli, network_file, tmp_path, report, message):
    (tmp_path / "there.json").write_text("mine")
    (tmp_path / "link.json").symlink_to(tmp_path / "there.json")
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx", "--report", report.format(tmp=tmp_path))
    assert ran.code == 2 and message in ran.err and not (tmp_path / "o.onnx").exists()
    assert (tmp_path / "there.json").read_text() == "mine"


def test_a_report_replaces_a_link_and_never_follows_it(cli, network_file, tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "r.json").symlink_to(tmp_path / "victim")
    ran = cli("verify", network_file, network_file, "--report", tmp_path / "r.json", "--force")
    assert ran.code == 0 and (tmp_path / "victim").read_text() == "mine" and not (tmp_path / "r.json").is_symlink()


def large_network(path, **options):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [2, 64])
    weight = op.constant(np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32), "w")
    onnx_files.write(op.model([x], [op.output(op.MatMul(x, weight), "y")]), path, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "package"), [("onnx", "onnx"), ("mxnet", "onnx"), ("pytorch", "torch"), ("coreml", "coremltools")]
)
def test_a_full_disk_is_no_bug(tmp_path, target, package):
    pytest.importorskip(package)
    large_network(tmp_path / "net.onnx")
    before = content(tmp_path)

    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))

    command = [sys.executable, "-m", "onnxbridge", "convert", "net.onnx", "--to", target, "-o", "made", "--no-verify"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, preexec_fn=small_files_only, check=False)
    assert ran.returncode == 6 and "cannot" in ran.stderr and "bug" not in ran.stderr, ran.stderr
    assert content(tmp_path) == before and not list(tmp_path.glob(".onnxbridge-*"))


def test_a_name_that_is_too_long_is_no_bug(cli, network_file, tmp_path):
    ran = cli("convert", network_file, "-o", tmp_path / (300 * "n" + ".onnx"))
    assert ran.code == 2 and "File name too long" in ran.err


SLOWLY = """
import sys, time
from onnxbridge.backends.onnx import OnnxBackend

def slowly(self, artifact, path):
    path.write_bytes(b"half of it")
    print("writing", flush=True)
    time.sleep(60)

OnnxBackend.save = slowly
sys.argv = ["onnxbridge", "convert", "net.onnx", "-o", "made.onnx", "--no-verify", "--force"]
from onnxbridge.cli import main
main()
"""


def interrupted(folder, number):
    """A conversion that got a signal while it wrote."""

    def heed_interrupts():  # a job in the background of a shell starts with SIGINT ignored, and so do its children
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ran = subprocess.Popen([sys.executable, "-c", SLOWLY], cwd=folder, preexec_fn=heed_interrupts, **pipes)
    assert ran.stdout.readline() == "writing\n"
    ran.send_signal(number)
    _, err = ran.communicate(timeout=20)
    return ran.returncode, err.lstrip()


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGTERM, 143, "terminated\n"), (signal.SIGINT, 130, "interrupted\n")]
)
def test_signals_leave_nothing_behind(network_file, tmp_path, number, code, message):
    before = content(tmp_path)
    assert interrupted(tmp_path, number) == (code, message)
    assert content(tmp_path) == before and not list(tmp_path.glob(".onnxbridge-*"))


def test_the_next_conversion_removes_what_a_killed_one_left(cli, network_file, tmp_path):
    (tmp_path / "made.onnx").write_text("mine")
    assert interrupted(tmp_path, signal.SIGKILL)[0] == -signal.SIGKILL
    assert (tmp_path / "made.onnx").read_text() == "mine"
    (left,) = tmp_path.glob(".onnxbridge-*")
    assert cli("convert", network_file, "-o", tmp_path / "a.onnx", "--no-verify").code == 0
    assert left.exists(), "a folder that was made just now may not have its lock yet"
    os.utime(left, (0, 0))
    held = tmp_path / ".onnxbridge-held"
    held.mkdir()
    os.utime(held, (0, 0))
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as a process that still writes
    assert cli("convert", network_file, "-o", tmp_path / "b.onnx", "--no-verify").code == 0
    os.close(descriptor)
    assert not left.exists() and held.exists()


def test_a_folder_is_replaced_in_one_step(tmp_path, monkeypatch):
    target = tmp_path / "net"
    target.mkdir()
    (target / "saved_model.pb").write_text("old")

    def save(path):
        path.mkdir()
        (path / "saved_model.pb").write_text("new")
        return [path]

    found = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (found.append(paths), replace(*paths)))
    assert atomic_write.write_atomically(target, True, save) == [target]
    assert (target / "saved_model.pb").read_text() == "new" and os.listdir(tmp_path) == ["net"]
    assert not found or not sys.platform.startswith("linux")
    monkeypatch.setattr(atomic_write, "_exchange", lambda a, b: False)
    assert atomic_write.write_atomically(target, True, save) == [target] and os.listdir(tmp_path) == ["net"]


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=512k none disk || exit 99
cd disk && echo mine > kept
"$1" -m onnxbridge convert ../net.onnx --to onnx -o made.onnx --opset 20 --no-verify --report report.json
code=$?
ls -A
exit $code
"""


@pytest.mark.slow
def test_a_disk_that_fills_keeps_what_was_there(tmp_path):
    large_network(tmp_path / "net.onnx")
    (tmp_path / "disk").mkdir()
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh", sys.executable]
    ran = subprocess.run(namespace, cwd=tmp_path, capture_output=True, text=True, check=False)
    if ran.returncode == 99 or "unshare" in ran.stderr:
        pytest.skip("this system does not let users mount a small disk of their own")
    assert ran.returncode == 6 and "cannot be written" in ran.stderr and "bug" not in ran.stderr, ran.stderr
    assert ran.stdout.split() == ["kept", "report.json"]
