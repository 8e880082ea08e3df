"""What loops compute with: the kinds of numbers, what lies at an address, and functions that are compiled elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import numpy as np

TYPES = {"i64": "i64", "i32": "i32", "i8": "i8", "u8": "i8", "bool": "i1", "f32": "float", "f64": "double"}
BITS = {"i64": 64, "i32": 32, "i8": 8, "u8": 8, "bool": 1}
SIZES = {**BITS, "f32": 32, "f64": 64}
CASTS = {np.int64: "i64", np.int32: "i32", np.int8: "i8", np.uint8: "u8", np.float32: "f32", np.float64: "f64"}
REAL = ("f32", "f64")


class Refused(Exception):
    """Something that is not among what loops may do; whoever knows the line says where."""


@dataclass(frozen=True)
class Value:
    """A number, or an address that points to elements (`*f32`), as LLVM's language names it."""

    kind: str
    text: str


Kinds = None | str | tuple[str, ...]  # of a function's result


def type_of(kind: str) -> str:
    """LLVM's name for a kind."""
    return "ptr" if kind.startswith("*") else TYPES[kind]


def result_type(result: Kinds) -> str:
    """LLVM's name for what a function gives."""
    if result is None:
        return "void"
    return type_of(result) if isinstance(result, str) else "{" + ", ".join(map(type_of, result)) + "}"


def arguments(signature: str) -> tuple[str, ...]:
    """The kinds that the letters of a signature mean: i is a whole number, p an address or 0, f a float32."""
    return tuple({"i": "i64", "p": "i64", "f": "f32"}[letter] for letter in signature)


@dataclass(frozen=True)
class Pointer:
    """Called in a loop with an address: what lies there, as elements of a kind."""

    kind: str


@dataclass(frozen=True)
class Extern:
    """A function of another object file: that of `native/<source>.py`, or of a shared helper `<module>.<name>` of `loops/`."""

    name: str
    signature: str
    source: str


@dataclass(frozen=True)
class Shared:
    """A helper that is compiled once by itself for all loops that call it."""

    body: FunctionType
    signature: str

    @property
    def extern(self) -> Extern:
        """How loops call it."""
        module, name = self.body.__module__.rpartition(".")[2], self.body.__name__
        return Extern(f"onnxbridge_{module}_{name}", self.signature, f"{module}.{name}")


@dataclass(frozen=True)
class Entry:
    """A loop, which is called from outside. A last u in the signature says that its work comes in pieces."""

    body: FunctionType | Shared
    signature: str

    @property
    def module(self) -> str:
        """The module that it is defined in."""
        return (self.body.body if isinstance(self.body, Shared) else self.body).__module__


def entry(signature: str) -> Callable[[FunctionType | Shared], Entry]:
    """Let a function be called from outside with arguments of these kinds: i is a whole number, p an address or 0, f a float32.

    A last kind of u says that the work comes in pieces: the function also takes the piece's and the thread's number.
    """
    return lambda body: Entry(body, signature)


def shared(signature: str) -> Callable[[FunctionType], Shared]:
    """Compile a helper by itself, for arguments of these kinds."""
    return lambda body: Shared(body, signature)
