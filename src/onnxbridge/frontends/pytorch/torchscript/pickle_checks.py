"""The pickles in TorchScript archives, walked before PyTorch's own unpickler reads them.

PyTorch's unpickler runs no Python, but it trusts what it reads: it gives a tensor as much memory as the pickle says,
however little of it the archive has, counts on the order in which PyTorch writes, and recurses over what is nested.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Iterator
from typing import Any

from onnxbridge.frontends.pytorch.torchscript.tokenizer import Refused

_MOST_NESTING = 500
_CLASS = re.compile(r"__torch__(?:\.[A-Za-z_]\w*)* [A-Za-z_]\w*", re.ASCII)
_BOUND_CLASS = re.compile(r"__torch__\.torch\.classes(?:$|[. ])(?!quantized\b|rnn\b)")
_STORAGES = {
    "Byte": 1, "Char": 1, "Bool": 1, "QInt8": 1, "QUInt8": 1, "QUInt4x2": 1, "QUInt2x4": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
    "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "Float8_e8m0fnu": 1, "Short": 2, "Half": 2, "BFloat16": 2, "UInt16": 2, "Int": 4,
    "Float": 4, "QInt32": 4, "UInt32": 4, "ComplexHalf": 4, "Long": 8, "Double": 8, "UInt64": 8, "ComplexFloat": 8,
    "ComplexDouble": 16,
}  # fmt: skip
_VALUES = {f"torch {name}Storage": size for name, size in _STORAGES.items()} | dict.fromkeys(
    (f"torch {s}" for s in ("per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams", "per_tensor_symmetric",
                            "per_channel_symmetric")), 0,
)  # fmt: skip
_CALLED = {
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_qtensor", "builtins complex", "torch device",
    "collections OrderedDict",
    "torch.jit._pickle restore_type_tag", "torch.jit._pickle build_intlist", "torch.jit._pickle build_tensorlist",
    "torch.jit._pickle build_doublelist", "torch.jit._pickle build_boollist",
}  # fmt: skip


class _Made:
    """A value that is more than a number or a string; `items` are a tuple's."""

    def __init__(self, kind: str, depth: int = 1, items: tuple[Any, ...] = ()) -> None:
        self.kind = kind
        self.depth = depth
        self.items = items
        self.used = False


