"""Names that are not taken yet."""

from __future__ import annotations

from collections.abc import Callable


def free_name(name: str, is_taken: Callable[[str], bool], *, first: int = 1, separator: str = "_") -> str:
    """The name itself if it is not taken, otherwise with the first free number from `first` on appended after `separator`."""
    found, number = name, first
    while is_taken(found):
        found = f"{name}{separator}{number}"
        number += 1
    return found


def unique_name(name: str, taken: set[str]) -> str:
    """The name itself if it is not taken, otherwise with the first free number appended; it is taken from now on."""
    found = free_name(name, taken.__contains__)
    taken.add(found)
    return found
