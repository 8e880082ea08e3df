"""A job in a process of its own, with limits of time and memory: a crash, a hang or too much memory ends only that process."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from onnxbridge.errors import LimitError, OnnxbridgeError
from onnxbridge.pipeline.job_keys import checked_job, targets_of
from onnxbridge.pipeline.store import Store

_LOG = "log.txt"
_INTERVAL = 0.1
"""Seconds between two looks at a process's memory."""
_GRACE = 2.0
"""Seconds in which a process that is ended may remove its temporary files, before it is killed."""
_MOST_LINES = 30
_PRELOADED = [
    "onnxbridge.api", "onnxbridge.reports", "onnxruntime", "onnxbridge.pipeline.job", "onnxbridge.frontends.onnx",
    "onnxbridge.backends.onnx", "onnxbridge.runtime.executor.executor", "onnxbridge.runtime.executor.numpy.ops",
    "onnxbridge.runtime.executor.fusion",
]  # fmt: skip
"""Modules that are imported once for all processes."""
_THREADS = (
    "ONNXBRIDGE_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)  # fmt: skip
"""The variables that tell libraries how many threads to use. Several processes that each use all cores slow each other down."""


_changing = threading.Lock()


@dataclass(frozen=True)
class Limits:
    """What one job may take: seconds, bytes of memory without files that are mapped, threads. None for no limit."""

    seconds: float | None = None
    memory: int | None = None
    threads: int | None = None


def run_isolated(
    job: Mapping[str, Any], limits: Limits | None = None, *, stopped: Callable[[], bool] = lambda: False,
    run: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The outcome of `run_job` in a process of its own. Whatever happens to the process is an outcome, too: its `status` is
    "crashed", "timeout" or "memory".

    Args:
        stopped: looked at while the job runs; once it is true, the process is ended and the status is "stopped".
        run: what the process does with the job, `run_job` by default.

    Raises:
        UsageError: if the job itself is wrong.
    """
    job, limits = checked_job(job), limits or Limits()
    variables = _variables(limits.threads)
    context = _context(variables)
    receiving, sending = context.Pipe(duplex=False)
    with Store(job.get("output", ".")).working() as folder:
        process = context.Process(target=_work, args=(sending, dict(job), folder, variables, run), daemon=True)
        process.start()
        sending.close()
        return _watched(process, receiving, job, limits, stopped, folder / _LOG)


def _watched(
    process: Any, receiving: Connection, job: Mapping[str, Any], limits: Limits, stopped: Callable[[], bool], log: Path
) -> dict[str, Any]:
    """The outcome of a job that runs in a process."""
    import psutil

    start = time.monotonic()
    watched = psutil.Process(process.pid)
    peak, status = 0, ""
    outcome: dict[str, Any] | None = None
    try:
        while outcome is None and not status:
            try:
                if receiving.poll(_INTERVAL):
                    outcome = receiving.recv()
                    break
            except (EOFError, OSError):  # it ended without an outcome
                status = "crashed"
                break
            peak = max(peak, _memory(watched))
            if stopped():
                status = "stopped"
            elif limits.memory is not None and peak > limits.memory:
                status = "memory"
            elif limits.seconds is not None and time.monotonic() - start > limits.seconds:
                status = "timeout"
    finally:
        _end(process, at_once=outcome is None)
        receiving.close()
    seconds = time.monotonic() - start
    if outcome is None:
        return _ended(job, status, process.exitcode, limits, peak, seconds, log)
    return outcome if outcome["reused"] or not peak else {**outcome, "peak_memory": peak}


def _context(variables: Mapping[str, str]) -> Any:
    """Processes start from a server that has imported what all need, where the system has that: in milliseconds.

    The server imports NumPy, which reads the number of threads when it is imported: the first batch of a process decides it.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with _environment(variables):
        forkserver.ensure_running()
    return context


def _variables(threads: int | None) -> dict[str, str]:
    """What the environment of a process says of threads; the user's own values stay."""
    with _changing:
        return {} if threads is None else {name: os.environ.get(name, str(threads)) for name in _THREADS}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment for a while; one job at a time changes them."""
    with _changing:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _work(sending: Connection, job: dict[str, Any], folder: Path, variables: Mapping[str, str], run: Any) -> None:
    """What the process does. Temporary files and all that is printed go to `folder`."""
    os.environ.update(variables)
    from onnxbridge.pipeline.job import run_job

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent ends its jobs
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    log = os.open(folder / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    faulthandler.enable()  # says where it crashed
    threading.Thread(target=_end_with_parent, args=(sending,), daemon=True).start()
    sending.send((run or run_job)(job))
    sending.close()


def _end_with_parent(sending: Connection) -> None:
    """End this process once nobody waits for its outcome."""
    import select

    poll = select.poll()
    poll.register(sending.fileno(), 0)  # reports only that the other end is closed
    while not sending.closed:
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(1000)):
            os._exit(1)


def _memory(process: Any) -> int:
    """The bytes of a process and those it started, without mapped files."""
    import psutil

    found = 0
    with contextlib.suppress(psutil.Error):
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                info = one.memory_info()
                found += info.rss - getattr(info, "shared", 0)
    return found


def _end(process: Any, at_once: bool) -> None:
    """Wait for a process, and end it and what it started where it does not end by itself."""
    import psutil

    if not at_once:
        process.join(_GRACE)
    if process.is_alive():
        with contextlib.suppress(psutil.Error):
            started = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            for one in started:
                with contextlib.suppress(psutil.Error):
                    one.kill()
    process.join()


def _ended(
    job: Mapping[str, Any], status: str, code: int | None, limits: Limits, peak: int, seconds: float, log: Path
) -> dict[str, Any]:
    """The outcome of a job whose process ended without one."""
    name = ""
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
    messages = {
        "crashed": f"the process crashed ({name or f'exit code {code}'})",
        "timeout": f"not done after {limits.seconds:g} seconds" if limits.seconds is not None else "",
        "memory": f"took more than {(limits.memory or 0) / 1e9:.1f} GB of memory",
        "stopped": "ended before it was done",
    }
    exit_code = LimitError.exit_code if status in ("timeout", "memory") else OnnxbridgeError.exit_code
    kind = "LimitError" if status in ("timeout", "memory") else "Crash"
    return {
        "id": "", "name": job["name"], "source": job["source"], "to": targets_of(job), "status": status,
        "exit_code": exit_code, "verdict": None, "worst": None,
        "error": {"type": kind, "message": messages[status], "exit_code": exit_code, "printed": _last_lines(log)},
        "reused": False, "outputs": [],
        "targets": [], "seconds": round(seconds, 3), "peak_memory": peak, "versions": {}, "host": "", "finished": "",
    }  # fmt: skip


def _last_lines(log: Path) -> list[str]:
    """What a process printed last, such as where it crashed."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-_MOST_LINES:]
    except OSError:
        return []


def lost(job: Mapping[str, Any], message: str) -> dict[str, Any]:
    """The outcome of a job whose worker was lost."""
    found = _ended(job, "crashed", None, Limits(), 0, 0.0, Path(os.devnull))
    found["error"]["message"] = message
    return found
