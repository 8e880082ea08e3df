"""The lowering target of this frontend: shapes and dtypes from FakeTensors, and PyTorch's decompositions on demand."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch import dtypes
from onnxbridge.frontends.pytorch.fx import decompose, graph_reader, library_operators
from onnxbridge.hub.builder.target import HubTarget
from onnxbridge.lowering import Body, Call

Dim = int | str | None


class Shapes:
    """Converts sizes to hub dimensions: integers, the user's dimension names, and expressions of them."""

    def __init__(self, names: Mapping[Any, str]) -> None:
        self.names = names
        self._dims: dict[Any, str] = {}

    def dim(self, size: Any) -> Dim:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_Integer:
            return int(expression)
        if expression not in self._dims:
            self._dims[expression] = self._text(expression)
        return self._dims[expression]

    def _text(self, expression: Any) -> str:
        if expression.is_Symbol:
            return self.names.get(expression, str(expression))
        import sympy  # type: ignore[import-untyped]

        return str(expression.xreplace({s: sympy.Symbol(self.names.get(s, str(s))) for s in expression.free_symbols}))


class PytorchTarget(HubTarget):
    """The hub target, with PyTorch's decompositions for operators that have no rule."""

    def __init__(self, shapes: Shapes, names: graph_reader.NodeKeys) -> None:
        super().__init__("PyTorch to ONNX", self.declared)
        self._names = names
        self._shapes = shapes
        self._expanding: list[Any] = []
        self._graphs: dict[Any, graph_reader.NodeKeys] = {}

    def declared(self, key: Hashable) -> tuple[str, ir.DataType | None, list[Dim] | None]:
        """Name, dtype and shape of an fx node's value, or of one of its several results."""
        node, index = key if isinstance(key, tuple) else (key, None)
        value = node.meta.get("val")
        name = node.name
        if index is not None:
            name, value = f"{name}.{index}", value[index]
        return name, *self.of(value)

    def of(self, value: Any) -> tuple[ir.DataType | None, list[Dim] | None]:
        """The hub dtype and shape of a FakeTensor or a symbolic number."""
        torch = frameworks.torch()
        if isinstance(value, torch.Tensor):
            return dtypes.to_hub(value.dtype), [self._shapes.dim(d) for d in value.shape]
        if isinstance(value, (torch.SymBool, bool)):
            return ir.DataType.BOOL, []
        if isinstance(value, (torch.SymInt, int)):
            return ir.DataType.INT64, []
        if isinstance(value, (torch.SymFloat, float)):
            return ir.DataType.DOUBLE, []
        return None, None

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        adopted = super().bind_outputs(call, results)
        for key, result in zip(call.outputs, adopted, strict=False):
            if isinstance(result, ir.Value) and key is not None:
                self.mark(key, result)
        return adopted

    def mark(self, key: Hashable, value: ir.Value) -> None:
        """Record on a value what the hub does not show: that it is a Python number, or that its memory is not contiguous."""
        node, index = key if isinstance(key, tuple) else (key, None)
        tensor = node.meta.get("val") if index is None else node.meta["val"][index]
        if is_number(key):
            value.meta["number"] = tensor
        if isinstance(tensor, frameworks.torch().Tensor) and not dtypes.is_contiguous(tensor):
            value.meta["strided"] = True

    def decompose(self, call: Call) -> Body | None:
        key = next((k for k in call.outputs if k is not None), None)
        if key is None or call.op == library_operators.FUNCTION:  # already the expansion of a third-party operator
            return None
        node: Any = key[0] if isinstance(key, tuple) else key
        operator = decompose.operator_of(node)
        if operator in self._expanding or not decompose.may_decompose(operator):
            return None
        found = decompose.trace_decomposition(node, self._shapes.names)
        library = decompose.is_library(operator)
        if found is None:
            if library:
                raise library_operators.unknown(operator)
            return None
        graph, sources = found
        outer_keys = self._graphs.get(node.graph, self._names)
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        if library and not call.op.startswith("complex::"):
            names = graph_reader.NodeKeys()
            self._graphs[graph] = names
            inner = list(graph_reader.calls_of(graph, names, call.location))
            body = Body(tuple(placeholders), self._guarded(operator, inner), graph_reader.results_of(graph, names))
            return library_operators.call_of(call, operator, body, tuple(map(outer_keys.ref, sources)))
        names = graph_reader.NodeKeys(dict(zip(placeholders, map(outer_keys.ref, sources), strict=True)))
        self._graphs[graph] = names
        inner = list(graph_reader.calls_of(graph, names, call.location))
        return Body((), self._guarded(operator, inner), graph_reader.results_of(graph, names))

    def _guarded(self, target: Any, inner: list[Call]) -> Iterator[Call]:
        """The calls of a decomposition; while they are lowered, the operator itself is not decomposed (recursion)."""
        self._expanding.append(target)
        try:
            yield from inner
        finally:
            self._expanding.remove(target)


def lower_bound(value: ir.Value) -> float:
    """The lower bound of an integer of the traced program, from the ranges of the sizes in its expression."""
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

    number = value.meta.get("number")
    if not isinstance(number, frameworks.torch().SymInt):
        return -math.inf
    expression, known = number.node.expr, number.node.shape_env.var_to_range
    ranges = {s: known.get(s) for s in expression.free_symbols}
    # a lower bound of 2 is only torch.export's default assumption
    bounds = {s: ValueRanges(r.lower if r.lower > 2 else min(r.lower, 0), r.upper) for s, r in ranges.items() if r is not None}
    if len(bounds) < len(ranges):
        return -math.inf
    lowest = bound_sympy(expression, bounds).lower
    return int(lowest) if lowest.is_Integer and lowest != -int_oo else -math.inf


def is_number(key: Any) -> bool:
    """Whether a key stands for a Python number of the traced program; in type promotion it does not count as a tensor."""
    torch = frameworks.torch()
    node, index = key if isinstance(key, tuple) else (key, None)
    value = node.meta.get("val")
    return isinstance(value if index is None else value[index], (torch.SymInt, torch.SymFloat, torch.SymBool))
