"""Regular expressions that match single characters of a set, or one string."""

from __future__ import annotations

import string

_SPECIAL = frozenset(r"\.^$*+?()[]{}|")
_ESCAPED = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}


def literals_of(pattern: str) -> list[str] | None:
    """The strings that a pattern matches: one for "a\\.b", several characters of ASCII for "[a-c!]"; None for other patterns."""
    if pattern.startswith("[") and pattern.endswith("]") and not pattern.startswith("[^"):
        found = _characters(pattern[1:-1], _SPECIAL - frozenset(".^$*+?(){}|["))
        return None if not found else _class(found)
    found = _characters(pattern, _SPECIAL)
    return ["".join(c for c, _ in found)] if found else None


def _characters(pattern: str, special: frozenset[str]) -> list[tuple[str, bool]] | None:
    """The characters of a pattern, and whether each is escaped; None if one has another meaning."""
    found, rest = [], list(pattern)
    while rest:
        c = rest.pop(0)
        if c != "\\":
            if c in special:
                return None
            found.append((c, False))
        elif not rest or rest[0] not in string.punctuation and rest[0] not in _ESCAPED:
            return None
        else:
            c = rest.pop(0)
            found.append((_ESCAPED.get(c, c), True))
    return found


def _class(characters: list[tuple[str, bool]]) -> list[str] | None:
    """The members of a class; "-" between two characters is a range."""
    found: list[str] = []
    i = 0
    while i < len(characters):
        first = characters[i][0]
        if i + 2 < len(characters) and characters[i + 1] == ("-", False):
            last = characters[i + 2][0]
            found += map(chr, range(ord(first), ord(last) + 1))
            i += 3
        else:
            found.append(first)
            i += 1
    found = list(dict.fromkeys(found))
    return found if all(c.isascii() for c in found) and len(found) <= 128 else None
