"""Names of dynamic sizes that are computed: onnx's inference knows the sizes of a Reshape only where they are numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array, known_elements

Size = int | str | None


def name_sizes(node: ir.Node) -> None:
    """Set the sizes of the results of a node that an input determines, where they are provably those of other values."""
    if node.domain or node.op_type not in _SIZES:
        return
    results = [r for r in node.outputs if r.shape is not None and not all(map(_is_set, r.shape))]
    found = _SIZES[node.op_type](node) if results else None
    for result in results:
        if found is None or result.shape is None or len(found) != len(result.shape):
            continue
        result.shape = ir.Shape([
            old if _is_set(old) or not _is_known(size) else size for old, size in zip(result.shape, found, strict=True)
        ])  # fmt: skip


def _is_set(size: int | ir.SymbolicDim) -> bool:
    return isinstance(size, int) or size.value is not None


def _is_known(size: Size) -> bool:
    return isinstance(size, str) or (size is not None and size > 0)


def _sizes_and_shape(node: ir.Node) -> tuple[list[Size], list[Size]] | None:
    """The sizes of the first input, and the elements of the second."""
    x, wanted = node.inputs[0], known_elements(node.inputs[1])
    if x is None or x.shape is None or wanted is None:
        return None
    return [d if isinstance(d, int) else d.value for d in x.shape], wanted


def _reshaped(node: ir.Node) -> list[Size] | None:
    known = _sizes_and_shape(node)
    if known is None:
        return None
    sizes, wanted = known
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
    """The size that the elements of a value have beside the other sizes, where it is a number or one of its sizes."""
    if None in sizes or None in others:
        return None
    left, right = (Counter(s for s in each if isinstance(s, str)) for each in (sizes, others))
    if right - left or (left - right).total() > 1:
        return None
    numbers = [1, 1]
    for i, each in enumerate((sizes, others)):
        for s in each:
            numbers[i] *= s if isinstance(s, int) else 1
    if left == right:
        return numbers[0] // numbers[1] if numbers[1] and numbers[0] % numbers[1] == 0 else None
    return next(iter(left - right)) if numbers[0] == numbers[1] != 0 else None


def _expanded(node: ir.Node) -> list[Size] | None:
    known = _sizes_and_shape(node)
    if known is None:
        return None
    sizes, wanted = known
    padded = [1] * (len(wanted) - len(sizes)) + list(sizes)
    if len(padded) != len(wanted):
        return None
    return [w if p == 1 or p == w else None for p, w in zip(padded, wanted, strict=True)]


def _filled(node: ir.Node) -> list[Size] | None:
    return known_elements(node.inputs[0])


def _range(node: ir.Node) -> list[Size] | None:
    """From 0 up to a size in steps of 1; the size may be in floating point, where sizes are whole."""
    start, limit, delta = node.inputs
    cast = limit.producer() if limit is not None and limit.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE) else None
    if cast is not None and cast.op_type == "Cast":
        limit = cast.inputs[0]
    return known_elements(limit) if _is_number(start, 0) and _is_number(delta, 1) else None


def _top_k(node: ir.Node) -> list[Size] | None:
    known = _sizes_and_shape(node)
    if known is None:
        return None
    sizes, k = known
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    if len(k) == 1 and -len(sizes) <= axis < len(sizes):
        sizes[axis] = k[0]
    return sizes


def _is_number(value: ir.Value | None, number: int) -> bool:
    array = constant_array(value)
    return array is not None and array.size == 1 and bool(array.reshape(-1)[0] == number)


_SIZES: dict[str, Callable[[ir.Node], list[Size] | None]] = {
    "Reshape": _reshaped, "Expand": _expanded, "ConstantOfShape": _filled, "Range": _range, "TopK": _top_k,
}  # fmt: skip
