"""Tokenizes the code in TorchScript archives, in exactly the form in which PyTorch writes it.

PyTorch's own lexer accepts more (tabs, comments, continuation lines, strings with single or triple quotes). What PyTorch accepts
but does not write is rejected, so that both lexers produce the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# PyTorch's parser and compiler are recursive: about 4,000 levels overflow the stack
_MAX_NESTING = 500
_TOKEN = re.compile(
    r"(?P<space> +)|(?P<newline>\n)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?j?(?![A-Za-z0-9_]))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?!\"))"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*"(?!"))'
    r"|(?P<operator>\.\.\.|->|\*\*=?|//=?|<<=?|>>=?|[-+*/%@&|^=!<>]=|[-+*/%@&|^~<>=()\[\]{},:.])"
)
_PRINTABLE = re.compile(rb"[\x20-\x7e\n]*")
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_SEPARATORS = {",", ":", "=", "->"}
_NESTING_KEYWORDS = {"not", "and", "or", "if", "else", "in", "is", "lambda"}


class Refused(Exception):
    """The reason why code is not passed to PyTorch."""


class Token(NamedTuple):
    """`kind` is number, name, string or operator."""

    kind: str
    text: str


class Line(NamedTuple):
    """A logical line, which continues while brackets are open."""

    indent: int
    tokens: list[Token]


def lines(code: bytes) -> Iterator[Line]:
    """The logical lines of code.

    Raises:
        Refused: for text in a form that PyTorch does not write, and for code nested too deeply to compile.
    """
    if not _PRINTABLE.fullmatch(code):
        raise Refused("its code has characters that PyTorch does not write in code")
    text = code.decode("ascii")
    blocks = [0]
    branches = 0
    for line in _logical_lines(text):
        if line.indent > blocks[-1]:
            blocks.append(line.indent)
        while line.indent < blocks[-1]:
            blocks.pop()
        if line.indent != blocks[-1]:
            raise Refused("its code has inconsistent indentation")
        branches += line.tokens[0].text == "elif"
        if len(blocks) > _MAX_NESTING or branches > _MAX_NESTING or _expression_depth(line.tokens) > _MAX_NESTING:
            raise Refused(f"its code is nested more than {_MAX_NESTING} deep")
        yield line


def _logical_lines(text: str) -> Iterator[Line]:
    indent = at = spaces = 0
    tokens: list[Token] = []
    opened: list[str] = []
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Refused(f"its code has {text[at : at + 20]!r}, which PyTorch does not write")
        kind, word, at = str(found.lastgroup), found.group(), found.end()
        if kind == "space":
            spaces = len(word)
            continue
        if kind == "newline":
            if tokens and not opened:
                yield Line(indent, tokens)
                tokens = []
            spaces = 0
            continue
        if word in ("(", "[", "{"):
            opened.append(word)
        elif word in _BRACKETS and kind == "operator" and (not opened or opened.pop() != _BRACKETS[word]):
            raise Refused("its code has unbalanced brackets")
        if not tokens:
            indent = spaces
        elif kind == "name" and _is_ambiguous(tokens[-1], word):
            raise Refused(f"its code has {tokens[-1].text + ' ' + word!r}, which is ambiguous")
        tokens.append(Token(kind, word))
        spaces = 0
    if opened:
        raise Refused("its code has unbalanced brackets")
    if tokens:
        yield Line(indent, tokens)


def _is_ambiguous(before: Token, word: str) -> bool:
    """Whether PyTorch's lexer splits `word` into an operator and a name: it reads `not inx` as `not in`, `x`."""
    start = {"not": "in", "is": "not"}.get(before.text)
    return before.kind == "name" and start is not None and word.startswith(start) and word != start


def _expression_depth(tokens: list[Token]) -> int:
    """The maximum depth of the syntax tree of an expression in this line."""
    chains = [0]
    total = deepest = 0
    for kind, word in tokens:
        step = 0
        if kind == "operator" and word in ("(", "[", "{"):
            chains.append(0)
            step = 1
        elif kind == "operator" and word in _BRACKETS:
            total -= chains.pop() + 1
            step = 1  # the called or indexed expression is one level deeper
            chains[-1] += 1
        elif kind == "operator" and word in _SEPARATORS:
            total -= chains[-1]
            chains[-1] = 0
        elif kind == "operator" or word in _NESTING_KEYWORDS:
            chains[-1] += 1
            step = 1
        total += step
        deepest = max(deepest, total)
    return deepest
