"""The client of `server.py`: starts MXNet's interpreter, reuses it, and restarts it after a crash."""

from __future__ import annotations

import atexit
import functools
import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxbridge.errors import LimitError, MissingFrameworkError, OnnxbridgeError
from onnxbridge.runtime.mxnet.environment import INSTALL, python

SERVER = Path(__file__).with_name("server.py")
START_SECONDS = 120.0


class Service:
    """A process with MXNet. A crash or a timeout fails the current call only; the next call starts a new process."""

    def __init__(self, interpreter: str, seconds: float = 600.0) -> None:
        self.interpreter = interpreter
        self.seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Raises:
            OnnxbridgeError: if MXNet fails or its process ends.
            LimitError: if there is no reply in time.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        return self._exchange({"do": do} | request, self.seconds)

    def run(
        self, symbol: Path, params: Path | None, feeds: Mapping[str, np.ndarray[Any, Any]], optional: Sequence[str] = (),
        internals: tuple[int, int] | None = None, narrow: Path | None = None, as_written: bool = False,
    ) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
        """The outputs of a symbol by MXNet's names, in order. Inputs in `optional` (labels) may be omitted.

        `internals=(i, n)`: part i of n of its intermediate values in place of its outputs. `narrow`: the symbol in float16 of
        which this is the float32 copy; its parameters and inputs are widened, and its outputs narrowed again. `as_written`:
        without the fusions of MXNet's own optimizer, which are wrong for a fully connected layer with several users.
        """
        with tempfile.TemporaryDirectory() as folder:
            inputs, out = Path(folder, "feeds.npz"), Path(folder, "out.npz")
            np.savez(inputs, **dict(feeds))  # type: ignore[arg-type]  # it rejects inputs called "file" or "allow_pickle"
            reply = self.ask(
                "run",
                symbol=os.path.abspath(symbol),
                params=os.path.abspath(params) if params is not None else None,
                feeds=str(inputs),
                out=str(out),
                optional=list(optional),
                narrow=os.path.abspath(narrow) if narrow is not None else None,
                as_written=as_written,
                **({} if internals is None else {"internals": internals}),
            )
            with np.load(out) as arrays:
                return {name: arrays[f"o{i}"] for i, name in enumerate(_unique(reply["names"]))}

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> None:
        self.close()
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONWARNINGS": "ignore"}
        self._process = subprocess.Popen(
            [self.interpreter, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        try:
            self._exchange({"do": "ping"}, START_SECONDS)
        except OnnxbridgeError as e:
            raise MissingFrameworkError(f"{self.interpreter} cannot import MXNet: {INSTALL}") from e

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the process has ended, so the reply below is empty
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                self.close()
                raise LimitError(f"MXNet did not answer within {seconds:g} seconds")
        line = process.stdout.readline()
        if not line:
            self.close()
            raise OnnxbridgeError(
                f"the MXNet process ended during the request {request['do']!r} (exit code {process.returncode})"
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise OnnxbridgeError(f"MXNet: {reply['error']}")
        return reply


def _unique(names: Sequence[str]) -> list[str]:
    """The names, with a suffix for repeated ones: a symbol may have the same output twice."""
    found: list[str] = []
    for name in names:
        label, n = name, 0
        while label in found:
            n += 1
            label = f"{name}_{n}"
        found.append(label)
    return found


@functools.cache
def _service_of(interpreter: str) -> Service:
    made = Service(interpreter)
    atexit.register(made.close)
    return made


def service() -> Service:
    """The process of this session."""
    return _service_of(python())
