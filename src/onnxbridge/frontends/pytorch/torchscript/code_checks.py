"""The code of TorchScript archives, checked before PyTorch compiles it.

All of it may name only operators that compute from their arguments (`script_operators`). Some of it runs while a file
is read, before anyone calls the model: `__setstate__` with what it calls, values of constants of classes, and
defaults of parameters. That code has no loops and no arithmetic, so that it ends at once.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxbridge.frontends.pytorch.torchscript.allowed_operators import NAMESPACES, is_allowed, is_forbidden_method, is_known
from onnxbridge.frontends.pytorch.torchscript.tokenizer import Line, Refused, Token, lines

_MOST_CALLS = 10_000
_MOST_DEPTH = 200
_CLASSES = ("quantized", "rnn")  # what torch.classes may hold: packed weights
_THREADS = ("fork", "awaitable")
_LOADING = (
    "append", "len", "eq", "ne", "lt", "le", "gt", "ge", "__is__", "__isnot__", "__not__", "__and__", "__or__", "__contains__",
    "__getitem__", "unbind", "split", "device", "dtype", "format", "get", "keys", "items", "values",
)  # fmt: skip
_CASTS = ("annotate", "unchecked_cast", "uninitialized", "int", "float", "bool", "isinstance")
_KEYWORDS = ("if", "elif", "else", "return", "and", "or", "not", "in", "is", "pass", "assert", "raise", "def", "class")
_LITERAL = ("Final", "inf", "nan", "infj", "nanj", "True", "False", "None")
_UNBOUNDED = ("for", "while", "with", "lambda")
_PUNCTUATION = (",", ":", ".", "(", ")", "[", "]", "{", "}", "=", "->", "==", "!=", "<", "<=", ">", ">=", "...")
# methods that run without being named
_IMPLICIT = (
    "__getitem__", "__setitem__", "__delitem__", "__contains__", "__bool__", "__int__", "__float__", "__str__", "__len__",
    "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
)  # fmt: skip


class Unknown(Exception):
    """An operator that this PyTorch does not have."""


@dataclass
class _Code:
    """What is found in all files of an archive; classes and what constants are made of are known by their last names."""

    functions: dict[str, list[_Function]] = field(default_factory=dict)
    uses: dict[str, set[str]] = field(default_factory=dict)
    tuples: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)


@dataclass
class _Function:
    """What a function does that must not be done while a file is read (empty if nothing), and the names that it calls."""

    reason: str = ""
    calls: list[str] = field(default_factory=list)


def check(sources: Mapping[str, bytes]) -> None:
    """Check the code of an archive: files by the name of what they hold, such as `__torch__.torch.nn`.

    Raises:
        Refused: where it reaches out of the model, runs unbounded work while it is read, or is not as PyTorch writes it.
        Unknown: where PyTorch does not have an operator.
    """
    code = _Code()
    for name, source in sources.items():
        _file(name, source, code)
    _depth(code.uses)
    if not code.made <= code.tuples - code.classes:  # only named tuples have no code of their own that makes them
        raise Refused(f"its code computes a constant ({', '.join(sorted(code.made))})")
    if "__setstate__" in code.functions:
        costs: dict[str, int] = {}
        for name in ("__setstate__", *_IMPLICIT):
            _calls(name, code.functions, costs, ())


def check_type(text: str) -> None:
    """Check a type that a pickle names, such as `List[Tensor]`.

    Raises:
        Refused: where it is none.
    """
    for line in lines(text.encode("utf-8", "replace")):
        _names(line.tokens)
        if _literals(line.tokens):
            raise Refused("has a type that is computed")


def _file(name: str, source: bytes, code: _Code) -> None:
    inside: tuple[int, _Function] | None = None
    used: set[str] = set()
    for line in lines(source):
        if line.indent == 0 and len(line.tokens) > 1:
            used = code.uses.setdefault(f"{name}.{line.tokens[1].text}", set())
        used.update(_names(line.tokens))
        if inside is not None and line.indent > inside[0]:
            _loading(line.tokens, inside[1])
        elif line.tokens[0].text == "def":
            if len(line.tokens) < 4 or line.tokens[2].text != "(" or line.tokens[-1].text != ":":
                raise Refused("its code has a function that PyTorch does not write")
            code.made.update(_literals(line.tokens[2:]))
            inside = line.indent, _Function()
            code.functions.setdefault(line.tokens[1].text, []).append(inside[1])
        else:
            inside = None
            _statement(line, code)


def _statement(line: Line, code: _Code) -> None:
    """A line outside of functions: the head of a class, the type of an attribute, or a constant."""
    words = [token.text for token in line.tokens]
    if words[0] == "class":
        plain = len(words) == 3 or (len(words) == 6 and words[2] == "(" and words[4] == ")")
        if not plain or words[-1] != ":":
            raise Refused("its code has a class that PyTorch does not write")
        (code.tuples if len(words) == 6 and words[3] == "NamedTuple" else code.classes).add(words[1])
    elif words[0] != "import":
        code.made.update(_literals(line.tokens))


def _literals(tokens: Sequence[Token]) -> list[str]:
    """The classes that constants are made of; refuses everything but those, types and literals."""
    made: list[str] = []
    for i, (kind, word) in enumerate(tokens):
        before = tokens[i - 1] if i else Token("operator", "(")
        after = tokens[i + 1] if i + 1 < len(tokens) else Token("operator", ",")
        negative = word == "-" and (after.kind == "number" or after.text in _LITERAL)
        imaginary = word == "+" and before.kind == "number" and after.text.endswith("j")
        call = word == "(" and i > 0 and (before.kind != "operator" or before.text in (")", "]"))
        device = call and i > 2 and [t.text for t in tokens[i - 3 : i]] == ["torch", ".", "device"]
        own = call and before.kind == "name" and _root(tokens, i - 1) == "__torch__"
        if own:
            made.append(before.text)
        if call and not (device or own) or (kind == "operator" and word not in _PUNCTUATION and not (negative or imaginary)):
            raise Refused(f"its code computes a constant ({''.join(t.text for t in tokens[max(0, i - 3) : i + 2])})")
        if kind == "name" and word in (*_KEYWORDS, *_UNBOUNDED) and word != "pass":
            raise Refused(f"its code computes a constant ({word})")
    return made


def _depth(uses: Mapping[str, set[str]]) -> None:
    """Refuse classes and functions that need one another in a long chain: PyTorch compiles each inside the one before."""
    depths: dict[str, int] = {}
    for first in uses:
        stack = [(first, iter(sorted(uses[first])))]
        opened = {first}
        while stack:
            name, rest = stack[-1]
            following = next((n for n in rest if n in uses and n not in opened and n not in depths), None)
            if following is not None:
                stack.append((following, iter(sorted(uses[following]))))
                opened.add(following)
                continue
            stack.pop()
            depths[name] = 1 + max((depths.get(n, 0) for n in uses[name]), default=0)
            if depths[name] > _MOST_DEPTH:
                raise Refused(f"its code has classes and functions that are nested more than {_MOST_DEPTH} deep")


def _names(tokens: Sequence[Token]) -> list[str]:
    """The archive's own classes and functions that are named; refuses names that lead out of the model."""
    own: list[str] = []
    words = [token.text for token in tokens] + [""] * 7
    for i, (kind, word) in enumerate(tokens):
        if kind != "name":
            continue
        follows = words[i + 1 : i + 6]
        if i and words[i - 1] == "." and tokens[i - 1].kind == "operator":
            if is_forbidden_method(word):
                raise Refused(f"its code calls {word!r}, which reaches out of the model")
        elif word == "torch":
            name = follows[3] if follows[:3] == [".", "autograd", "."] else follows[1]
            _operator(f"aten::{name}" if follows[0] == "." else "torch")
        elif word == "ops":
            _operator(f"{follows[1]}::{follows[3]}" if follows[0] == follows[2] == "." else "ops")
        elif word in _THREADS:
            raise Refused(f"its code calls {word!r}, which no model needs")
        elif word == "getattr":
            _getattr(tokens[i + 1 :])
        elif word == "__torch__":
            if follows[0] != "." or (follows[1] == "torch" and follows[2] != "."):
                raise Refused("its code hands names of its own classes around")
            if follows[1] == "torch" and follows[3] == "classes" and (follows[4] != "." or words[i + 6] not in _CLASSES):
                raise Refused(f"its code has an object of torch.classes.{words[i + 6]}, which no model needs")
            own += _prefixes(words[i:])
    return own


