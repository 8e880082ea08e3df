"""Adapters: convert a node across one version change of its operator, up towards the hub's opset or down from it.

    @up("Squeeze", to=13)          converts Squeeze-11 to opset 13
    def squeeze(op, data, *, axes=None): ...

    @down("Squeeze", to=12)        converts Squeeze-13 to opset 12
    def squeeze_down(op, data, axes: Ints | None = None): ...

An adapter has the form of a rule: the `op` builder first, inputs positional, attributes keyword-only, named as in the *source*
version. Versions that keep an operator's signature and meaning need none; `schema_versions` determines these from the schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge.rules import F, Rule, Rules


class Adapters:
    """The adapters of one direction, by operator and target opset."""

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
