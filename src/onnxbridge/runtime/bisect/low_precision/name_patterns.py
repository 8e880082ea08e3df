"""Few names and patterns that stand for many operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

_FEWEST = 3
"""A pattern or an operator type stands for at least so many names."""
_FEW = 12
"""A longer list is shortened by patterns that also stand for some names that were not asked for."""
_MOSTLY, _NEARLY_ALL = 0.75, 0.9
"""Of what such a pattern stands for, the least share that was asked for; no pattern stands for nearly all names."""


def shortened(names: Collection[str], types: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Names, patterns such as "encoder/block.0/*" and operator types that stand for these names, and all that they stand for.

    Args:
        types: the operator type of each name that may be meant.
    """
    groups = _groups(types)
    exact = _covered(names, groups, 1.0)
    if len(exact) > _FEW:
        known = len(types)
        small = {label: members for label, members in groups.items() if len(members) < _NEARLY_ALL * known}
        loose = _covered(names, small, _MOSTLY)
        exact = loose if len(loose) < len(exact) else exact
    meant = {member for label in exact for member in groups.get(label, {label})}
    return exact, [name for name in types if name in meant]


def _groups(types: Mapping[str, str]) -> dict[str, set[str]]:
    """What each operator type, and each path up to a "/" in the names, stands for."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, op in types.items():
        found[op].add(name)
        parts = name.split("/")
        for depth in range(1, len(parts)):
            if path := "/".join(parts[:depth]):
                found[f"{path}/*"].add(name)
    return found


def _covered(names: Collection[str], groups: Mapping[str, set[str]], share: float) -> list[str]:
    """Labels of groups, the largest first, of whose members at least this share is among the names; and the names left."""
    chosen, left = [], set(names)
    for label, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        asked = members.intersection(names)
        if len(asked) >= share * len(members) and len(members & left) >= _FEWEST:
            chosen.append(label)
            left -= members
    for label in list(chosen):
        others = set().union(*(groups[other] for other in chosen if other != label))
        if groups[label].intersection(names) <= others:
            chosen.remove(label)
    return chosen + [name for name in names if name in left]
