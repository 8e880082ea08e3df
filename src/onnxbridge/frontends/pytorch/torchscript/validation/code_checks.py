"""Validates the code of TorchScript archives before PyTorch compiles it.

The code may call only operators that compute from their arguments (`allowed_operators`). Some of it runs while the file is
loaded, before the model is called: `__setstate__` and the functions it calls, class constants, and default values of parameters.
That code must have no loops and no arithmetic, so that loading terminates quickly.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxbridge.frontends.pytorch.torchscript.validation.allowed_operators import (
    NAMESPACES,
    is_allowed,
    is_forbidden_method,
    is_known,
)
from onnxbridge.frontends.pytorch.torchscript.validation.tokenizer import Line, Refused, Token, lines

_MAX_CALLS = 10_000
_MAX_DEPTH = 200
_CLASSES = ("quantized", "rnn")  # namespaces of torch.classes with packed weights
_ASYNC = ("fork", "awaitable")
_ALLOWED_WHILE_LOADING = (
    "append", "len", "eq", "ne", "lt", "le", "gt", "ge", "__is__", "__isnot__", "__not__", "__and__", "__or__", "__contains__",
    "__getitem__", "unbind", "split", "device", "dtype", "format", "get", "keys", "items", "values",
)  # fmt: skip
_CASTS = ("annotate", "unchecked_cast", "uninitialized", "int", "float", "bool", "isinstance")
_KEYWORDS = ("if", "elif", "else", "return", "and", "or", "not", "in", "is", "pass", "assert", "raise", "def", "class")
_LITERAL = ("Final", "inf", "nan", "infj", "nanj", "True", "False", "None")
_UNBOUNDED = ("for", "while", "with", "lambda")
_PUNCTUATION = (",", ":", ".", "(", ")", "[", "]", "{", "}", "=", "->", "==", "!=", "<", "<=", ">", ">=", "...")
# methods that run without being called by name
_IMPLICIT = (
    "__getitem__", "__setitem__", "__delitem__", "__contains__", "__bool__", "__int__", "__float__", "__str__", "__len__",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
)  # fmt: skip


class UnknownOperator(Exception):
    """An operator that this PyTorch does not have."""


@dataclass
class _Code:
    """The definitions in all files of an archive; classes and the classes of constants are identified by their last names."""

    functions: dict[str, list[_Function]] = field(default_factory=dict)
    uses: dict[str, set[str]] = field(default_factory=dict)
    tuples: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    constant_classes: set[str] = field(default_factory=set)


@dataclass
class _Function:
    """Why a function must not run while a file is loaded (empty if it may), and the names that it calls."""

    reason: str = ""
    calls: list[str] = field(default_factory=list)


def check(sources: Mapping[str, bytes]) -> None:
    """Check the code of an archive: sources by qualified name, for example `__torch__.torch.nn`.

    Raises:
        Refused: if it has effects outside the model, unbounded work while loading, or a form that PyTorch does not write.
        Unknown: if PyTorch does not have an operator.
    """
    code = _Code()
    for name, source in sources.items():
        _check_file(name, source, code)
    _check_dependency_depth(code.uses)
    # only named tuples are constructed without running code of the archive
    if not code.constant_classes <= code.tuples - code.classes:
        raise Refused(f"its code computes a constant ({', '.join(sorted(code.constant_classes))})")
    if "__setstate__" in code.functions:
        costs: dict[str, int] = {}
        for name in ("__setstate__", *_IMPLICIT):
            _count_calls(name, code.functions, costs, ())


def check_type(text: str) -> None:
    """Check a type named in a pickle, such as `List[Tensor]`.

    Raises:
        Refused: if it is not a type.
    """
    for line in lines(text.encode("utf-8", "replace")):
        _check_names(line.tokens)
        if _check_literals(line.tokens):
            raise Refused("has a type that is an expression")


def _check_file(name: str, source: bytes, code: _Code) -> None:
    inside: tuple[int, _Function] | None = None
    used: set[str] = set()
    for line in lines(source):
        if line.indent == 0 and len(line.tokens) > 1:
            used = code.uses.setdefault(f"{name}.{line.tokens[1].text}", set())
        used.update(_check_names(line.tokens))
        if inside is not None and line.indent > inside[0]:
            _check_loading_code(line.tokens, inside[1])
        elif line.tokens[0].text == "def":
            if len(line.tokens) < 4 or line.tokens[2].text != "(" or line.tokens[-1].text != ":":
                raise Refused("its code has a function in a form that PyTorch does not write")
            code.constant_classes.update(_check_literals(line.tokens[2:]))
            inside = line.indent, _Function()
            code.functions.setdefault(line.tokens[1].text, []).append(inside[1])
        else:
            inside = None
            _check_statement(line, code)


def _check_statement(line: Line, code: _Code) -> None:
    """Check a line outside functions: a class header, an attribute's type, or a constant."""
    words = [token.text for token in line.tokens]
    if words[0] == "class":
        plain = len(words) == 3 or (len(words) == 6 and words[2] == "(" and words[4] == ")")
        if not plain or words[-1] != ":":
            raise Refused("its code has a class in a form that PyTorch does not write")
        (code.tuples if len(words) == 6 and words[3] == "NamedTuple" else code.classes).add(words[1])
    elif words[0] != "import":
        code.constant_classes.update(_check_literals(line.tokens))


