"""Guarded replacement of attributes: only where they exist with the expected parameters, and undone on exit."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

CHECKED_ON = "2.13.0"
"""The release of PyTorch on which all patches were last checked."""


@dataclass(frozen=True)
class Target:
    """An attribute that a patch replaces: its module, its dotted name, and its parameters on PyTorch 2.13.0."""

    module: str
    name: str
    parameters: tuple[str, ...]

    def owner(self) -> Any:
        """The module or class with the attribute; None if it does not exist or is not imported."""
        owner = sys.modules.get(self.module)
        for part in self.name.split(".")[:-1]:
            owner = getattr(owner, part, None)
        return owner

    def is_imported(self) -> bool:
        """Whether the module is imported; otherwise nothing uses the attribute."""
        return self.module in sys.modules

    def applies(self) -> bool:
        """Whether the attribute exists and has the expected parameters."""
        attribute = getattr(self.owner(), self.name.rpartition(".")[2], None)
        try:
            return tuple(inspect.signature(attribute).parameters) == self.parameters  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False


@contextlib.contextmanager
def replaced(target: Target, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace the attribute by `wrap(attribute)`, if the patch applies to the installed release."""
    if not target.applies():
        yield
        return
    owner, name = target.owner(), target.name.rpartition(".")[2]
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        setattr(owner, name, original)
