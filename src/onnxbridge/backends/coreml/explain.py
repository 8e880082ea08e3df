"""Explains how each operator of a model is converted: to which MIL operators, in which dtype, and where they are likely to run.

Core ML chooses the compute unit on the device, where `MLComputePlan` reports it. The prediction here follows from what is known
of the units: the Neural Engine computes in float16, on static shapes, and has no control flow.
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
from onnxbridge.errors import ConversionError, Problem, SourceLocation
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Body, Call

CPU, GPU, ALL = "CPU", "GPU, CPU", "Neural Engine, GPU, CPU"
# Operators with data-dependent shapes or step counts, and those on lists, class labels and random numbers.
ON_CPU = frozenset({
    "argsort", "classify", "cond", "list_gather", "list_length", "list_read", "list_scatter", "list_write", "make_list",
    "non_maximum_suppression", "non_zero", "random_bernoulli", "random_categorical", "random_normal", "random_uniform",
    "range_1d", "shape", "while_loop",
})  # fmt: skip
# Operators that run sequentially, or that read and write at computed indices.
NOT_NEURAL = frozenset({
    "cumsum", "gather_nd", "gru", "lstm", "one_hot", "reverse_sequence", "rnn", "scatter", "scatter_along_axis", "scatter_nd",
    "resample", "topk",
})  # fmt: skip


@dataclass(frozen=True)
class Line:
    """How one operator is converted.

    Attributes:
        op, where: the operator, and its location in the user's source code.
        how: "native" (one MIL operator), "composed" (several), "decomposed" (into simpler ONNX operators first), "folded" (a
            constant), "unsupported", or "skipped" (depends on an unsupported operator).
        mil: the MIL operators, in order.
        dtype: "fp16", "fp32", "int32", "bool", or "" if nothing is computed.
        units: the likely compute units, fastest first.
        note: why it is unsupported, or computed in float32.
    """

    op: str
    location: SourceLocation
    how: str
    mil: tuple[str, ...] = ()
    dtype: str = ""
    units: str = ""
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "op": self.op, "where": self.location.as_dict(), "how": self.how, "mil": list(self.mil), "dtype": self.dtype,
            "units": self.units, "note": self.note,
        }  # fmt: skip


class _RecordingTarget(MilTarget):
    """Records the MIL operators written for each operator of the main graph."""

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.records: list[tuple[Call, bool, list[Any]]] = []
        self._depth = 0
        self._first_op = 0
        self._decomposed: Call | None = None

    @contextlib.contextmanager
    def scope(self, call: Call) -> Iterator[None]:
        if not self._depth:
            self._first_op = len(list(curr_block().operations))
        self._depth += 1
        try:
            with super().scope(call):
                yield
        finally:
            self._depth -= 1

    def decompose(self, call: Call) -> Body | None:
        if not self._depth:
            self._decomposed = call
        return super().decompose(call)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        adopted = super().bind_outputs(call, results)
        if self._depth == 1:
            ops = [o for o in list(curr_block().operations)[self._first_op :] if o.op_type != "const"]
            self.records.append((call, call is self._decomposed, ops))
        return adopted


@quiet()
def explain(backend: Any, model: ir.Model, given: Mapping[str, Any]) -> list[Line]:
    """One line per operator of the graph, in order; skipped and unsupported ones come last."""
    options = backend.parse_options(**given)
    targets: list[_RecordingTarget] = []

    def target(version: Any) -> MilTarget:
        targets.append(_RecordingTarget(version))
        return targets[0]

    try:
        program, interface = build(model, options, target)
    except ConversionError as e:
        problems, half = e.problems, None
    else:
        problems, half = [], None
        if options.precision != "fp32":
            measured = ranges(program, interface, model) if options.precision == "mixed" else None
            half = HalfPrecision(measured, interface.fp32_selection, interface.fp32_logs, interface.fp32_requested)
            for op in program.functions["main"].operations:
                half(op)
    records = targets[0].records if targets else []
    lines = [_line(call, decomposed, ops, options.precision, half) for call, decomposed, ops in records]
    unsupported = [_unsupported_line(p, location) for p in problems for location in p.locations or (SourceLocation(),)]
    lowered, locations = {call.outputs for call, _, _ in records}, {line.location for line in unsupported}
    calls = graph_reader.calls_of(model.graph) if unsupported else ()
    skipped = [c for c in calls if c.outputs not in lowered and c.location not in locations]
    return lines + [Line(c.op, c.location, "skipped", note="depends on an unsupported operator") for c in skipped] + unsupported


def _unsupported_line(problem: Problem, location: SourceLocation) -> Line:
    return Line(problem.op, location, "unsupported", note=problem.reason + (f"; {problem.hint}" if problem.hint else ""))


def _line(call: Call, decomposed: bool, ops: list[Any], precision: str, half: HalfPrecision | None) -> Line:
    live = [o for o in ops if o.outputs and (any(v.child_ops or v.consuming_blocks for v in o.outputs) or o is ops[-1])]
    live = [o for o in live if any(v.val is None for v in o.outputs)]  # coremltools folds constants
    if not live:
        return Line(call.op, call.location, "folded")
    names = tuple(o.op_type for o in live)
    how = "decomposed" if decomposed else "native" if len(live) == 1 else "composed"
    stays = set() if half is None else half.in_float32
    in_fp32 = [name for name in (o.outputs[0].name for o in live) if name in stays]
    dtype = _dtype(live, "fp32" if precision == "fp32" or in_fp32 else "fp16")
    note = ""
    if in_fp32:
        largest = max((half.measured.get(k, 0.0) for k in in_fp32), default=0.0) if half is not None else 0.0
        cause = "a constant outside of the float16 range"
        causes = {} if half is None else {
            "a root or a logarithm is taken of it": half.logarithms, "it reads integers": half.integers,
            "elements are selected by it": half.selecting,
        }  # fmt: skip
        for text, ops_of in causes.items():
            cause = text if any(name in ops_of for name in in_fp32) else cause
        note = f"stays in float32: {f'magnitude {largest:.3g}' if largest else cause}"
    return Line(call.op, call.location, how, names, dtype, _units(live, dtype), note)


def _dtype(ops: list[Any], of_floats: str) -> str:
    values = [v for o in ops for v in o.outputs if types.is_tensor(v.sym_type) or types.is_scalar(v.sym_type)]
    if any(is_float(v) for v in values):
        return of_floats
    return types.builtin_to_string(values[-1].dtype) if values else ""


def _units(ops: list[Any], dtype: str) -> str:
    if any(o.op_type in ON_CPU for o in ops) or dtype not in ("fp16", "fp32"):
        return CPU
    dynamic = any(v.shape is not None and any_symbolic(v.shape) for o in ops for v in o.outputs if hasattr(v, "shape"))
    if dtype == "fp32" or dynamic or any(o.op_type in NOT_NEURAL for o in ops):
        return GPU
    return ALL


def table(lines: list[Line]) -> str:
    """The lines as a text table: one row for all operators that are converted alike, the largest group first."""
    groups: dict[tuple[str, ...], int] = {}
    for line in lines:
        mil = ", ".join(_with_counts(line.mil)) if line.how not in ("unsupported", "skipped") else ""
        key = (line.op, line.how, mil, line.dtype, line.units, line.note)
        groups[key] = groups.get(key, 0) + 1
    rows = [("operator", "n", "conversion", "", "dtype", "likely on")]
    for (op, how, mil, dtype, units, note), count in sorted(
        groups.items(), key=lambda g: (g[0][1] == "unsupported", -g[1], g[0])
    ):
        rows.append((op, str(count), how, mil or note, dtype, units + (f"  ({note})" if note and mil else "")))
    rows = [(*r[:3], r[3] if len(r[3]) <= 60 else r[3][:57] + "...", *r[4:]) for r in rows]
    widths = [max(len(r[i]) for r in rows) for i in range(6)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)


def _with_counts(names: tuple[str, ...]) -> list[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [f"{name} x{n}" if n > 1 else name for name, n in counts.items()]
