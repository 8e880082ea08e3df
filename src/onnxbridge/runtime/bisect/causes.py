"""What differs between two operators that compute different values from the same inputs: attributes, constants, their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.settings import attributes, is_setting, settings
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.runtime.bisect.fingerprint import Fingerprint, fingerprint

Array = np.ndarray[Any, Any]
_DIGITS = 2.0**-20
_LAYOUT = frozenset({"shape", "perm", "allowzero", "keepdims", "noop_with_empty_axes"})
"""Settings that say little of what is computed."""


def causes(reference: Sequence[ir.Node], candidate: Sequence[ir.Node]) -> tuple[str, ...]:
    """What differs between the nodes that compute a value, the last of which gives it.

    Two nodes of one operator are compared: "epsilon is 0.001 instead of 1e-05". Otherwise both sides' operators are listed with
    their settings, for example a normalization and its decomposition.
    """
    if [n.op_type for n in reference] == [n.op_type for n in candidate] or reference[-1].op_type == candidate[-1].op_type:
        return (*_settings(reference[-1], candidate[-1]), *_constants(reference[-1], candidate[-1]))
    return (
        f"the reference computes it by {', '.join(map(_described, reference))}",
        f"the candidate computes it by {', '.join(map(_described, candidate))}",
    )


def _described(node: ir.Node) -> str:
    given = {n: v for n, v in settings(node, {"": OPSET}).items() if n not in _LAYOUT}
    return node.op_type + (f" ({', '.join(f'{n} {_text(v)}' for n, v in given.items())})" if given else "")


def _settings(reference: ir.Node, candidate: ir.Node) -> list[str]:
    one, other = (settings(node, {"": OPSET}) for node in (reference, candidate))
    full, other_full = (attributes(node, {"": OPSET}) for node in (reference, candidate))
    found = []
    for name in dict.fromkeys([*one, *other]):
        a, b = one.get(name, full.get(name)), other.get(name, other_full.get(name))
        if {_plain(a), _plain(b)} == {None, 0.0}:
            continue  # a bias of zeros, or none
        if a != b and not (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-6 * abs(a)):
            found.append(f"{name} is {_text(b)} instead of {_text(a)}")
    return found


def _plain(value: Any) -> Any:
    """A tuple of one float as that number."""
    return value[0] if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], float) else value


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "the default" if value is None else str(list(value) if isinstance(value, tuple) else value)


def _constants(reference: ir.Node, candidate: ir.Node) -> list[str]:
    found = []
    names = _parameter_names(reference)
    pairs = list(zip(reference.inputs, candidate.inputs, strict=False))
    swapped = _swapped(reference, candidate)
    for i, (a, b) in enumerate(pairs):
        if a is None or b is None or a.const_value is None or b.const_value is None or is_setting(a.const_value):
            continue
        name = names[i] if i < len(names) else str(a.name)
        if text := compared(a.const_value.numpy(), b.const_value.numpy()):
            found.append(f"{name} ({a.name}) {text}")
    return found + swapped


def _swapped(reference: ir.Node, candidate: ir.Node) -> list[str]:
    a, b = ([v.name if v is not None and v.const_value is None else None for v in node.inputs] for node in (reference, candidate))
    return ["its inputs are in another order"] if a != b and None not in a and sorted(map(str, a)) == sorted(map(str, b)) else []


def _parameter_names(node: ir.Node) -> list[str]:
    from onnxbridge.hub.ir.schemas import schema_of

    schema = schema_of(node.op_type, node.domain)
    return [] if schema is None else [i.name for i in schema.inputs]


def compared(a: Array, b: Array) -> str:
    """How a constant of the candidate differs from the reference's, "" if it does not."""
    if a.dtype.kind in "OUS" or b.dtype.kind in "OUS":
        return "" if a.shape == b.shape and bool((a == b).all()) else "has other strings"
    x, y = a.astype(np.float64), b.astype(np.float64)
    if x.shape != y.shape:
        return "" if _same_elements(x, y) else f"has shape {list(b.shape)} instead of {list(a.shape)}"
    off = np.abs(x - y) > _DIGITS * np.abs(x).max(initial=0.0)
    if not off.any():
        return ""
    if not y.any():
        return "is zero throughout"
    if off.size == 1:
        return f"is {y.item():.6g} instead of {x.item():.6g}"
    if _same_elements(x, y):
        return "has the same elements in another order"
    ratio = y[off & (x != 0)] / x[off & (x != 0)]
    if ratio.size and np.ptp(ratio) <= 1e-3 * abs(ratio.mean()):
        times = f"is {ratio.mean():.4g} times as large" if ratio.mean() else "is zero"
        everywhere = bool((np.abs(y - ratio.mean() * x) <= _DIGITS * np.abs(x).max()).all())
        return times if everywhere else f"{times} in {int(off.sum())} of {off.size} elements"
    difference = np.abs(x - y).max() / max(np.abs(x).max(), 1e-300)
    return f"differs in {int(off.sum())} of {off.size} elements, by up to {difference:.2g} of its largest"


def _same_elements(x: Array, y: Array) -> bool:
    one, other = _print(x), _print(y)
    return one.size == other.size and bool(np.allclose(one.order_free, other.order_free, rtol=1e-9, atol=1e-12 * one.scale))


def _print(x: Array) -> Fingerprint:
    found = fingerprint(x)
    assert found is not None
    return found
