"""What becomes of each operator of a model: the MIL operators it is written in, their type, and where they are likely to run.

Which unit runs an operator is decided by Core ML on the device; `MLComputePlan` tells it there. What is said here follows from
what is known of the units: the Neural Engine computes floats in float16, on shapes that are known when the model is loaded, and
has no control flow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.block import curr_block
from coremltools.converters.mil.mil.types.symbolic import any_symbolic

from onnxbridge.backends.coreml.element_types import is_float
from onnxbridge.backends.coreml.precision.fp16 import HalfPrecision
from onnxbridge.backends.coreml.precision.value_ranges import ranges
from onnxbridge.backends.coreml.program import MilTarget, build
from onnxbridge.backends.coreml.quiet_coremltools import quiet
from onnxbridge.errors import ConversionError, Problem, Source
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Body, Call

CPU, GPU, ALL = "CPU", "GPU, CPU", "Neural Engine, GPU, CPU"
# Their shapes or their number of steps depend on values, or they handle lists, words and random numbers.
ON_CPU = frozenset({
    "argsort", "classify", "cond", "list_gather", "list_length", "list_read", "list_scatter", "list_write", "make_list",
    "non_maximum_suppression", "non_zero", "random_bernoulli", "random_categorical", "random_normal", "random_uniform",
    "range_1d", "shape", "while_loop",
})  # fmt: skip
# What runs step by step, or reads and writes at computed places.
NOT_NEURAL = frozenset({
    "cumsum", "gather_nd", "gru", "lstm", "one_hot", "reverse_sequence", "rnn", "scatter", "scatter_along_axis", "scatter_nd",
    "resample", "topk",
})  # fmt: skip


@dataclass(frozen=True)
class Line:
    """What becomes of one operator.

    Attributes:
        op, where: the operator, and where the user's source has it.
        how: "native" for one MIL operator, "composed" for several, "expanded" in simpler ONNX operators first, "folded" where
            it is known when converting, "refused", "unseen" for one that reads what a refused one gives.
        mil: the MIL operators, in order.
        dtype: "fp16", "fp32", "int32", "bool", or "" where nothing is computed.
        units: where it is likely to run, fastest first.
        note: why it is refused, or stays in float32.
    """

    op: str
    where: Source
    how: str
    mil: tuple[str, ...] = ()
    dtype: str = ""
    units: str = ""
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "op": self.op, "where": self.where.as_dict(), "how": self.how, "mil": list(self.mil), "dtype": self.dtype,
            "units": self.units, "note": self.note,
        }  # fmt: skip


class _Watching(MilTarget):
    """Keeps what was written for each operator of the graph itself."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.written: list[tuple[Call, bool, list[Any]]] = []
        self._depth = 0
        self._first = 0
        self._by_expansion: Call | None = None

    @contextlib.contextmanager
    def scope(self, call: Call) -> Iterator[None]:
        if not self._depth:
            self._first = len(list(curr_block().operations))
        self._depth += 1
        try:
            with super().scope(call):
                yield
        finally:
            self._depth -= 1

    def expand(self, call: Call) -> Body | None:
        if not self._depth:
            self._by_expansion = call
        return super().expand(call)

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        adopted = super().adopt(call, results)
        if self._depth == 1:
            made = [o for o in list(curr_block().operations)[self._first :] if o.op_type != "const"]
            self.written.append((call, call is self._by_expansion, made))
        return adopted


@quiet()
def explain(backend: Any, model: ir.Model, options: Mapping[str, Any]) -> list[Line]:
    """A line for each operator of the graph, in its order; those behind a refused one and the refused ones come last."""
    asked = backend.asked(**options)
    watching: list[_Watching] = []

    def target(version: Any) -> MilTarget:
        watching.append(_Watching(version))
        return watching[0]

    try:
        program, interface = build(model, asked, target)
    except ConversionError as e:
        problems, wide = e.problems, None
    else:
        problems, wide = [], None
        if asked.precision != "fp32":
            measured = ranges(program, interface, model) if asked.precision == "mixed" else None
            wide = HalfPrecision(measured, interface.choosing, interface.spread)
            for op in program.functions["main"].operations:
                wide(op)
    written = watching[0].written if watching else []
    lines = [_line(call, expanded, made, asked.precision, wide) for call, expanded, made in written]
    refused = [_refused(p, place) for p in problems for place in p.places or (Source(),)]
    seen, places = {call.outputs for call, _, _ in written}, {line.where for line in refused}
    behind = [c for c in graph_reader.of(model.graph) if refused and c.outputs not in seen and c.where not in places]
    return lines + [Line(c.op, c.where, "unseen", note="reads what a refused operator gives") for c in behind] + refused


