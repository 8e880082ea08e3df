"""Identifiers of generated source, made of names that any file may contain."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection


def identifier(name: str, reserved: Collection[str]) -> str:
    """The name as an ASCII identifier that is neither reserved nor a keyword."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    while name in reserved or keyword.iskeyword(name) or not name.isidentifier():
        name = f"{name}_" if name.isidentifier() else f"_{name}"
    return name
