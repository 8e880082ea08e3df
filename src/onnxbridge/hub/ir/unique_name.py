"""Names that are not taken yet."""

from __future__ import annotations


def unique_name(name: str, taken: set[str]) -> str:
    """The name itself if it is not taken, otherwise with the first free number appended; it is taken from now on."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
