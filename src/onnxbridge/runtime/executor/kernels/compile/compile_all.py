"""Ahead-of-time compilation of all kernels, and how many are compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxbridge.errors import MissingFrameworkError, UsageError
from onnxbridge.runtime.executor.kernels.compile import availability, cache, kernel, llvm

_WANTED = "needs numba {}.{}: pip install 'numba>={}.{}'".format(*availability.LEAST, *availability.LEAST)


def kernels() -> Sequence[tuple[str, str]]:
    """The modules and names of all kernels that this processor can use."""
    return kernel.every()


def state() -> dict[str, Any]:
    """What kernels are compiled for, how many there are, how many of them are compiled, and where."""
    if not availability.available():
        off = availability.switched_off()
        return {"ok": False, "hint": "switched off by ONNXBRIDGE_NATIVE=0" if off else _WANTED}
    every, folder = kernels(), cache.folder()
    files = [] if folder is None else [path for path in folder.rglob("*") if path.is_file()]
    compiled = {path.name.partition("-")[0] for path in files if path.suffix == ".nbc"}
    return {
        "ok": True, "llvm": llvm.llvm_version(), "processor": llvm.processor()[0], "kernels": len(every),
        "compiled": sum(f"{module}.{name}" in compiled for module, name in every),
        "folder": None if folder is None else str(folder), "bytes": sum(path.stat().st_size for path in files),
    }  # fmt: skip


def check() -> None:
    """Raise an error if kernels cannot be compiled or cached."""
    if availability.switched_off():
        raise UsageError("ONNXBRIDGE_NATIVE=0 switches compiled kernels off")
    if not availability.available():
        raise MissingFrameworkError(f"compiling kernels {_WANTED}")
    if cache.folder() is None:
        raise UsageError("there is no folder of this user's alone to keep compiled kernels in: ONNXBRIDGE_CACHE names one")


def compile_kernel(module: str, name: str) -> None:
    """Compile a kernel, unless it is cached."""
    kernel.load_kernel(module, name)
