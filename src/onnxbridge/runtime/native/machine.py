"""This machine's processor as LLVM sees it, the object files kept for it, and loading them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from onnxbridge.runtime.native import presence
from onnxbridge.runtime.native.link import linked

_engines: list[Any] = []  # the code lives as long as the engine that it was loaded by


@functools.cache
def llvm() -> Any:
    """llvmlite's binding, ready for this machine."""
    import llvmlite.binding as binding

    with contextlib.suppress(RuntimeError):  # newer ones do this by themselves and say so
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
    for name, address in presence.symbols.items():
        binding.add_symbol(name, address)
    return binding


def symbol(name: str, address: int) -> None:
    """Let object files that are loaded from now on name a function."""
    presence.symbols[name] = address
    if llvm.cache_info().currsize:
        llvm().add_symbol(name, address)


def target() -> Any:
    """A code generator for exactly this processor."""
    facts, chosen = _facts(), llvm().Target.from_default_triple()
    return chosen.create_target_machine(cpu=facts["cpu"], features=facts["features"], opt=3, jit=True)


@functools.cache
def _facts() -> dict[str, str]:
    """What LLVM calls this processor and what it has, remembered for it so that LLVM need not be asked again."""
    known = presence.read(_facts_file())
    with contextlib.suppress(ValueError, TypeError):
        found = json.loads(known or b"")
        if set(found) == {"llvm", "triple", "cpu", "features"}:
            return {str(k): str(v) for k, v in found.items()}
    binding = llvm()
    made = {
        "llvm": ".".join(map(str, binding.llvm_version_info)),
        "triple": binding.get_default_triple(),
        "cpu": binding.get_host_cpu_name(),
        "features": binding.get_host_cpu_features().flatten(),
    }
    _write(_facts_file(), json.dumps(made).encode())
    return made


def _facts_file() -> Path | None:
    place, processor = object_files(), presence.processor()
    if place is None or not processor:
        return None
    return place / f"machine-{hashlib.sha256(f'{processor}{presence.package()}'.encode()).hexdigest()[:24]}.json"


def processor() -> tuple[str, str]:
    """LLVM's version, and its name for the processor."""
    return _facts()["llvm"], _facts()["cpu"]


def feature(name: str) -> bool:
    """Whether the processor has an extension, by LLVM's name for it."""
    return f"+{name}" in _facts()["features"].split(",")


def triple() -> str:
    """LLVM's name for the processor's family and the system."""
    return _facts()["triple"]


@functools.cache
def lanes() -> int:
    """How many float32 a vector register holds."""
    if feature("avx512f"):
        return 16
    return 8 if feature("avx2") and feature("fma") else 4


@functools.cache
def registers() -> int:
    """How many vector registers there are."""
    return 32 if lanes() == 16 or triple().startswith(("aarch64", "arm64")) else 16


def object_files() -> Path | None:
    """Where object files are kept, which are nobody's secret."""
    return presence.folder("native", 0o755)


def _write(path: Path | None, content: bytes) -> None:
    """Keep a file if that is possible; nobody sees half of it."""
    if path is not None:
        import tempfile

        with contextlib.suppress(OSError):
            handle, temporary = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)


def sources(*names: str) -> str:
    """The text of files and folders of Python source beside this one: what comes of them changes with it."""
    beside, found = resources.files(__package__), []
    for name in names:
        files = [beside / name] if name.endswith(".py") else sorted((beside / name).iterdir(), key=lambda p: p.name)
        found += [file.read_text() for file in files if file.name.endswith(".py")]
    return "\0".join(found)


def place_of(name: str, recipe: str) -> Path | None:
    """Where the object file of a recipe for this processor is kept."""
    place, facts = object_files(), _facts()
    whole = "\0".join((recipe, facts["llvm"], facts["cpu"], facts["features"]))
    return None if place is None else place / f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:24]}.o"


def kept(name: str, recipe: str, make: Callable[[], bytes]) -> bytes:
    """The object file that `make` gives, from the cache where it was made before by this recipe for this processor."""
    path = place_of(name, recipe)
    there = presence.read(path)
    if there is not None:
        return there
    made = make()
    _write(path, made)
    return made


def assembled(text: str, *, finished: bool = False) -> bytes:
    """The object file of a module written in LLVM's language; `finished` if nothing in it is left to improve."""
    binding, machine = llvm(), target()
    module = binding.parse_assembly(text)
    module.triple = binding.get_default_triple()
    if not finished:
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=3))
        builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def loaded(image: bytes, *names: str) -> list[int]:
    """The addresses of an object file's functions; they can be named by object files that are loaded later."""
    found = linked(image, presence.symbols)
    addresses = [found.get(name, 0) for name in names] if found is not None else _run_by_llvm(image, names)
    if not all(addresses):
        raise RuntimeError(f"an object file without {names}")
    for name, address in zip(names, addresses, strict=True):
        symbol(name, address)
    return addresses


def _run_by_llvm(image: bytes, names: tuple[str, ...]) -> list[int]:
    binding = llvm()
    empty = binding.parse_assembly("")
    empty.triple = binding.get_default_triple()
    engine = binding.create_mcjit_compiler(empty, target())
    engine.add_object_file(binding.ObjectFileRef.from_data(image))
    engine.finalize_object()
    _engines.append(engine)
    return [engine.get_function_address(name) for name in names]
