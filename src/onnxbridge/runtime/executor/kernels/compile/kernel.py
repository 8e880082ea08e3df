"""Calling a kernel of `numba/` by its name.

Numba is not imported until a kernel is first requested. A call is recorded where a run is being recorded (`call_recorder.py`), as
the kernel and its arguments, so that it can be replayed without Python.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.kernels.compile import compile_policy
from onnxbridge.runtime.executor.kernels.run import call_recorder, thread_pool
from onnxbridge.runtime.executor.kernels.run.call_table import FORMS, Call


class Kernel:
    """A compiled kernel; it runs without the GIL."""

    __slots__ = ("_pieces", "address", "form", "function", "signature")

    def __init__(self, function: Callable[..., None], signature: str, address: int) -> None:
        self.function, self.signature, self.address = function, signature.rstrip("u"), address
        self.form = FORMS.index(signature.replace("p", "i"))
        self._pieces = signature.endswith("u")

    def __call__(self, *values: Any, units: int = 1) -> None:
        """Run all pieces of the work."""
        if units:
            self._run([_cell(kind, value) for kind, value in zip(self.signature, values, strict=True)], units=units)

    def each(self, rows: np.ndarray[Any, Any], units: int = 1) -> None:
        """Calls in sequence, a row of integers for each, as for the steps of a recurrent layer."""
        self._run(*rows.tolist(), units=units)

    def _run(self, *rows: Sequence[int], units: int) -> None:
        calls = [Call(self, row, units) for row in rows]
        thread_pool.Table(calls).run()
        recorder = call_recorder.active_recorder()
        if recorder is not None:
            recorder.calls += calls

    def interpreted(self, cells: Sequence[int], units: int) -> None:
        """Run a call of a table in Python."""
        values = [np.int32(v).view(np.float32) if kind == "f" else v for kind, v in zip(self.signature, cells, strict=False)]
        for unit in range(units):
            self.function(*values, *((unit, 0) if self._pieces else ()))


def _cell(kind: str, value: Any) -> int:
    return int(np.float32(value).view(np.int32) if kind == "f" else value)


@functools.cache
def load_kernel(module: str, name: str) -> Kernel:
    """The kernel `name` of `numba/module.py`, compiled or loaded.

    Raises:
        TooEarly: where that is not worth it yet.
    """
    compile_policy.check(module, name)
    function, signature = declared(module, name)
    from onnxbridge.runtime.executor.kernels.compile import jit

    thread_pool.driver()
    return Kernel(function, signature, jit.compiled(function, signature).address if jit.COMPILED else 0)


def declared(module: str, name: str) -> tuple[Any, str]:
    """A kernel as it is declared, and its signature."""
    from onnxbridge.runtime.executor.kernels.compile import jit

    found = getattr(importlib.import_module(f"onnxbridge.runtime.executor.kernels.numba.{module}"), name)
    return found, jit.signatures[module, name]


def every() -> Sequence[tuple[str, str]]:
    """The modules and names of all kernels that this processor can use."""
    from importlib import resources

    from onnxbridge.runtime.executor.kernels.compile import byte_tiles, jit

    package = "onnxbridge.runtime.executor.kernels.numba"
    for file in sorted(resources.files(package).iterdir(), key=lambda p: p.name):
        module, _, end = file.name.rpartition(".")
        if end == "py" and (module != "integers" or byte_tiles.lanes()):
            importlib.import_module(f"{package}.{module}")
    return sorted(jit.signatures)
