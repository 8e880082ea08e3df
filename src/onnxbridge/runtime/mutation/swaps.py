"""Faults of order: two inputs of an operator swapped for which their order matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnxbridge.runtime.mutation.fault import Change, InputsSwapped

Found = tuple[str, str, Change]

_ANY_SHAPES: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("Sub", "Div", "Pow", "Mod", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), (0, 1)), "Where": (1, 2),
}  # fmt: skip
"""Operators that broadcast their inputs, so that any two can be swapped."""
_EQUAL_SHAPES: Mapping[str, tuple[tuple[int, int], ...]] = {
    "MatMul": ((0, 1),), "Gemm": ((0, 1),), "Attention": ((0, 1), (1, 2)),
    "Concat": tuple((i, i + 1) for i in range(8)),
}  # fmt: skip
"""Operators of which inputs can be swapped if their shapes are equal; the first such pair is."""


def swapped_inputs(node: ir.Node) -> Iterator[Found]:
    """The kind, the text and the change of the fault, where a node has such inputs."""
    if node.op_type in _ANY_SHAPES:
        pairs: tuple[tuple[int, int], ...] = (_ANY_SHAPES[node.op_type],)
    else:
        pairs = tuple(p for p in _EQUAL_SHAPES.get(node.op_type, ()) if p[1] < len(node.inputs) and _equal_shapes(node, *p))
    for first, second in pairs[:1]:
        a, b = node.inputs[first], node.inputs[second]
        if a is None or b is None or a is b or not all(v.dtype is not None and v.dtype.is_floating_point() for v in (a, b)):
            return  # integers are sizes and indices, mostly
        yield "inputs swapped", f"inputs {first + 1} and {second + 1} swapped", InputsSwapped(first, second)


def _equal_shapes(node: ir.Node, first: int, second: int) -> bool:
    shapes = [v.shape for i in (first, second) if (v := node.inputs[i]) is not None and v.shape is not None]
    return len(shapes) == 2 and shapes[0] == shapes[1]
