"""Core ML identifiers: letters, digits and underscores, no reserved words of MIL, unique in a model."""

from __future__ import annotations

import re

from onnxbridge.hub.ir.unique_name import unique_name

# Reserved words of MIL's text format.
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


def core_ml_name(name: str) -> str:
    """The name as a Core ML identifier: `a/b:0` becomes `a_b_0`, `12` becomes `var_12`."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return text if re.match(r"[A-Za-z_]", text) and text not in RESERVED else f"var_{text}"


class Names:
    """Assigns unique names to the values of a model."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """The name as a Core ML identifier, with a number appended if it is taken."""
        return unique_name(core_ml_name(name), self._taken)
