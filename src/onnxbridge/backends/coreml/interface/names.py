"""Core ML's names: letters, digits and underscores, none of MIL's own words, each name once."""

from __future__ import annotations

import re

# What the text form of MIL reads as something else than a name.
RESERVED = frozenset(
    [
        "any",
        "bool",
        "program",
        "func",
        "tensor",
        "list",
        "dict",
        "tuple",
        "true",
        "false",
        "string",
        "state",
        "bf16",
        "fp16",
        "fp32",
        "fp64",
        "int4",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint1",
        "uint2",
        "uint3",
        "uint4",
        "uint6",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ]
)


def written(name: str) -> str:
    """The name as Core ML can write it: `a/b:0` as `a_b_0`, `12` as `var_12`."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return text if re.match(r"[A-Za-z_]", text) and text not in RESERVED else f"var_{text}"


class Names:
    """The names of a model's values, given once each."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def take(self, name: str) -> str:
        """The name as Core ML writes it, with a number where another one looks the same."""
        plain = label = written(name)
        while label in self._taken:
            self._taken[plain] += 1
            label = f"{plain}_{self._taken[plain]}"
        self._taken[label] = 0
        return label
