"""What hostile code could do in the process that reads a model: nothing outside it, and no more than the limits allow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest

from onnxbridge import isolation, plugins
from onnxbridge.errors import LimitError, UnsafeFileError, UsageError
from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation.process import Process

ATTEMPTS = """
import json, os, socket, subprocess, threading
from pathlib import Path

def attempt(action):
    try:
        action()
        return "done"
    except (OSError, MemoryError) as error:
        return type(error).__name__

found = {{
    "read a file of the user": attempt(lambda: Path({secret!r}).read_text()),
    "read the model": attempt(lambda: Path({model!r}).read_bytes()),
    "write beside the model": attempt(lambda: Path({model!r} + ".new").write_text("x")),
    "write into the current folder": attempt(lambda: Path("new").write_text("x")),
    "write temporary files": attempt(lambda: Path(os.environ["TMPDIR"], "new").write_text("x")),
    "start a program": attempt(lambda: subprocess.run(["true"])),
    "start a process": attempt(lambda: os.fork() or os._exit(0)),
    "start a thread": attempt(lambda: threading.Thread(target=str).start()),
    "open a connection": attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1)),
    "read the environment of its parent": attempt(lambda: Path(f"/proc/{{os.getppid()}}/environ").read_bytes()),
    "send a signal to its parent": attempt(lambda: os.kill(os.getppid(), 0)),
    "take 1 GiB": attempt(lambda: len(bytearray(1 << 30))),
    "take 64 GiB": attempt(lambda: len(bytearray(64 << 30))),
}}
Path(os.environ["TMPDIR"], "found.json").write_text(json.dumps(found))
"""
ALLOWED = {"read the model", "write temporary files", "start a thread", "take 1 GiB"}


@pytest.fixture
def model(tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }'
    proto = onnx.parser.parse_model(text)
    (tmp_path / "models").mkdir()
    onnx.save(proto, tmp_path / "models/net.onnx")
    return str(tmp_path / "models/net.onnx")


@pytest.fixture
def running(tmp_path, monkeypatch, model):
    """Starts an isolated process that first runs this code, as code in a hostile model would run."""
    opened = []
    monkeypatch.syspath_prepend(tmp_path)

    def start(code, limits=None):
        name = f"hostile_{len(opened)}_{os.getpid()}"
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.setattr(plugins, "imported", lambda: [name])
        opened.append(Process("onnx", [model], limits or Limits()))
        return opened[-1]

    yield start
    for process in opened:
        process.close()


def test_code_in_the_process_reaches_nothing_outside(running, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "models")
    home = Path.home() / f".onnxbridge-canary-{os.getpid()}"
    home.write_text("secret")
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        process = running(ATTEMPTS.format(secret=str(home), model=model, port=server.getsockname()[1]))
        try:
            process.ask("origin", source=model)
        finally:
            home.unlink()
    if set(process.measures) != {"limits", "network", "files", "calls"}:
        pytest.skip(f"this system only has {', '.join(process.measures)}: it lacks Landlock, seccomp or network namespaces")
    found = json.loads((process.folder / "found.json").read_text())
    assert {name for name, how in found.items() if how == "done"} == ALLOWED, found
    assert os.listdir(tmp_path / "models") == ["net.onnx"]


def patched(body):
    """Code that makes the frontend do something else when it reads a model."""
    return f"import onnxbridge.frontends.onnx as f\ndef to_hub(self, *given):\n    {body}\nf.OnnxFrontend.to_hub = to_hub\n"


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        ("import ctypes; ctypes.string_at(0)", UnsafeFileError, "crashed \\(SIGSEGV\\)"),
        ("import os; os.abort()", UnsafeFileError, "crashed \\(SIGABRT\\)"),
        ("import os; os._exit(0)", UnsafeFileError, "crashed \\(exit code 0\\)"),
        ("import time; time.sleep(60)", LimitError, "not read within 3 seconds"),
        ("while True: pass", LimitError, "not read within 3 seconds"),
        ("bytearray(64 << 30)", LimitError, "MiB of memory"),
        ("import os; open(os.environ['TMPDIR'] + '/x', 'wb').write(bytes(3 << 20))", OSError, "too large"),
        ("raise ValueError('odd')", Exception, "odd"),
    ],
)
def test_every_end_of_the_process_is_an_error_with_one_line(running, model, body, error, match):
    hangs = "sleep" in body or "while" in body
    process = running(patched(body), Limits(total_bytes=2 << 20, reading_seconds=3.0 if hangs else 60.0))
    process.start()
    start = time.monotonic()
    with pytest.raises(error, match=match) as raised:
        process.ask("to_hub", source=model, inputs=None, dynamic=None, options={})
    assert time.monotonic() - start < 12
    assert "\n" not in str(raised.value)


def test_debugging_shows_where_it_happened(running, model, monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError) as raised:
        running(patched("1 / 0")).ask("to_hub", source=model, inputs=None, dynamic=None, options={})
    assert "in to_hub" in raised.value.__notes__[0]


REPLIES = [
    "no json", "[" * 100_000, '{"error": 3}', '{"error": {"type": "ConversionError", "message": "", "problems": 3}}', "[1, 2]",
]  # fmt: skip


@pytest.mark.parametrize("reply", REPLIES)
def test_replies_in_a_wrong_form_are_refused(running, model, reply):
    dumps = f"staticmethod(lambda message: {reply!r} if 'measures' not in message else '{{}}')"
    code = patched("return None") + f"import onnxbridge.isolation.worker as w\nw.json = type('Json', (), {{'dumps': {dumps}}})\n"
    process = running(code)
    with pytest.raises(UnsafeFileError, match="wrong form"):
        process.ask("to_hub", source=model, inputs=None, dynamic=None, options={})


def test_a_model_that_comes_back_is_checked_as_a_file_is(running, model):
    code = patched("return None") + (
        "import onnxbridge.isolation.transfer as t\n"
        "def write(model, folder, name):\n"
        "    (folder / 'hub.onnx').write_bytes(b'\\x08\\x0a\\x3a\\xff\\xff')\n"
        "t.write_model = write\n"
    )
    process = running(code)
    process.ask("to_hub", source=model, inputs=None, dynamic=None, options={})
    from onnxbridge.isolation.transfer import read_model

    with pytest.raises(UnsafeFileError):
        process.received(read_model, process.folder, "hub")


def test_nothing_stays_of_a_process(running, model):
    process = running("")
    process.ask("origin", source=model)
    folder, child = process.folder, process._process
    process.close()
    assert not folder.exists()
    assert child.returncode is not None


KILLED = """
import sys, time
from onnxbridge import plugins
from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation.process import Process
process = Process("onnx", [sys.argv[1]], Limits())
process.ask("origin", source=sys.argv[1])
print(process.folder, process._process.pid, flush=True)
time.sleep(60)
"""


def test_nothing_stays_when_the_parent_is_killed(model):
    parent = subprocess.Popen([sys.executable, "-c", KILLED, model], stdout=subprocess.PIPE, text=True)
    folder, child = parent.stdout.readline().split()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while time.monotonic() < end and os.path.exists(folder):
        time.sleep(0.05)
    assert not os.path.exists(folder)
    while time.monotonic() < end and os.path.exists(f"/proc/{child}"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{child}") or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]


def test_nothing_is_imported_from_the_current_folder(model, tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("import os; os.abort()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    process = Process("onnx", [model], Limits())
    try:
        assert process.ask("origin", source=model)["origin"]
    finally:
        process.close()


def test_inputs_that_cannot_be_sent_are_refused(running, model):
    with pytest.raises(UsageError, match="--no-isolate"):
        running("").ask("to_hub", source=model, inputs=lambda: None, dynamic=None, options={})


def test_live_models_and_code_are_not_isolated(model):
    with isolation.isolating(True):
        assert isolation.frontend_for(onnx.load(model)) is plugins.frontend("onnx")
        assert isolation.frontend_for("torch.nn:Identity") is plugins.frontend("pytorch")
        assert isolation.frontend_for(model) is not plugins.frontend("onnx")
    with isolation.isolating("auto"):
        assert isolation.frontend_for(model) is plugins.frontend("onnx")
