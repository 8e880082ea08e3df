"""Multiply-accumulate operations (MACs) of a model, from the shapes of its values.

Counted are convolutions, matrix products, attention and recurrent layers. PyTorch's FlopCounterMode counts two FLOPs for each of
them. Operators on single elements are not counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.settings import constant_of
from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.hub.ir.schemas import name_of

Shape = list[int]


@dataclass
class Macs:
    """MACs by operator, and the number of nodes whose MACs are unknown, by operator.

    Of an If, the branch with more is counted. `loops` is the number of loops whose number of iterations is unknown; their bodies
    are counted once.
    """

    by_operator: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    loops: int = 0

    @property
    def total(self) -> int:
        return self.by_operator.total()

    def add(self, other: Macs, times: int = 1) -> None:
        for op, count in other.by_operator.items():
            self.by_operator[op] += times * count
        self.unknown += other.unknown
        self.loops += other.loops


def count_macs(graph: ir.Graph) -> Macs:
    """The MACs of a graph and its subgraphs."""
    found = Macs()
    for node in graph:
        if node.domain in ("", "ai.onnx") and node.op_type in _COUNTS:
            count = _macs(node)
            op = name_of(node.op_type, node.domain)
            if count is None:
                found.unknown[op] += 1
            else:
                found.by_operator[op] += count
        bodies = [count_macs(body) for body in bodies_of(node)]
        if node.op_type == "If":
            bodies = [max(bodies, key=lambda m: (m.total, m.unknown.total()))]
        times = _iterations(node)
        for body in bodies:
            found.add(body, 1 if times is None else times)
            found.loops += times is None and bool(body.total or body.unknown)
    return found


def _macs(node: ir.Node) -> int | None:
    try:
        return _COUNTS[node.op_type](node)
    except (_UnknownSize, KeyError, IndexError, ValueError):  # the last three: a node that contradicts its schema
        return None


class _UnknownSize(Exception):
    """A size that the count needs is dynamic."""


def shape_of(value: ir.Value | None) -> Shape | None:
    """The static shape of a value, None if any of its sizes is unknown."""
    if value is None:
        return None
    if value.shape is None:
        tensor = constant_of(value)
        return None if tensor is None else [int(d) for d in tensor.shape.numpy()]
    sizes = [d for d in value.shape if isinstance(d, int)]
    return sizes if len(sizes) == len(value.shape) else None


def _shape(value: ir.Value | None) -> Shape:
    found = shape_of(value)
    if found is None:
        raise _UnknownSize
    return found


def _given(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _convolution(weight: int) -> Callable[[ir.Node], int]:
    return lambda node: math.prod(_shape(node.outputs[0])) * math.prod(_shape(node.inputs[weight])[1:])


def _transposed_convolution(node: ir.Node) -> int:
    return math.prod(_shape(node.inputs[0])) * math.prod(_shape(node.inputs[1])[1:])


def _product(node: ir.Node) -> int:
    return math.prod(_shape(node.outputs[0])) * _shape(node.inputs[0])[-1]


def _gemm(node: ir.Node) -> int:
    transposed = "transA" in node.attributes and node.attributes["transA"].as_int()
    return math.prod(_shape(node.outputs[0])) * _shape(node.inputs[0])[0 if transposed else 1]


def _einsum(node: ir.Node) -> int:
    """The product of the sizes of all labels; 0 for a single operand, whose elements are only moved or added."""
    shapes = [_shape(v) for v in node.inputs]
    if len(shapes) == 1:
        return 0
    sizes: dict[str, int] = {}
    terms = node.attributes["equation"].as_string().replace(" ", "").partition("->")[0].split(",")
    for term, shape in zip(terms, shapes, strict=True):
        before, ellipsis, after = term.partition("...")
        batch = len(shape) - len(before) - len(after)
        labels = [*before, *(f"...{batch - i}" for i in range(batch if ellipsis else 0)), *after]
        for label, size in zip(labels, shape, strict=True):
            sizes[label] = max(sizes.get(label, 1), size)
    return math.prod(sizes.values())


def _attention(node: ir.Node) -> int:
    """Of the two products; masked positions are counted too."""
    q, k, v = (_shape(x) for x in node.inputs[:3])
    past = _given(node, 4)
    length = k[-2] + (_shape(past)[-2] if past is not None else 0)
    if len(q) == 3:
        heads, kv_heads = (node.attributes[name].as_int() for name in ("q_num_heads", "kv_num_heads"))
        return q[0] * q[1] * length * (q[2] + heads * (v[2] // kv_heads))
    return q[0] * q[1] * q[2] * length * (q[3] + v[3])


def _recurrent(node: ir.Node) -> int:
    steps = _shape(node.inputs[0])[:2]  # of all sequences
    return math.prod(steps) * sum(math.prod(_shape(w)) for w in node.inputs[1:3])


_COUNTS: Mapping[str, Callable[[ir.Node], int]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _convolution(1)), "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution, "Gemm": _gemm, "Einsum": _einsum, "Attention": _attention,
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), _product),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
}  # fmt: skip


def _iterations(node: ir.Node) -> int | None:
    """How often the bodies of a node run; None if that is not known."""
    if node.op_type == "Loop":
        count = constant_of(node.inputs[0])
        condition = constant_of(node.inputs[1])
        ends_early = not (node.inputs[1] is None or (condition is not None and _always_continues(node)))
        return int(count.numpy().reshape(())) if count is not None and not ends_early else None
    if node.op_type == "Scan":
        first = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
        shape, axes = shape_of(node.inputs[first]), node.attributes.get("scan_input_axes")
        return None if shape is None else shape[axes.as_ints()[0] if axes is not None else 0]
    return None if node.op_type == "SequenceMap" else 1


def _always_continues(node: ir.Node) -> bool:
    """Whether a loop's body passes its condition on, or gives a constant."""
    body = bodies_of(node)[0]
    value: ir.Value | None = body.outputs[0]
    while value is not None and (made := value.producer()) is not None and made.op_type == "Identity":
        value = made.inputs[0]
    return value is body.inputs[1] or constant_of(value) is not None
