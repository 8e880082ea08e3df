"""Why agreement proves little: outputs that hardly show a difference, and parts of the model that no sample ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import OnnxbridgeError
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.patterns.match import scalar
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.mutation.sensitivity import Sensitivity
from onnxbridge.runtime.verify.compare import Comparison, result_array

WIDE = 0.01
"""A tolerance above this share of an output's range hides errors that users see."""
MANY_NAN = 0.1
"""From this share of NaN on, an output shows too little: NaN agrees with NaN."""
SATURATED, CLOSE = 0.99, 1e-6
"""An output is saturated if this share of it is as close to a limit, in units of the distance of its limits."""
LEAST_CAUGHT = 0.85
"""The share of planted faults that has to be caught. Where more than one fault in seven is invisible, a wrong conversion that
touches a single operator may well be one of those."""
_MOST_NAMED = 3

_LIMITS = {
    **dict.fromkeys(("Sigmoid", "HardSigmoid", "Softmax"), (0.0, 1.0)), **dict.fromkeys(("Tanh", "Erf", "Softsign"), (-1.0, 1.0)),
}  # fmt: skip
_MOVING = frozenset({"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Cast", "Concat"})


class Outputs:
    """Collects what the reference's outputs are like, over all samples."""

    def __init__(self, graph: ir.Graph) -> None:
        self._limits = {str(v.name): found for v in graph.outputs if (found := _limits_of(v)) is not None}
        self._elements: dict[str, int] = {}
        self._nan: dict[str, int] = {}
        self._weight: dict[str, float] = {}
        self._saturated: dict[str, float] = {}

    def add(self, results: Mapping[str, Any]) -> None:
        """Add the outputs of one sample."""
        for name, value in results.items():
            array = result_array(value)
            if array.dtype.kind not in "fV" or not array.size:
                continue
            array = array.astype(np.float64)
            self._elements[name] = self._elements.get(name, 0) + array.size
            self._nan[name] = self._nan.get(name, 0) + int(np.isnan(array).sum())
            if name in self._limits:
                op, low, high = self._limits[name]
                close = np.minimum(np.abs(array - low), np.abs(array - high)) <= CLOSE * (high - low)
                weights = np.abs(array) if op == "Softmax" else np.ones(array.shape)  # in a distribution most are near 0
                self._weight[name] = self._weight.get(name, 0.0) + float(np.nansum(weights))
                self._saturated[name] = self._saturated.get(name, 0.0) + float(np.nansum(weights * close))

    def weaknesses(self, outputs: Sequence[Comparison]) -> list[str]:
        """One line for each output that shows too little, whatever the others show."""
        return [f"output {o.name}: {reason}" for o in outputs if (reason := self._weakness(o))]

    def _weakness(self, output: Comparison) -> str:
        name = output.name
        if output.tolerance.origin == "statistical":
            return "it is random, so that only its mean and its deviation are compared"
        elements = self._elements.get(name, 0)
        nan = self._nan.get(name, 0)
        if elements and nan >= MANY_NAN * elements:
            return output.weak if output.span is None else f"{nan / elements:.0%} of its elements are NaN"
        if output.span is None or output.span[0] == output.span[1]:
            return ""  # constant: it counts only if all outputs are weak
        limited = output.drift is not None  # by a share of its range, however wide the tolerance is
        if output.weak and not limited:
            return output.weak
        if self._saturated.get(name, 0.0) >= SATURATED * self._weight.get(name, np.inf):
            _, low, high = self._limits[name]
            return f"it is saturated: nearly all of it is {low:g} or {high:g}"
        if elements and not limited:
            low, high = map(float, output.span)
            share = (output.tolerance.atol + output.tolerance.rtol * max(abs(low), abs(high))) / (high - low)
            if share > WIDE:
                return f"its tolerance is {share:.1%} of its range"
        return ""


def _limits_of(value: ir.Value) -> tuple[str, float, float] | None:
    """The operator that computes an output and the limits of its results, where it has any."""
    node = value.producer()
    while node is not None and node.op_type in _MOVING and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None:
        return None
    if node.op_type == "Clip":
        low, high = (scalar(node.inputs[i]) if i < len(node.inputs) else None for i in (1, 2))
        return ("Clip", low, high) if low is not None and high is not None and low < high else None
    return (node.op_type, *_LIMITS[node.op_type]) if node.op_type in _LIMITS else None


def unreached_branches(graph: ir.Graph, executor: Executor, feeds: Sequence[Mapping[str, Any]]) -> str:
    """Which branches of If no sample ran, "" if there are none. Those inside other branches and loops are not looked at."""
    nodes = [n for n in graph if n.op_type == "If" and n.inputs[0] is not None and n.inputs[0].const_value is None]
    conditions = [str(n.inputs[0].name) for n in nodes if n.inputs[0] is not None]
    seen: list[set[bool]] = [set() for _ in nodes]
    for feed in feeds if nodes else ():
        supplied = {k: v for k, v in feed.items() if k in executor.input_names}
        try:
            values = executor.run(conditions, supplied)
        except (OnnxbridgeError, ValueError, IndexError):  # the report says elsewhere that the executor cannot run it
            return ""
        for branches, value in zip(seen, values, strict=True):
            branches.add(bool(np.all(value)))
    missing = [
        f"{'then' if wanted else 'else'} of {source_locations.read(node)}"
        for node, branches in zip(nodes, seen, strict=True) for wanted in (True, False)
        if wanted not in branches and len(node.attributes["then_branch" if wanted else "else_branch"].as_graph())
    ]  # fmt: skip
    if not missing:
        return ""
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return f"branches of If that no sample ran: {', '.join(missing[:_MOST_NAMED])}{more}"


def few_caught(sensitivity: Sensitivity | None) -> str:
    """Why the planted faults make agreement weak, "" if enough of them are caught."""
    # one more that is caught, since a single miss among few says little
    if sensitivity is None:
        return ""
    unreached = len(sensitivity.unreached)
    planted = sensitivity.planted + unreached
    if sensitivity.caught + 1 >= LEAST_CAUGHT * (planted + 1):
        return ""
    where = f": {unreached} are in weights that no sample reaches; real inputs may (--data)" if unreached else ""
    return f"only {sensitivity.caught} of {planted} planted faults would have been caught{where}"
