"""This machine's processor as LLVM sees it, the object files kept for it, and loading them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What Numba's wrappers name for the case that a loop raises; these loops cannot raise, and if one did the process would end.
_RAISING = (
    "numba_gil_ensure",
    "numba_gil_release",
    "numba_unpickle",
    "numba_do_raise",
    "numba_runtime_build_excinfo_struct",
    "NRT_Free",
    "NRT_MemInfo_call_dtor",
    "NRT_MemInfo_alloc_aligned",
)
_engines: list[Any] = []  # the code lives as long as the engine that it was loaded by


def available() -> bool:
    """Whether machine code can be made and loaded here: Numba is installed, and ONNXBRIDGE_NATIVE is not 0."""
    return os.environ.get("ONNXBRIDGE_NATIVE", "1") != "0" and _installed()


@functools.cache
def _installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("numba", "llvmlite"))


@functools.cache
def llvm() -> Any:
    """llvmlite's binding, ready for this machine."""
    import llvmlite.binding as binding

    with contextlib.suppress(RuntimeError):  # newer ones do this by themselves and say so
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
    stop = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
    for name in _RAISING:
        if binding.address_of_symbol(name) is None:
            binding.add_symbol(name, stop)
    return binding


def target() -> Any:
    """A code generator for exactly this processor."""
    binding = llvm()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=_features(), opt=3, jit=True
    )


@functools.cache
def _features() -> str:
    return str(llvm().get_host_cpu_features().flatten())


def feature(name: str) -> bool:
    """Whether the processor has an extension, by LLVM's name for it."""
    return f"+{name}" in _features().split(",")


@functools.cache
def lanes() -> int:
    """How many float32 a vector register holds."""
    features = _features().split(",")
    if "+avx512f" in features:
        return 16
    return 8 if "+avx2" in features and "+fma" in features else 4


@functools.cache
def registers() -> int:
    """How many vector registers there are."""
    binding = llvm()
    return 32 if lanes() == 16 or binding.get_default_triple().startswith(("aarch64", "arm64")) else 16


@functools.cache
def _folder() -> Path | None:
    """Where object files are kept: ONNXBRIDGE_CACHE, or the user's cache folder; None where that cannot be written."""
    root = os.environ.get("ONNXBRIDGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "onnxbridge"
    )
    with contextlib.suppress(OSError):
        folder = Path(root) / "native"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        owned = not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
        if owned and os.access(folder, os.W_OK):
            return folder
    return None


def kept(name: str, recipe: str, make: Callable[[], bytes]) -> bytes:
    """The object file that `make` gives, from the cache where it was made before by this recipe for this processor."""
    folder = _folder()
    binding = llvm()
    whole = "\0".join((recipe, ".".join(map(str, binding.llvm_version_info)), binding.get_host_cpu_name(), _features()))
    digest = hashlib.sha256(whole.encode()).hexdigest()[:24]
    if folder is None:
        return make()
    path = folder / f"{name}-{digest}.o"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    made = make()
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(made)
        os.replace(temporary, path)
    return made


def assembled(text: str) -> bytes:
    """The object file of a module written in LLVM's language."""
    binding, machine = llvm(), target()
    module = binding.parse_assembly(text)
    module.triple = binding.get_default_triple()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def loaded(image: bytes, *names: str) -> list[int]:
    """The addresses of an object file's functions; they can be named by object files that are loaded later."""
    binding = llvm()
    empty = binding.parse_assembly("")
    empty.triple = binding.get_default_triple()
    engine = binding.create_mcjit_compiler(empty, target())
    engine.add_object_file(binding.ObjectFileRef.from_data(image))
    engine.finalize_object()
    addresses = [engine.get_function_address(name) for name in names]
    if not all(addresses):
        raise RuntimeError(f"an object file without {names}")
    for name, address in zip(names, addresses, strict=True):
        binding.add_symbol(name, address)
    _engines.append(engine)
    return addresses
