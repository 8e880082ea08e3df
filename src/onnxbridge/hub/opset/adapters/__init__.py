"""Adapters: one operator of ai.onnx across one version of it, up towards the hub's opset or down from it.

    @up("Squeeze", to=13)          the node at 11, written at 13
    def squeeze(op, data, *, axes=None): ...

    @down("Squeeze", to=12)        the node at 13, written at 12
    def squeeze_down(op, data, axes: Ints | None = None): ...

The shape of a rule: the `op` builder first, inputs positional, attributes keyword-only, named as in the *source's* version.
Versions that keep an operator's signature and meaning need none; `versions` tells which those are, from the schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge.rules import F, Rule, Rules


class Adapters:
    """The adapters of one direction, by operator and the opset that they write at."""

    def __init__(self, name: str) -> None:
        self._rules = Rules(name, package=__name__, writer=True)

    def __call__(self, *ops: str, to: int, limits: str = "") -> Callable[[F], F]:
        """Register the decorated function for these operators."""
        return self._rules(*(f"{op}@{to}" for op in ops), limits=limits)

    def get(self, op: str, to: int) -> Rule | None:
        return self._rules.get(f"{op}@{to}")

    def __iter__(self) -> Any:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)


up = Adapters("hub.up")
down = Adapters("hub.down")
