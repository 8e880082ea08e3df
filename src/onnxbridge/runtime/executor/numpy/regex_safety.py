"""Detection of regular expressions that may take exponential time in Python."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_OPENING = re.compile(r"\?(?:P<\w+>|P=\w+\)|\(\w+\)|[aiLmsux]*-?[imsx]*:|[aiLmsux]+\)|<?[=!]|[:>]|#[^)]*\))")
_FEW = 3  # up to so many repetitions are treated as if written out


@dataclass
class _Group:
    """An open group: whether it contains a repetition or a choice, and its alternatives."""

    ambiguous: bool = False
    choices: int = 1
    items: int = 0
    letters: bool = True

    def item(self, letter: bool) -> None:
        self.items += 1
        self.letters &= letter and self.items == 1

    def is_ambiguous(self) -> bool:
        """Whether it can match in several ways; a choice between single characters is a character set and cannot."""
        return self.ambiguous or (self.choices > 1 and not (self.letters and self.items == 1))


def may_be_exponential(pattern: str) -> bool:
    """Whether a valid pattern repeats a group that contains a repetition or a choice, so that matching may be exponential."""
    if re.search(r"\(\?[aiLmsu]*x", pattern):  # verbose mode, which ignores whitespace and comments
        return True
    stack = [_Group()]
    at = 0
    while at < len(pattern):
        at, letter, inside = _atom(pattern, at, stack)
        if at < 0:
            at = -at
            continue
        most, at = _repeat(pattern, at)
        if most > _FEW and inside:
            return True
        group = stack[-1]
        group.ambiguous |= inside or most > _FEW
        group.item(letter and most == 1)
    return False


def _atom(pattern: str, at: int, stack: list[_Group]) -> tuple[int, bool, bool]:
    """The end of the atom at `at` (negative: it cannot be repeated), whether it is one character, whether it is ambiguous."""
    c = pattern[at]
    if c == "(":
        stack.append(_Group())
        opening = _OPENING.match(pattern, at + 1)
        end = opening.end() if opening else at + 1
        if opening and opening.group().endswith(")") and not opening.group().startswith("?("):
            stack.pop()
            return end, False, False
        return -end, False, False
    if c == ")" and len(stack) > 1:
        return at + 1, False, stack.pop().is_ambiguous()
    if c == "|":
        group = stack[-1]
        group.letters &= group.items == 1
        group.choices, group.items = group.choices + 1, 0
        return -(at + 1), False, False
    if c == "\\":
        return at + 2, not pattern[at + 1 : at + 2].isdigit() and pattern[at + 1 : at + 2] not in "AbBZ", False
    if c == "[":
        end = at + 1 + (pattern[at + 1 : at + 2] == "^")
        end += pattern[end : end + 1] == "]"
        while end < len(pattern) and pattern[end] != "]":
            end += 2 if pattern[end] == "\\" else 1
        return end + 1, True, False
    return at + 1, c not in ".^$", False


def _repeat(pattern: str, at: int) -> tuple[float, int]:
    """The maximum count of the quantifier at `at`, 1 without one, and its end."""
    most = 1.0
    count = _COUNT.match(pattern, at)
    if pattern[at : at + 1] in ("*", "+"):
        most, at = float("inf"), at + 1
    elif pattern[at : at + 1] == "?":
        at += 1
        most = 1.5  # optional: neither a repetition nor exactly one character
    elif count and (count.group(1) or count.group(3)):
        low, comma, high = count.groups()
        most = float(high) if high else float("inf") if comma else float(low)
        at = count.end()
    else:
        return most, at
    return most, at + (pattern[at : at + 1] in ("?", "+"))
