"""Validates the pickles in TorchScript archives before PyTorch's own unpickler reads them.

PyTorch's unpickler runs no Python, but it trusts its input: it allocates the memory that a pickle declares for a tensor, even if
the archive has less data, relies on the order in which PyTorch writes, and recurses into nested values.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Iterator
from typing import Any

from onnxbridge.frontends.pytorch.torchscript.validation.tokenizer import Refused

_MAX_NESTING = 500
_CLASS = re.compile(r"__torch__(?:\.[A-Za-z_]\w*)* [A-Za-z_]\w*", re.ASCII)
_BOUND_CLASS = re.compile(r"__torch__\.torch\.classes(?:$|[. ])(?!quantized\b|rnn\b)")
_STORAGES = {
    "Byte": 1, "Char": 1, "Bool": 1, "QInt8": 1, "QUInt8": 1, "QUInt4x2": 1, "QUInt2x4": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
    "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "Float8_e8m0fnu": 1, "Short": 2, "Half": 2, "BFloat16": 2, "UInt16": 2, "Int": 4,
    "Float": 4, "QInt32": 4, "UInt32": 4, "ComplexHalf": 4, "Long": 8, "Double": 8, "UInt64": 8, "ComplexFloat": 8,
    "ComplexDouble": 16,
}  # fmt: skip
_GLOBALS = {f"torch {name}Storage": size for name, size in _STORAGES.items()} | dict.fromkeys(
    (f"torch {s}" for s in ("per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams", "per_tensor_symmetric",
                            "per_channel_symmetric")), 0,
)  # fmt: skip
_ALLOWED_CALLS = {
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_qtensor", "builtins complex", "torch device",
    "collections OrderedDict",
    "torch.jit._pickle restore_type_tag", "torch.jit._pickle build_intlist", "torch.jit._pickle build_tensorlist",
    "torch.jit._pickle build_doublelist", "torch.jit._pickle build_boollist",
}  # fmt: skip


class _Value:
    """A value other than a number or a string; `items` are the elements of a tuple."""

    def __init__(self, kind: str, depth: int = 1, items: tuple[Any, ...] = ()) -> None:
        self.kind = kind
        self.depth = depth
        self.items = items
        self.used = False


def check(data: bytes, sizes: dict[str, int], check_type: Callable[[str], None]) -> None:
    """Check a pickle; `sizes` maps the keys of the archive's storages to their sizes in bytes.

    Raises:
        Refused: for anything that PyTorch's pickler does not write.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    try:
        for count, (name, argument) in enumerate(_opcodes(data)):
            if count == 0 and (name, argument) != ("PROTO", 2):
                raise Refused("has a pickle with a protocol other than 2")
            if name == "STOP":
                if len(stack) != 1 or marks:
                    raise Refused("has a truncated pickle")
                return
            _step(name, argument, count, stack, marks, memo, sizes, check_type)
            if stack and isinstance(stack[-1], _Value) and stack[-1].depth > _MAX_NESTING:
                raise Refused(f"has a pickle that is nested more than {_MAX_NESTING} deep")
    except (ValueError, IndexError, KeyError) as error:
        raise Refused(f"has a damaged pickle ({type(error).__name__})") from error
    raise Refused("has a truncated pickle")


def _opcodes(data: bytes) -> Iterator[tuple[str, Any]]:
    for opcode, argument, _ in pickletools.genops(data):
        yield opcode.name, argument