def _check_literals(tokens: Sequence[Token]) -> list[str]:
    """The classes of constants; rejects everything except these, types and literals."""
    constant_classes: list[str] = []
    for i, (kind, word) in enumerate(tokens):
        before = tokens[i - 1] if i else Token("operator", "(")
        after = tokens[i + 1] if i + 1 < len(tokens) else Token("operator", ",")
        negative = word == "-" and (after.kind == "number" or after.text in _LITERAL)
        imaginary = word == "+" and before.kind == "number" and after.text.endswith("j")
        call = word == "(" and i > 0 and (before.kind != "operator" or before.text in (")", "]"))
        device = call and i > 2 and [t.text for t in tokens[i - 3 : i]] == ["torch", ".", "device"]
        own_class = call and before.kind == "name" and _root(tokens, i - 1) == "__torch__"
        if own_class:
            constant_classes.append(before.text)
        if (
            call
            and not (device or own_class)
            or (kind == "operator" and word not in _PUNCTUATION and not (negative or imaginary))
        ):
            raise Refused(f"its code computes a constant ({''.join(t.text for t in tokens[max(0, i - 3) : i + 2])})")
        if kind == "name" and word in (*_KEYWORDS, *_UNBOUNDED) and word != "pass":
            raise Refused(f"its code computes a constant ({word})")
    return constant_classes


def _check_dependency_depth(uses: Mapping[str, set[str]]) -> None:
    """Reject long dependency chains of classes and functions: PyTorch compiles each recursively within the previous one."""
    depths: dict[str, int] = {}
    for first in uses:
        stack = [(first, iter(sorted(uses[first])))]
        opened = {first}
        while stack:
            name, rest = stack[-1]
            next_name = next((n for n in rest if n in uses and n not in opened and n not in depths), None)
            if next_name is not None:
                stack.append((next_name, iter(sorted(uses[next_name]))))
                opened.add(next_name)
                continue
            stack.pop()
            depths[name] = 1 + max((depths.get(n, 0) for n in uses[name]), default=0)
            if depths[name] > _MAX_DEPTH:
                raise Refused(f"its code has classes and functions nested more than {_MAX_DEPTH} deep")


def _check_names(tokens: Sequence[Token]) -> list[str]:
    """The archive's own classes and functions that are referred to; rejects names with effects outside the model."""
    own_names: list[str] = []
    words = [token.text for token in tokens] + [""] * 7
    for i, (kind, word) in enumerate(tokens):
        if kind != "name":
            continue
        next_words = words[i + 1 : i + 6]
        if i and words[i - 1] == "." and tokens[i - 1].kind == "operator":
            if is_forbidden_method(word):
                raise Refused(f"its code calls {word!r}, which may have effects outside the model")
        elif word == "torch":
            name = next_words[3] if next_words[:3] == [".", "autograd", "."] else next_words[1]
            _check_operator(f"aten::{name}" if next_words[0] == "." else "torch")
        elif word == "ops":
            _check_operator(f"{next_words[1]}::{next_words[3]}" if next_words[0] == next_words[2] == "." else "ops")
        elif word in _ASYNC:
            raise Refused(f"its code calls {word!r}, which is not allowed in a model")
        elif word == "getattr":
            _check_getattr(tokens[i + 1 :])
        elif word == "__torch__":
            if next_words[0] != "." or (next_words[1] == "torch" and next_words[2] != "."):
                raise Refused("its code uses a qualified name without an attribute")
            if next_words[1] == "torch" and next_words[3] == "classes" and (next_words[4] != "." or words[i + 6] not in _CLASSES):
                raise Refused(f"its code has an object of torch.classes.{words[i + 6]}, which is not allowed in a model")
            own_names += _prefixes(words[i:])
    return own_names


