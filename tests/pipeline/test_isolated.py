"""Jobs in processes of their own: a crash, a hang and too much memory are outcomes."""

from __future__ import annotations

import os
import threading
import time

import psutil
import pytest

from onnxbridge.pipeline import Limits, run_isolated
from tests.pipeline.models import BAD, threads_of, write_net


def left(folder):
    return list((folder / ".onnxbridge" / "working").iterdir())


def test_the_outcome_is_that_of_the_job(tmp_path):
    job = {"source": str(write_net(tmp_path / "net.onnx")), "output": str(tmp_path / "out")}
    found = run_isolated(job)
    assert found["status"] == "done" and (tmp_path / "out" / "net.onnx").exists() and not left(tmp_path / "out")
    assert 1 << 20 < found["peak_memory"] < 4 << 30
    assert run_isolated(job)["reused"]


def test_a_crash_is_named_with_its_place(tmp_path):
    found = run_isolated({"source": f"{BAD}:crash", "output": str(tmp_path)})
    assert found["status"] == "crashed" and "SIGSEGV" in found["error"]["message"] and found["name"] == "crash"
    assert any("models.py" in line and "in crash" in line for line in found["error"]["printed"]) and not left(tmp_path)


def test_a_hang_ends_at_the_time_limit(tmp_path):
    start = time.monotonic()
    found = run_isolated({"source": f"{BAD}:hang", "output": str(tmp_path)}, Limits(seconds=4))
    assert found["status"] == "timeout" and found["exit_code"] == 6 and "4 seconds" in found["error"]["message"]
    assert time.monotonic() - start < 30 and not left(tmp_path)


def test_too_much_memory_ends_the_process(tmp_path):
    found = run_isolated({"source": f"{BAD}:eat", "output": str(tmp_path)}, Limits(memory=700_000_000, seconds=120))
    assert found["status"] == "memory" and found["exit_code"] == 6 and "0.7 GB" in found["error"]["message"]
    assert 700_000_000 < found["peak_memory"] < 3_000_000_000


def test_a_job_that_is_stopped_leaves_no_process(tmp_path):
    stop, found = threading.Event(), []
    job = {"source": f"{BAD}:hang", "output": str(tmp_path)}
    thread = threading.Thread(target=lambda: found.append(run_isolated(job, stopped=stop.is_set)))
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    thread.start()
    time.sleep(3)
    stop.set()
    thread.join(30)
    assert found[0]["status"] == "stopped" and not left(tmp_path)
    new = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert not [p for p in new if "spawn_main" in " ".join(p.cmdline())]


def test_a_job_uses_the_threads_that_it_may(tmp_path, monkeypatch):
    job = {"source": str(write_net(tmp_path / "net.onnx")), "output": str(tmp_path)}
    assert run_isolated(job, Limits(threads=1), run=threads_of)["threads"] == {"ours": 1, "OMP_NUM_THREADS": "1"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # the user's own number stays
    assert run_isolated(job, Limits(threads=2), run=threads_of)["threads"]["ours"] == 2
    assert os.environ["OMP_NUM_THREADS"] == "3" and "ONNXBRIDGE_THREADS" not in os.environ


def test_a_wrong_job_is_an_error_at_once(tmp_path):
    with pytest.raises(Exception, match="unknown key"):
        run_isolated({"source": "a:b", "outptu": str(tmp_path)})