def _step(
    name: str, argument: Any, count: int, stack: list[Any], marks: list[int], memo: dict[int, Any], sizes: dict[str, int],
    check_type: Callable[[str], None],
) -> None:  # fmt: skip
    """Execute one opcode as PyTorch does, on placeholder values."""

    def pop(size: int) -> list[Any]:
        if len(stack) - size < (marks[-1] if marks else 0):
            raise Refused("has a pickle that pops from an empty stack")
        found = stack[len(stack) - size :]
        del stack[len(stack) - size :]
        return found

    match name:
        case "PROTO" if count == 0:
            pass
        case "NEWTRUE" | "NEWFALSE" | "NONE":
            stack.append(None)
        case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINUNICODE" | "BINFLOAT":
            stack.append(argument)
        case "EMPTY_TUPLE":
            stack.append(_Value("tuple"))
        case "EMPTY_LIST" | "EMPTY_DICT":
            stack.append(_Value("list" if name == "EMPTY_LIST" else "dict"))
        case "MARK":
            marks.append(len(stack))
        case "TUPLE":
            start = marks.pop()
            stack.append(_tuple(pop(len(stack) - start)))
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            stack.append(_tuple(pop(int(name[-1]))))
        case "APPEND" | "APPENDS":
            items = pop(len(stack) - marks.pop() if name == "APPENDS" else 1)
            _extend(stack[-1], "list", items)
        case "SETITEM" | "SETITEMS":
            items = pop(len(stack) - marks.pop() if name == "SETITEMS" else 2)
            if len(items) % 2:
                raise Refused("has a pickle with a key without a value")
            _extend(stack[-1], "dict", items)
        case "BINPUT" | "LONG_BINPUT":
            if argument > count:
                raise Refused("has a pickle with unusual memo indices")
            memo[argument] = stack[-1]
        case "BINGET" | "LONG_BINGET":
            stack.append(_use(memo[argument]))
        case "GLOBAL":
            stack.append(_global(argument))
        case "NEWOBJ":
            if _depth(pop(1)) != 1 or not isinstance(stack[-1], _Value) or not stack[-1].kind.startswith("__torch__"):
                raise Refused("has a pickle that creates an object in an unusual way")
        case "REDUCE" | "BUILD":
            function, argument = pop(2)
            stack.append(_call(function, argument, name, check_type))
        case "BINPERSID":
            stack.append(_storage(pop(1)[0], sizes))
        case _:
            raise Refused(f"has {name} in a pickle, which PyTorch does not write")


def _depth(values: list[Any]) -> int:
    return max((v.depth for v in values if isinstance(v, _Value)), default=0)


def _use(value: Any) -> Any:
    if isinstance(value, _Value):
        value.used = True
    return value


def _tuple(items: list[Any]) -> _Value:
    return _Value("tuple", 1 + _depth(items), tuple(_use(v) for v in items) if len(items) <= 8 else ())


def _extend(target: Any, kind: str, items: list[Any]) -> None:
    """Add values to a list or dict that nothing refers to yet, so that it cannot contain itself."""
    if not isinstance(target, _Value) or target.kind != kind or target.used:
        raise Refused("has a pickle that modifies a value after its use")
    for item in items:
        _use(item)
    target.depth = max(target.depth, 1 + _depth(items))


def _global(name: str) -> _Value:
    if name not in _ALLOWED_CALLS and name not in _GLOBALS and (not _CLASS.fullmatch(name) or _BOUND_CLASS.match(name)):
        raise Refused(f"has {name!r} in a pickle, which is not allowed in a model")
    return _Value(name)


def _call(function: Any, argument: Any, opcode: str, check_type: Callable[[str], None]) -> _Value:
    name = function.kind if isinstance(function, _Value) else ""
    if (name not in _ALLOWED_CALLS or opcode != "REDUCE") and not name.startswith("__torch__"):
        raise Refused("has a pickle that calls an object that is not callable")
    if name.startswith("__torch__"):
        return _Value("object", 1 + _depth([argument]))
    if not isinstance(argument, _Value) or argument.kind != "tuple":
        raise Refused("has a pickle that calls without arguments")
    if name.endswith("restore_type_tag"):
        if len(argument.items) != 2 or not isinstance(argument.items[1], str):
            raise Refused("has a pickle with a type that is not a string")
        check_type(argument.items[1])
    return _Value("value", argument.depth)


def _storage(argument: Any, sizes: dict[str, int]) -> _Value:
    """A storage, which must not be larger than its data in the archive."""
    items = argument.items if isinstance(argument, _Value) and argument.kind == "tuple" else ()
    if len(items) != 5 or items[0] != "storage" or not isinstance(items[1], _Value) or not items[1].kind.endswith("Storage"):
        raise Refused("has a tensor with an unusual description")
    key, elements = items[2], items[4]
    if not isinstance(key, str) or not isinstance(elements, int) or elements < 0:
        raise Refused("has a tensor with an unusual description")
    if elements and elements * _GLOBALS[items[1].kind] > sizes.get(key, 0):
        raise Refused(f"has {sizes.get(key, 0)} bytes for the tensor {key[:40]!r} with {elements} elements")
    return _Value("storage")