def _refused(problem: Problem, place: Source) -> Line:
    return Line(problem.op, place, "refused", note=problem.reason + (f"; {problem.hint}" if problem.hint else ""))


def _line(call: Call, expanded: bool, made: list[Any], precision: str, wide: HalfPrecision | None) -> Line:
    live = [o for o in made if o.outputs and (any(v.child_ops or v.consuming_blocks for v in o.outputs) or o is made[-1])]
    live = [o for o in live if any(v.val is None for v in o.outputs)]  # what is known is folded by coremltools
    if not live:
        return Line(call.op, call.where, "folded")
    names = tuple(o.op_type for o in live)
    how = "expanded" if expanded else "native" if len(live) == 1 else "composed"
    stays = set() if wide is None else {*wide.measured, *wide.constants, *wide.choosing, *wide.counting, *wide.spreading}
    kept = [name for name in (o.outputs[0].name for o in live) if name in stays]
    dtype = _dtype(live, "fp32" if precision == "fp32" or kept else "fp16")
    note = ""
    if kept:
        largest = max((wide.measured.get(k, 0.0) for k in kept), default=0.0) if wide is not None else 0.0
        small = "a constant that float16 cannot hold"
        reasons = {} if wide is None else {
            "a root or a logarithm is taken of it": wide.spreading, "it reads whole numbers": wide.counting,
            "a choice hangs on it": wide.choosing,
        }  # fmt: skip
        for reason, names_of in reasons.items():
            small = reason if any(name in names_of for name in kept) else small
        why = f"magnitude {largest:.3g}" if largest else small
        note = f"stays in float32: {why}"
    return Line(call.op, call.where, how, names, dtype, _units(live, dtype), note)


def _dtype(made: list[Any], of_floats: str) -> str:
    values = [v for o in made for v in o.outputs if types.is_tensor(v.sym_type) or types.is_scalar(v.sym_type)]
    if any(is_float(v) for v in values):
        return of_floats
    return types.builtin_to_string(values[-1].dtype) if values else ""


def _units(made: list[Any], dtype: str) -> str:
    if any(o.op_type in ON_CPU for o in made) or dtype not in ("fp16", "fp32"):
        return CPU
    dynamic = any(v.shape is not None and any_symbolic(v.shape) for o in made for v in o.outputs if hasattr(v, "shape"))
    if dtype == "fp32" or dynamic or any(o.op_type in NOT_NEURAL for o in made):
        return GPU
    return ALL


def table(lines: list[Line]) -> str:
    """The lines as text: one for all operators of which the same becomes, the largest group first."""
    groups: dict[tuple[str, ...], int] = {}
    for line in lines:
        mil = ", ".join(_counted(line.mil)) if line.how not in ("refused", "unseen") else ""
        key = (line.op, line.how, mil, line.dtype, line.units, line.note)
        groups[key] = groups.get(key, 0) + 1
    rows = [("operator", "n", "becomes", "", "type", "likely on")]
    for (op, how, mil, dtype, units, note), count in sorted(groups.items(), key=lambda g: (g[0][1] == "refused", -g[1], g[0])):
        rows.append((op, str(count), how, mil or note, dtype, units + (f"  ({note})" if note and mil else "")))
    rows = [(*r[:3], r[3] if len(r[3]) <= 60 else r[3][:57] + "...", *r[4:]) for r in rows]
    widths = [max(len(r[i]) for r in rows) for i in range(6)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def _counted(names: tuple[str, ...]) -> list[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [f"{name} x{n}" if n > 1 else name for name, n in counts.items()]
