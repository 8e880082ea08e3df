"""Tokens of the code in TorchScript archives, in the one form in which PyTorch writes it.

PyTorch's own lexer takes more (tabs, comments, continued lines, strings with single or three quotes). What it takes
and PyTorch does not write is refused, so that both lexers find the same tokens in the same code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# PyTorch's parser and compiler recurse: from about 4,000 levels on they overflow the stack
_MOST_NESTING = 500
_TOKEN = re.compile(
    r"(?P<space> +)|(?P<newline>\n)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?j?(?![A-Za-z0-9_]))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?!\"))"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*"(?!"))'
    r"|(?P<operator>\.\.\.|->|\*\*=?|//=?|<<=?|>>=?|[-+*/%@&|^=!<>]=|[-+*/%@&|^~<>=()\[\]{},:.])"
)
_PRINTABLE = re.compile(rb"[\x20-\x7e\n]*")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_FLAT = {",", ":", "=", "->"}
_DEEPER = {"not", "and", "or", "if", "else", "in", "is", "lambda"}


class Refused(Exception):
    """Why code is not given to PyTorch."""


class Token(NamedTuple):
    """`kind` is number, name, string or operator."""

    kind: str
    text: str


class Line(NamedTuple):
    """A logical line, which goes on as long as brackets are open."""

    indent: int
    tokens: list[Token]


def lines(code: bytes) -> Iterator[Line]:
    """The logical lines of code.

    Raises:
        Refused: for text that PyTorch does not write, and where it is nested too deeply to be compiled.
    """
    if not _PRINTABLE.fullmatch(code):
        raise Refused("its code has characters that PyTorch does not write into code")
    text = code.decode("ascii")
    blocks = [0]
    branches = 0
    for line in _logical(text):
        if line.indent > blocks[-1]:
            blocks.append(line.indent)
        while line.indent < blocks[-1]:
            blocks.pop()
        if line.indent != blocks[-1]:
            raise Refused("its code has an indentation that fits no block")
        branches += line.tokens[0].text == "elif"
        if len(blocks) > _MOST_NESTING or branches > _MOST_NESTING or _nesting(line.tokens) > _MOST_NESTING:
            raise Refused(f"its code is nested more than {_MOST_NESTING} deep")
        yield line


def _logical(text: str) -> Iterator[Line]:
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
        elif word in _PAIRS and kind == "operator" and (not opened or opened.pop() != _PAIRS[word]):
            raise Refused("its code has brackets that do not match")
        if not tokens:
            indent = spaces
        elif kind == "name" and _glued(tokens[-1], word):
            raise Refused(f"its code has {tokens[-1].text + ' ' + word!r}, which can be read in two ways")
        tokens.append(Token(kind, word))
        spaces = 0
    if opened:
        raise Refused("its code has brackets that do not match")
    if tokens:
        yield Line(indent, tokens)


def _glued(before: Token, word: str) -> bool:
    """Whether PyTorch's lexer takes the first letters of `word` into an operator: it finds `not in`, then `x`, in `not inx`."""
    start = {"not": "in", "is": "not"}.get(before.text)
    return before.kind == "name" and start is not None and word.startswith(start) and word != start


def _nesting(tokens: list[Token]) -> int:
    """The most levels that an expression of this line can have as a tree."""
    chains = [0]
    total = deepest = 0
    for kind, word in tokens:
        step = 0
        if kind == "operator" and word in ("(", "[", "{"):
            chains.append(0)
            step = 1
        elif kind == "operator" and word in _PAIRS:
            total -= chains.pop() + 1
            step = 1  # what was called or indexed is one level below
            chains[-1] += 1
        elif kind == "operator" and word in _FLAT:
            total -= chains[-1]
            chains[-1] = 0
        elif kind == "operator" or word in _DEEPER:
            chains[-1] += 1
            step = 1
        total += step
        deepest = max(deepest, total)
    return deepest
