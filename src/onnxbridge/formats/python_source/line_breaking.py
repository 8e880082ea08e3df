"""Breaks long lines of Python at brackets, as formatters do."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterable, Iterator

WIDTH = 120
_OPEN, _CLOSE = "([{", ")]}"


def lines(statements: Iterable[str], indent: int = 0) -> list[str]:
    """Statements, each broken into as many lines as needed. Their indentation is preserved."""
    made: list[str] = []
    for statement in statements:
        body = statement.lstrip(" ")
        made += _broken(body, indent + len(statement) - len(body)) if body else [""]
    return made


def _broken(text: str, indent: int, comma: str = "") -> list[str]:
    line = " " * indent + text + comma
    if len(line) <= WIDTH or "\n" in text:
        return [line]
    span = _outermost(text)
    if span is None:
        return [line]
    start, end, commas = span
    body = text[start:end].strip()
    head, tail = " " * indent + text[:start], " " * indent + text[end:] + comma
    if len(body) + indent + 4 <= WIDTH and not commas:
        return [head, " " * (indent + 4) + body, tail]
    if len(body) + indent + 4 <= WIDTH and not text.startswith("def "):
        return [head, " " * (indent + 4) + body, tail]
    cuts = [start, *(c + 1 for c in commas), end + 1]
    parts = [text[a : b - 1].strip() for a, b in zip(cuts, cuts[1:], strict=False)]
    single = len(parts) == 1 and (" for " in parts[0] or parts[0].startswith("*"))
    inner = [line for part in parts if part for line in _broken(part, indent + 4, "" if single else ",")]
    return [head, *inner, tail]


def _outermost(text: str) -> tuple[int, int, list[int]] | None:
    """Start and end of the content of the last outermost brackets, and the commas in it."""
    span: tuple[int, int, list[int]] | None = None
    opened: list[int] = []
    commas: list[int] = []
    for kind, at in _delimiters(text):
        if kind in _OPEN:
            opened.append(at + 1)
            if len(opened) == 1:
                commas = []
        elif kind in _CLOSE and opened:
            start = opened.pop()
            if not opened and text[start:at].strip():
                span = start, at, commas
        elif kind == "," and len(opened) == 1:
            commas.append(at)
    return span


def _delimiters(text: str) -> Iterator[tuple[str, int]]:
    """The brackets and commas of a line that are outside strings."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP and token.string in f"{_OPEN}{_CLOSE},":
                yield token.string, token.start[1]
    except tokenize.TokenError:
        return


def numbers(text: str) -> list[tuple[int, int, int]]:
    """The integers in a text, with start and end."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NUMBER and token.string.isdigit():
                begin = starts[token.start[0] - 1] + token.start[1]
                found.append((begin, begin + len(token.string), int(token.string)))
    except (tokenize.TokenError, IndentationError):
        return []
    return found


def quoted(text: str) -> str:
    """A string literal in the quotes that formatters prefer."""
    literal = ascii(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal and "\\'" not in literal else literal


def requoted(text: str) -> str:
    """An expression whose strings have the quotes that formatters prefer."""
    made, cut = "", 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        body = token.string[1:-1]
        if token.type == tokenize.STRING and token.string[0] == "'" and not {'"', "\\", "'"} & set(body):
            made += f'{text[cut : token.start[1]]}"{body}"'
            cut = token.end[1]
    return made + text[cut:]


def joined(statement: Iterable[str]) -> str:
    """A statement joined into one line, with its indentation."""
    first, *rest = statement
    made = first.rstrip()
    for line in map(str.strip, rest):
        if made[-1] in _OPEN:
            made += line
        elif line[:1] and line[0] in _CLOSE:
            made = made.removesuffix(",") + line
        else:
            made += f" {line}"
    return made