def _prefixes(words: Sequence[str]) -> list[str]:
    """What `__torch__.a.b.c` can name: `c` may be a method or attribute of what is named."""
    path = words[0]
    found = []
    for dot, word in zip(words[1::2], words[2::2], strict=False):
        if dot != "." or not word.isidentifier():
            break
        path += f".{word}"
        found.append(path)
    return found[-3:]


def _operator(name: str) -> None:
    if name in ("torch", "ops"):
        raise Refused(f"its code uses {name!r} without naming an operator")
    if is_allowed(name):
        return
    if is_known(name):
        raise Refused(f"its code calls {name}, which may reach out of the model")
    namespace, _, short = name.partition("::")
    if namespace not in NAMESPACES or short in ("autograd", "classes", "ops", "jit", "distributed"):
        raise Refused(f"its code calls {name}, which no model needs")
    raise Unknown(name)


def _getattr(tokens: Sequence[Token]) -> None:
    """`getattr(self, "0")` is how attributes are read that have no name in Python."""
    words = [token.text for token in tokens[:5]]
    if len(words) < 5 or words[0] != "(" or words[2] != "," or words[4] != ")" or tokens[3].kind != "string":
        raise Refused("its code reads an attribute by a name that is computed")
    try:
        name = ast.literal_eval(words[3])
    except (ValueError, SyntaxError) as error:
        raise Refused("its code reads an attribute by a name that cannot be read") from error
    if is_forbidden_method(str(name)):
        raise Refused(f"its code calls {name!r}, which reaches out of the model")


