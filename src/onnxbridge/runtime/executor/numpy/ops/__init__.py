"""Rules: ONNX operators in NumPy, at the hub's opset."""

from collections.abc import Callable
from typing import Any

from onnxbridge.lowering import Call
from onnxbridge.rules import Rules

rule = Rules("runtime.numpy", package=__name__)
variants: dict[str, tuple[Callable[[Call], bool], Callable[..., Any]]] = {}
"""By operator: a predicate of calls, and the function that replaces the rule for them."""


def variant(op: str, when: Callable[[Call], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function to replace an operator's rule for some calls."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        variants[op] = when, function
        return function

    return register
