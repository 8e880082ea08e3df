"""All machine code for this processor, made ahead of time so that no first answer waits for it; and how much of it is there."""

from __future__ import annotations

import importlib
from importlib import resources
from pathlib import Path
from typing import Any

from onnxbridge.errors import MissingFrameworkError, UsageError
from onnxbridge.runtime.native import build, drive, machine, presence, quantized

_WANTED = "needs llvmlite {}.{}: pip install 'llvmlite>={}.{}'".format(*presence.LEAST, *presence.LEAST)


def loops() -> list[tuple[str, str]]:
    """The modules and names of all loops that this processor has a use for."""
    from onnxbridge.runtime.native.compiler.kinds import Entry

    found = []
    for file in sorted((resources.files(__package__) / "loops").iterdir(), key=lambda p: p.name):
        module, _, end = file.name.rpartition(".")
        if end == "py" and (module != "integers" or quantized.lanes()):
            source = importlib.import_module(f"{__package__}.loops.{module}")
            found += [(module, k) for k, v in vars(source).items() if isinstance(v, Entry) and v.module == source.__name__]
    return found


def state() -> dict[str, Any]:
    """What machine code is made for, how many loops there are, how many of them are made, and where all files are."""
    if not presence.available():
        off = presence.switched_off()
        return {"ok": False, "hint": "switched off by ONNXBRIDGE_NATIVE=0" if off else _WANTED}
    version, processor = machine.processor()
    every, place = loops(), machine.object_files()
    files = [path for module, name in every if (path := _path(module, name)) is not None and path.exists()]
    size = 0 if place is None else sum(path.stat().st_size for path in place.glob("*.o"))
    return {
        "ok": True, "llvm": version, "processor": processor, "loops": len(every), "compiled": len(files),
        "folder": None if place is None else str(place), "bytes": size,
    }  # fmt: skip


def check() -> None:
    """Raise an error that says what is in the way of making machine code and keeping it."""
    if presence.switched_off():
        raise UsageError("ONNXBRIDGE_NATIVE=0 switches machine code off")
    if not presence.available():
        raise MissingFrameworkError(f"machine code {_WANTED}")
    if machine.object_files() is None:
        raise UsageError("there is no folder to keep machine code in: ONNXBRIDGE_CACHE names one that this user may write")


def make(module: str, name: str) -> None:
    """Make a loop's machine code, and whatever it calls, unless it is there."""
    drive.pieces()
    build.loop(module, name)
    path = _path(module, name)
    if path is None or not path.exists():
        raise UsageError(f"machine code cannot be kept in {machine.object_files()}: ONNXBRIDGE_CACHE names another folder")


def _path(module: str, name: str) -> Path | None:
    return machine.place_of(build.symbol_of(module, name), build.recipe())
