"""This processor as LLVM sees it, and functions in LLVM's language, compiled by the engine that Numba brings (llvmlite)."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from onnxbridge.runtime.executor.kernels.compile import cache

_engines: list[Any] = []  # an engine owns the code that it compiled
_named: set[str] = set()


@functools.cache
def _llvm() -> Any:
    """llvmlite's binding, initialized."""
    import llvmlite.binding as binding

    with contextlib.suppress(RuntimeError):  # newer ones do this by themselves and say so
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
    return binding


@functools.cache
def processor() -> tuple[str, str]:
    """LLVM's name for this processor, and its extensions; or those that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name."""
    name = os.environ.get("NUMBA_CPU_NAME")
    if name:
        return name, os.environ.get("NUMBA_CPU_FEATURES", "")
    return _llvm().get_host_cpu_name(), _llvm().get_host_cpu_features().flatten()


def llvm_version() -> str:
    """LLVM's version."""
    return ".".join(map(str, _llvm().llvm_version_info))


def feature(name: str) -> bool:
    """Whether the processor has an extension, by LLVM's name for it."""
    return f"+{name}" in processor()[1].split(",")


@functools.cache
def tiled() -> bool:
    """Whether there are tiles for this processor; elsewhere plain kernels do the same."""
    known = _llvm().get_default_triple().startswith("x86_64") and not sys.platform.startswith("win")
    return known and (feature("avx512f") or (feature("avx2") and feature("fma")))


@functools.cache
def lanes() -> int:
    """How many float32 a vector has; plain kernels take those of the widest."""
    return 8 if tiled() and not feature("avx512f") else 16


def named(name: str) -> bool:
    """Whether a function is available to kernels."""
    return name in _named


def load(text: str, *names: str) -> None:
    """Make functions of a module in LLVM's language available to kernels, compiled or cached; no-op where there are no tiles."""
    if not tiled():
        return
    binding, (cpu, features) = _llvm(), processor()
    module = binding.parse_assembly(text)
    module.triple = binding.get_default_triple()
    target = binding.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
    engine = binding.create_mcjit_compiler(module, target)
    path = _path("\0".join((text, cpu, features, llvm_version())))
    if path is not None:
        engine.set_object_cache(lambda _, code: _write(path, code), lambda _: _read(path))
    engine.finalize_object()
    _engines.append(engine)
    for name in names:
        binding.add_symbol(name, engine.get_function_address(name))
        _named.add(name)


def _path(recipe: str) -> Path | None:
    """The file in which the code of a module is cached."""
    folder = cache.folder()
    return None if folder is None else folder / f"tiles-{hashlib.sha256(recipe.encode()).hexdigest()[:24]}.o"


def _read(path: Path) -> bytes | None:
    """Cached code, if its hash is right: LLVM aborts the process on damaged code."""
    with contextlib.suppress(OSError):
        content = path.read_bytes() if cache.safe(path) else b""
        if hashlib.sha256(content[32:]).digest() == content[:32]:
            return content[32:]
    return None


def _write(path: Path, code: bytes) -> None:
    """Cache code if that is possible, atomically."""
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        os.replace(temporary, path)
