"""Names of dynamic sizes that are computed: onnx's inference knows the sizes of a Reshape only where they are numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from onnxbridge.hub.ir.fold import known_elements

Size = int | str | None


def name_sizes(node: ir.Node) -> None:
    """Set the sizes of the result of a node whose input is a shape, where they are provably those of other values."""
    if node.domain or node.op_type not in ("Reshape", "Expand") or len(node.inputs) < 2:
        return
    (result,), (x, shape) = node.outputs, node.inputs[:2]
    if x is None or x.shape is None or result.shape is None or all(isinstance(d, int) or d.value for d in result.shape):
        return
    wanted = known_elements(shape)
    if wanted is None or len(wanted) != len(result.shape):
        return
    sizes = [d if isinstance(d, int) else d.value for d in x.shape]
    found = _reshaped(node, sizes, wanted) if node.op_type == "Reshape" else _expanded(sizes, wanted)
    result.shape = ir.Shape([
        old if isinstance(old, int) or old.value is not None or not _is_known(size) else size
        for old, size in zip(result.shape, found, strict=True)
    ])  # fmt: skip


def _is_known(size: Size) -> bool:
    return isinstance(size, str) or (size is not None and size > 0)


def _reshaped(node: ir.Node, sizes: Sequence[Size], wanted: Sequence[Size]) -> list[Size]:
    allows_zero = "allowzero" in node.attributes and node.attributes["allowzero"].as_int()
    copied: list[Size] = [
        sizes[i] if w == 0 and not allows_zero and i < len(sizes) else w for i, w in enumerate(wanted)
    ]  # fmt: skip
    others = [c for c in copied if c != -1]
    if len(others) + 1 == len(copied):
        rest = _quotient(sizes, others)
        copied = [rest if c == -1 else c for c in copied]
    return copied


def _quotient(sizes: Sequence[Size], others: Sequence[Size]) -> Size:
    """The size that the elements of a value have beside the other sizes, where it is one of its sizes."""
    if None in sizes or None in others:
        return None
    left, right = (Counter(s for s in each if isinstance(s, str)) for each in (sizes, others))
    if right - left or (left - right).total() != 1:
        return None
    numbers = [1, 1]
    for i, each in enumerate((sizes, others)):
        for s in each:
            numbers[i] *= s if isinstance(s, int) else 1
    return next(iter(left - right)) if numbers[0] == numbers[1] != 0 else None


def _expanded(sizes: Sequence[Size], wanted: Sequence[Size]) -> list[Size]:
    padded = [1] * (len(wanted) - len(sizes)) + list(sizes)
    if len(padded) != len(wanted):
        return [None] * len(wanted)
    return [w if p == 1 or p == w else None for p, w in zip(padded, wanted, strict=True)]