def _prefixes(words: Sequence[str]) -> list[str]:
    """The definitions that `__torch__.a.b.c` may refer to: `c` may be a method or attribute of one."""
    path = words[0]
    found = []
    for dot, word in zip(words[1::2], words[2::2], strict=False):
        if dot != "." or not word.isidentifier():
            break
        path += f".{word}"
        found.append(path)
    return found[-3:]


def _check_operator(name: str) -> None:
    if name in ("torch", "ops"):
        raise Refused(f"its code uses {name!r} without naming an operator")
    if is_allowed(name):
        return
    if is_known(name):
        raise Refused(f"its code calls {name}, which may have effects outside the model")
    namespace, _, short = name.partition("::")
    if namespace not in NAMESPACES or short in ("autograd", "classes", "ops", "jit", "distributed"):
        raise Refused(f"its code calls {name}, which is not allowed in a model")
    raise UnknownOperator(name)


def _check_getattr(tokens: Sequence[Token]) -> None:
    """Check `getattr(self, "0")`, which reads attributes whose names are not identifiers."""
    words = [token.text for token in tokens[:5]]
    if len(words) < 5 or words[0] != "(" or words[2] != "," or words[4] != ")" or tokens[3].kind != "string":
        raise Refused("its code reads an attribute by a computed name")
    try:
        name = ast.literal_eval(words[3])
    except (ValueError, SyntaxError) as error:
        raise Refused("its code reads an attribute by an invalid name") from error
    if is_forbidden_method(str(name)):
        raise Refused(f"its code calls {name!r}, which may have effects outside the model")


def _check_loading_code(tokens: Sequence[Token], function: _Function) -> None:
    """Record why a line must not run while a file is loaded, and what it calls."""
    for i, (kind, word) in enumerate(tokens):
        called = i + 1 < len(tokens) and tokens[i + 1] == ("operator", "(")
        reason = ""
        if kind == "operator":
            number = i + 1 < len(tokens) and (tokens[i + 1].kind == "number" or tokens[i + 1].text in _LITERAL)
            reason = "" if word in _PUNCTUATION or (word == "-" and number) else f"computes with {word!r}"
        elif kind == "name" and word in _UNBOUNDED:
            reason = f"has a {word!r}"
        elif kind == "name" and i and tokens[i - 1] == ("operator", "."):
            namespace = _namespace(tokens, i)
            last = i + 1 == len(tokens) or tokens[i + 1] != ("operator", ".")
            if namespace and last:
                packs = namespace == "quantized" and ("prepack" in word or "unpack" in word)
                allowed = packs or (
                    word in _ALLOWED_WHILE_LOADING if namespace == "aten" else word in ("RaiseException", "unchecked_cast")
                )
                reason = "" if allowed else f"calls {word!r}"
            elif not namespace and called:
                function.calls.append(word)
        elif kind == "name" and called and word not in (*_CASTS, *_KEYWORDS, "getattr"):
            reason = f"calls {word!r}"
        function.reason = function.reason or reason


def _root(tokens: Sequence[Token], i: int) -> str:
    """The first name of the dotted name that ends here; empty if it begins with an expression."""
    while i >= 2 and tokens[i - 1].text == "." and tokens[i - 2].kind == "name":
        i -= 2
    return "" if i and tokens[i - 1].text == "." else tokens[i].text


def _namespace(tokens: Sequence[Token], i: int) -> str:
    """The operator namespace of `torch.x` or `ops.namespace.x` at its last word; empty for any other attribute."""
    root = _root(tokens, i)
    return "aten" if root == "torch" else tokens[i - 2].text if root == "ops" and i >= 4 else ""


def _count_calls(name: str, functions: Mapping[str, list[_Function]], known: dict[str, int], callers: tuple[str, ...]) -> int:
    """How many functions run when this one is called while a file is loaded."""
    if name in known:
        return known[name]
    if name in callers or len(callers) > 100:
        raise Refused(f"its code has a {name!r} that calls itself while the file is loaded")
    found = functions.get(name, ())
    if callers and name not in _ALLOWED_WHILE_LOADING and is_known(f"aten::{name}") and not name.startswith("__"):
        raise Refused(f"its code has a {callers[0]!r} that calls {name!r} while the file is loaded")
    total = 1
    for function in found:
        if function.reason:
            raise Refused(f"its code has a {(*callers, name)[0]!r} that {function.reason} while the file is loaded")
        total += sum(_count_calls(n, functions, known, (*callers, name)) for n in function.calls)
    if total > _MAX_CALLS:
        raise Refused(f"its code has a {(*callers, name)[0]!r} that makes more than {_MAX_CALLS} calls while the file is loaded")
    known[name] = total
    return total