def _loading(tokens: Sequence[Token], function: _Function) -> None:
    """Note why a line must not run while a file is read, and what it calls."""
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
                allowed = packs or (word in _LOADING if namespace == "aten" else word in ("RaiseException", "unchecked_cast"))
                reason = "" if allowed else f"calls {word!r}"
            elif not namespace and called:
                function.calls.append(word)
        elif kind == "name" and called and word not in (*_CASTS, *_KEYWORDS, "getattr"):
            reason = f"calls {word!r}"
        function.reason = function.reason or reason


def _root(tokens: Sequence[Token], i: int) -> str:
    """The name with which the names begin that dots join and that end here; empty where they begin with an expression."""
    while i >= 2 and tokens[i - 1].text == "." and tokens[i - 2].kind == "name":
        i -= 2
    return "" if i and tokens[i - 1].text == "." else tokens[i].text


def _namespace(tokens: Sequence[Token], i: int) -> str:
    """The namespace of the operator that `torch.x` or `ops.namespace.x` names at its last word; empty for any other attribute."""
    root = _root(tokens, i)
    return "aten" if root == "torch" else tokens[i - 2].text if root == "ops" and i >= 4 else ""


def _calls(name: str, functions: Mapping[str, list[_Function]], known: dict[str, int], callers: tuple[str, ...]) -> int:
    """How many functions run when this one is called while a file is read."""
    if name in known:
        return known[name]
    if name in callers or len(callers) > 100:
        raise Refused(f"its code has a {name!r} that calls itself while the file is read")
    found = functions.get(name, ())
    if callers and name not in _LOADING and is_known(f"aten::{name}") and not name.startswith("__"):
        raise Refused(f"its code has a {callers[0]!r} that calls {name!r} while the file is read")
    total = 1
    for function in found:
        if function.reason:
            raise Refused(f"its code has a {(*callers, name)[0]!r} that {function.reason} while the file is read")
        total += sum(_calls(n, functions, known, (*callers, name)) for n in function.calls)
    if total > _MOST_CALLS:
        raise Refused(f"its code has a {(*callers, name)[0]!r} that makes more than {_MOST_CALLS} calls while the file is read")
    known[name] = total
    return total
