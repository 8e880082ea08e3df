"""Rules: ONNX operators in NumPy, at the hub's opset."""

from collections.abc import Callable
from typing import Any

from onnxbridge.lowering import Call
from onnxbridge.rules import Rules

rule = Rules("runtime.numpy", package=__name__)
variants: dict[str, tuple[Callable[[Call], bool], Callable[..., Any]]] = {}
"""For an operator: for which calls another function runs in place of its rule, and which."""


def variant(op: str, when: Callable[[Call], bool]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function to run in place of an operator's rule for some calls."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        variants[op] = when, function
        return function

    return register
