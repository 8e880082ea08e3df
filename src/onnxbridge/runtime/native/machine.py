"""This machine's processor as LLVM sees it, the object files kept for it, and loading them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from onnxbridge.runtime.native.link import found, linked

LEAST = (0, 45)  # of llvmlite: the first whose LLVM has addresses without types and vectors of one number

_engines: list[Any] = []  # the code lives as long as the engine that it was loaded by
_symbols: dict[str, int] = {}  # what object files may name


def available() -> bool:
    """Whether machine code can be made and loaded here: llvmlite is installed and new enough, and ONNXBRIDGE_NATIVE is not 0."""
    return not switched_off() and _package() is not None


def switched_off() -> bool:
    """Whether the user wants no machine code."""
    return os.environ.get("ONNXBRIDGE_NATIVE", "1") == "0"


@functools.cache
def _package() -> str | None:
    """Which llvmlite is installed, told without importing it: where it lies and since when; None for none and for older ones."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return None
    told = re.search(rb"version_version = '(\d+)\.(\d+)", _read(Path(spec.origin).with_name("_version.py")) or b"")
    if told is not None and tuple(map(int, told.groups())) < LEAST:
        return None
    return f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}"


@functools.cache
def llvm() -> Any:
    """llvmlite's binding, ready for this machine."""
    import llvmlite.binding as binding

    with contextlib.suppress(RuntimeError):  # newer ones do this by themselves and say so
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
    for name, address in _symbols.items():
        binding.add_symbol(name, address)
    return binding


def symbol(name: str, address: int) -> None:
    """Let object files that are loaded from now on name a function."""
    _symbols[name] = address
    if llvm.cache_info().currsize:
        llvm().add_symbol(name, address)


def target() -> Any:
    """A code generator for exactly this processor."""
    facts, chosen = _facts(), llvm().Target.from_default_triple()
    return chosen.create_target_machine(cpu=facts["cpu"], features=facts["features"], opt=3, jit=True)


def outside(name: str) -> int:
    """The address that object files mean by a name that none of them defines."""
    return _symbols.get(name) or found(name)


def identity() -> str:
    """What object files depend on besides their recipes: the processor, and the packages that make them."""
    return f"{_processor()}\0{_package()}"


@functools.cache
def _facts() -> dict[str, str]:
    """What LLVM calls this processor and what it has, remembered for it so that LLVM need not be asked again."""
    known = _read(_facts_file())
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
    place, processor = object_files(), _processor()
    if place is None or not processor:
        return None
    return place / f"machine-{hashlib.sha256(f'{processor}{_package()}'.encode()).hexdigest()[:24]}.json"


@functools.cache
def _processor() -> str:
    """What the system says of the first processor apart from its present speed, "" where it says nothing."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        kept = (line for line in text.splitlines() if not line.startswith(("cpu MHz", "bogomips", "apicid", "initial apicid")))
        return "\n".join(kept)
    return ""


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
    return folder("native", 0o755)


@functools.cache
def folder(kind: str, mode: int = 0o700) -> Path | None:
    """Where files of a kind are kept: in ONNXBRIDGE_CACHE, or the user's cache folder; None where that is not possible.

    It is this user's own, or the administrator's if nobody else may write there, as in the image of a container.
    """
    root = os.environ.get("ONNXBRIDGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "onnxbridge"
    )
    with contextlib.suppress(OSError):
        place = Path(root) / kind
        place.mkdir(parents=True, exist_ok=True, mode=mode)
        facts = place.stat()
        safe = not hasattr(os, "getuid") or facts.st_uid == os.getuid() or (facts.st_uid == 0 and not facts.st_mode & 0o022)
        if safe and os.access(place, os.R_OK | os.X_OK):
            return place
    return None


def _read(path: Path | None) -> bytes | None:
    if path is not None:
        with contextlib.suppress(OSError):
            return path.read_bytes()
    return None


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
    there = _read(path)
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
    found = linked(image, _symbols)
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