def check(data: bytes, sizes: dict[str, int], check_type: Callable[[str], None]) -> None:
    """Walk a pickle; `sizes` are the bytes of the storages that the archive has, by key.

    Raises:
        Refused: for what PyTorch's pickler does not write.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    try:
        for count, (name, argument) in enumerate(_opcodes(data)):
            if count == 0 and (name, argument) != ("PROTO", 2):
                raise Refused("has a pickle of another protocol than 2")
            if name == "STOP":
                if len(stack) != 1 or marks:
                    raise Refused("has a pickle that breaks off")
                return
            _step(name, argument, count, stack, marks, memo, sizes, check_type)
            if stack and isinstance(stack[-1], _Made) and stack[-1].depth > _MOST_NESTING:
                raise Refused(f"has a pickle that is nested more than {_MOST_NESTING} deep")
    except (ValueError, IndexError, KeyError) as error:
        raise Refused(f"has a damaged pickle ({type(error).__name__})") from error
    raise Refused("has a pickle that breaks off")


def _opcodes(data: bytes) -> Iterator[tuple[str, Any]]:
    for opcode, argument, _ in pickletools.genops(data):
        yield opcode.name, argument


def _step(
    name: str, argument: Any, count: int, stack: list[Any], marks: list[int], memo: dict[int, Any], sizes: dict[str, int],
    check_type: Callable[[str], None],
) -> None:  # fmt: skip
    """One opcode, done as PyTorch does it, on stand-ins."""

    def popped(many: int) -> list[Any]:
        if len(stack) - many < (marks[-1] if marks else 0):
            raise Refused("has a pickle that takes more than it holds")
        found = stack[len(stack) - many :]
        del stack[len(stack) - many :]
        return found

    match name:
        case "PROTO" if count == 0:
            pass
        case "NEWTRUE" | "NEWFALSE" | "NONE":
            stack.append(None)
        case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINUNICODE" | "BINFLOAT":
            stack.append(argument)
        case "EMPTY_TUPLE":
            stack.append(_Made("tuple"))
        case "EMPTY_LIST" | "EMPTY_DICT":
            stack.append(_Made("list" if name == "EMPTY_LIST" else "dict"))
        case "MARK":
            marks.append(len(stack))
        case "TUPLE":
            start = marks.pop()
            stack.append(_tuple(popped(len(stack) - start)))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            stack.append(_tuple(popped(int(name[-1]))))
        case "APPEND" | "APPENDS":
            items = popped(len(stack) - marks.pop() if name == "APPENDS" else 1)
            _put(stack[-1], "list", items)
        case "SETITEM" | "SETITEMS":
            items = popped(len(stack) - marks.pop() if name == "SETITEMS" else 2)
            if len(items) % 2:
                raise Refused("has a pickle with a key that has no value")
            _put(stack[-1], "dict", items)
        case "BINPUT" | "LONG_BINPUT":
            if argument > count:
                raise Refused("has a pickle that numbers its values in an unusual way")
            memo[argument] = stack[-1]
        case "BINGET" | "LONG_BINGET":
            stack.append(_use(memo[argument]))
        case "GLOBAL":
            stack.append(_global(argument))
        case "NEWOBJ":
            if _depth(popped(1)) != 1 or not isinstance(stack[-1], _Made) or not stack[-1].kind.startswith("__torch__"):
                raise Refused("has a pickle that makes an object in an unusual way")
        case "REDUCE" | "BUILD":
            function, given = popped(2)
            stack.append(_call(function, given, name, check_type))
        case "BINPERSID":
            stack.append(_storage(popped(1)[0], sizes))
        case _:
            raise Refused(f"has {name} in a pickle, which PyTorch does not write")


def _depth(values: list[Any]) -> int:
    return max((v.depth for v in values if isinstance(v, _Made)), default=0)


def _use(value: Any) -> Any:
    if isinstance(value, _Made):
        value.used = True
    return value


def _tuple(items: list[Any]) -> _Made:
    return _Made("tuple", 1 + _depth(items), tuple(_use(v) for v in items) if len(items) <= 8 else ())


def _put(target: Any, kind: str, items: list[Any]) -> None:
    """Put values into a list or dict that nothing else holds yet: it cannot come to hold itself."""
    if not isinstance(target, _Made) or target.kind != kind or target.used:
        raise Refused("has a pickle that fills what is in use already")
    for item in items:
        _use(item)
    target.depth = max(target.depth, 1 + _depth(items))


def _global(name: str) -> _Made:
    if name not in _CALLED and name not in _VALUES and (not _CLASS.fullmatch(name) or _BOUND_CLASS.match(name)):
        raise Refused(f"has {name!r} in a pickle, which no model needs")
    return _Made(name)


def _call(function: Any, given: Any, opcode: str, check_type: Callable[[str], None]) -> _Made:
    name = function.kind if isinstance(function, _Made) else ""
    if (name not in _CALLED or opcode != "REDUCE") and not name.startswith("__torch__"):
        raise Refused("has a pickle that calls what cannot be called")
    if name.startswith("__torch__"):
        return _Made("object", 1 + _depth([given]))
    if not isinstance(given, _Made) or given.kind != "tuple":
        raise Refused("has a pickle that calls without arguments")
    if name.endswith("restore_type_tag"):
        if len(given.items) != 2 or not isinstance(given.items[1], str):
            raise Refused("has a pickle with a type that is no text")
        check_type(given.items[1])
    return _Made("value", given.depth)


def _storage(given: Any, sizes: dict[str, int]) -> _Made:
    """A storage, which must not be larger than what the archive has of it."""
    items = given.items if isinstance(given, _Made) and given.kind == "tuple" else ()
    if len(items) != 5 or items[0] != "storage" or not isinstance(items[1], _Made) or not items[1].kind.endswith("Storage"):
        raise Refused("has a tensor that is described in an unusual way")
    key, elements = items[2], items[4]
    if not isinstance(key, str) or not isinstance(elements, int) or elements < 0:
        raise Refused("has a tensor that is described in an unusual way")
    if elements and elements * _VALUES[items[1].kind] > sizes.get(key, 0):
        raise Refused(f"has {sizes.get(key, 0)} bytes of the tensor {key[:40]!r} with {elements} elements")
    return _Made("storage")
