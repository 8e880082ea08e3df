"""A model and a version of it in lower precision, in pairs: for each value that both have, the part of each that computes it.

So the error that each part adds can be measured whoever made the version: float16 and quantized ONNX files of other tools, and
files with compressed weights. `OperatorRuns` runs the pairs as it runs single operators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.runtime.bisect.fingerprint import Fingerprint, distance
from onnxbridge.runtime.bisect.low_precision.operator_runs import Operator
from onnxbridge.runtime.bisect.low_precision.round_to import RoundTo
from onnxbridge.runtime.bisect.matching import SHARED
from onnxbridge.runtime.bisect.recorded_run import Side
from onnxbridge.runtime.bisect.reproduction import cut
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify.pairing import cast_to

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})
_QUANTIZE = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_QUANTIZED = _QUANTIZE | {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
_BETWEEN_PRECISIONS = _QUANTIZE | {"Cast"}
_NEAR, _CLEARER = 0.1, 4.0
"""Values without a common name are paired if their statistics differ by at most so much, and those of the next best candidate by
so many times more."""


def is_lower(node: ir.Node) -> bool:
    """Whether a node computes in lower precision than float32, or quantizes."""
    values = (*node.inputs, *node.outputs)
    return node.op_type in _QUANTIZED or any(
        v is not None and v.dtype is not None and v.dtype.is_floating_point() and v.dtype not in _FLOATS for v in values
    )


def lowers_precision(reference: ir.Model, candidate: ir.Model) -> bool:
    """Whether the candidate computes in lower precision, and the reference does not."""
    return any(map(is_lower, candidate.graph)) and not any(map(is_lower, reference.graph))


@dataclass(frozen=True)
class PairedPart(Operator):
    """What computes a value of the reference, and what computes it in the candidate.

    `run` runs the reference's part in float64, or, with a rounding, the candidate's as it is.

    Attributes:
        low: runs the candidate's part.
        feeds: the dtype of each input of `low`, and the reference's name of its value.
        nodes: the candidate's nodes that have to stay in float32 so that the part does, without those that only change the
            precision.
        in_float32: whether the candidate's part does not compute in lower precision.
    """

    low: Executor | None = field(default=None, repr=False)
    feeds: Mapping[str, tuple[ir.DataType | None, str]] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    in_float32: bool = False

    def run(self, values: Mapping[str, Any], rounding: RoundTo | None) -> list[Any]:
        if rounding is None or self.low is None:
            return self.executor.run(None, {name: values[name] for name in self.executor.input_names})
        found = self.low.run(None, {name: cast_to(values[of], dtype) for name, (dtype, of) in self.feeds.items()})
        return [r.astype(np.float64) if isinstance(r, np.ndarray) and r.dtype.kind in "fV" else r for r in found]


def paired_parts(reference: Side, candidate: Side, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> list[PairedPart]:
    """The parts between the values that both models have, in the order of execution. Both sides have been recorded.

    `inputs` and `outputs` are the candidate's names by the reference's.
    """
    pairs = {**_pairs(reference, candidate), **outputs}
    of_reference = set(inputs)
    of_candidate = {b: a for a, b in inputs.items()}
    found = []
    for a in reference.order:
        node = reference.node(a)
        if a not in pairs or node is None or candidate.node(pairs[a]) is None:
            continue
        found.append(_part(reference, candidate, a, pairs[a], node, of_reference, of_candidate))
        # a part reads values of earlier parts only, even if the candidate computes them in another order
        of_reference.add(a)
        of_candidate[pairs[a]] = a
    return found


def _part(
    reference: Side, candidate: Side, a: str, b: str, node: ir.Node, of_reference: Collection[str],
    of_candidate: Mapping[str, str],
) -> PairedPart:  # fmt: skip
    read_a, read_b = _nearest(reference, a, of_reference), _nearest(candidate, b, of_candidate)
    nodes = candidate.nodes_between(read_b, b)
    # tools quantize a value that either its producer or its consumer computes in lower precision
    quantized = [n.inputs[0].producer() for n in nodes if n.op_type == "QuantizeLinear" and n.inputs[0] is not None]
    own = [n for n in (*quantized, *nodes) if n is not None and n.op_type not in _BETWEEN_PRECISIONS]
    names = tuple(dict.fromkeys(str(n.name or n.outputs[0].name) for n in own))
    return PairedPart(
        a, node.op_type, source_locations.read(node), tuple(dict.fromkeys([*read_a, *(of_candidate[n] for n in read_b)])), (a,),
        Executor(cut(reference.model, read_a, a), precision="float64", native=False),
        Executor(cut(candidate.model, read_b, b), native=False),
        {n: (candidate.values[n].dtype, of_candidate[n]) for n in read_b}, names, not any(map(is_lower, nodes)),
    )  # fmt: skip


def _pairs(reference: Side, candidate: Side) -> dict[str, str]:
    """The candidate's value for each of the reference's: of the same name, if the two share their names, else the only one that
    holds nearly the same."""
    named = _share_names(reference, candidate)
    found = {a: a for a in reference.order if named and _fit(reference.held.get(a), candidate.held.get(a))}
    free: dict[tuple[int, ...], dict[str, Fingerprint]] = defaultdict(dict)
    for b, other in candidate.held.items():
        if b not in found and candidate.node(b) is not None and other is not None and other.kind == "f":
            free[other.shape][b] = other
    for a in reference.order:
        one = reference.held.get(a)
        if a in found or reference.node(a) is None or one is None or one.kind != "f":
            continue
        near = sorted((off, b) for b, other in free[one.shape].items() if (off := distance(one, other)) <= _NEAR)
        near = [(off, b) for off, b in near if _op(reference, a) == _op(candidate, b)] or near
        if near and (len(near) == 1 or near[1][0] >= _CLEARER * near[0][0]):
            found[a] = near[0][1]
            del free[one.shape][near[0][1]]
    return found


def _share_names(reference: Side, candidate: Side) -> bool:
    """As `matching` decides it, but for the candidate's operators that only change the precision."""
    computed = [n for n in candidate.order if (op := _op(candidate, n)) and op not in _BETWEEN_PRECISIONS]
    same = [n for n in computed if n in reference.values and _op(reference, n) == _op(candidate, n)]
    return len(same) >= SHARED * max(len(computed), 1)


def _op(side: Side, name: str) -> str:
    node = side.node(name)
    return "" if node is None else node.op_type


def _fit(one: Fingerprint | None, other: Fingerprint | None) -> bool:
    """Whether two values can be the same: floating-point tensors of one shape."""
    return one is not None and other is not None and one.kind == other.kind == "f" and one.shape == other.shape


def _nearest(side: Side, name: str, known: Collection[str]) -> list[str]:
    """The known values that a value is computed from, over others."""
    found, seen, pending = set[str](), set[str](), list(side.inputs_of[name])
    while pending:
        read = pending.pop()
        if read in known:
            found.add(read)
        elif read not in seen:
            seen.add(read)
            pending += side.inputs_of[read]
    return [n for n in side.order if n in found]
