"""Calling a kernel of `loops/` by its name.

Nothing of Numba is imported until a kernel is first asked for. A call is noted where a run is being recorded (`tape.py`), as
the function and its arguments, so that it can be made again without whatever led to it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.kernels.run import call_recorder, thread_pool


class Loop:
    """A compiled kernel; it runs without Python's lock."""

    __slots__ = ("function", "pieces", "signature")

    def __init__(self, function: Callable[..., None], signature: str) -> None:
        self.function, self.signature = function, signature.rstrip("u")
        self.pieces = signature.endswith("u")

    def __call__(self, *values: Any, units: int = 1) -> None:
        """Do every piece of the work, if there is any."""
        if units:
            self._run([np.float32(v) if kind == "f" else int(v) for kind, v in zip(self.signature, values, strict=True)], units)

    def each(self, rows: np.ndarray[Any, Any], units: int = 1) -> None:
        """One call after the other: a row of whole numbers for each, as where steps of a sequence follow each other."""
        for row in rows.tolist():
            self._run(row, units)

    def _run(self, values: list[Any], units: int) -> None:
        call = thread_pool.Call(self, [*values, 0, units, 0] if self.pieces else values, units)
        thread_pool.run([call])
        recording = call_recorder.recording()
        if recording is not None:
            recording.calls.append(call)


@functools.cache
def loop(module: str, name: str) -> Loop:
    """The kernel `name` of `loops/module.py`, compiled or loaded."""
    function, signature = declared(module, name)
    from onnxbridge.runtime.executor.kernels.compile import jit

    jit.compiled(function, signature)
    return Loop(function, signature)


def declared(module: str, name: str) -> tuple[Any, str]:
    """A kernel as it is declared, and its signature."""
    from onnxbridge.runtime.executor.kernels.compile import jit

    found = getattr(importlib.import_module(f"onnxbridge.runtime.executor.kernels.numba.{module}"), name)
    return found, jit.signatures[module, name]


def every() -> Sequence[tuple[str, str]]:
    """The modules and names of all kernels that this processor has a use for."""
    from importlib import resources

    from onnxbridge.runtime.executor.kernels.compile import byte_tiles, jit

    package = "onnxbridge.runtime.executor.kernels.numba"
    for file in sorted(resources.files(package).iterdir(), key=lambda p: p.name):
        module, _, end = file.name.rpartition(".")
        if end == "py" and (module != "integers" or byte_tiles.lanes()):
            importlib.import_module(f"{package}.{module}")
    return sorted(jit.signatures)
