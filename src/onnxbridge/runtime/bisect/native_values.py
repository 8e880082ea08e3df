"""Where a framework computes something else than the graph that was read from its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxbridge.hub.ir import source_locations
from onnxbridge.runtime.bisect.bisection import FirstDivergence
from onnxbridge.runtime.bisect.fingerprint import Fingerprint, fingerprint, noise, same
from onnxbridge.runtime.bisect.recorded_run import Side
from onnxbridge.runtime.verify.compare import Tolerance, compare
from onnxbridge.runtime.verify.pairing import Runnable
from onnxbridge.runtime.verify.rounding.tolerance import Rounding


def computes_its_graph(runnable: Runnable, side: Side, feeds: Mapping[str, Any]) -> bool:
    """Whether the outputs of a framework are those of the graph that was read from its model, up to rounding."""
    computed = [np.asarray(v) for v in runnable.runner.run(feeds).values()]
    pairs = [(name, np.asarray(exact), own) for (name, exact), own in zip(side.outputs.items(), computed, strict=False)]

    def agree(allowed: Mapping[str, Tolerance]) -> bool:
        return all(compare(name, exact.astype(own.dtype), own, allowed[name]).passed for name, exact, own in pairs)

    if agree({name: side.tolerance_at(name, exact) for name, exact, _ in pairs}):
        return True
    runner = runnable.runner
    rounding = Rounding(side.model, runner.unit, runner.quantized_unit)  # more runs: it knows models that quantize or choose, too
    rounding.measure(feeds)
    return agree(rounding.tolerances(side.outputs))


def first_misread(runnable: Runnable, side: Side, feeds: Mapping[str, Any]) -> FirstDivergence | None:
    """The first value that the framework computes otherwise than the graph, although everything that it reads agrees; None where
    the framework shows no values or all agree."""
    seen: dict[str, Any] = {}
    prints: dict[str, Fingerprint] = {}

    def see(name: str, value: Any) -> None:
        one = fingerprint(value)
        if name in side.held and one is not None:
            prints[name] = one
            seen[name] = value

    if not runnable.watch(feeds, see):
        return None
    wrong = {name for name, one in prints.items() if not _agrees(side, name, one)}
    for name in side.order:
        if name in wrong and not wrong & _known_inputs(side, name, prints):
            return _described(side, name, seen[name])
    return None


def _agrees(side: Side, name: str, own: Fingerprint) -> bool:
    held = side.held[name]
    return held is not None and same(held, own, noise(held, side.rounded.get(name) or held))


def _known_inputs(side: Side, name: str, known: Mapping[str, Any]) -> set[str]:
    """The nearest values that the framework shows, from which a value is computed."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = list(side.inputs_of[name])
    while pending:
        one = pending.pop()
        if one in known:
            found.add(one)
        elif one not in seen:
            seen.add(one)
            pending += side.inputs_of[one]
    return found


def _described(side: Side, name: str, own: Any) -> FirstDivergence:
    graphs = np.asarray(side.fetch([name])[name])
    node = side.node(name)
    assert node is not None  # inputs are given to both
    own = np.asarray(own)
    comparison = compare(name, own, graphs.astype(own.dtype), side.tolerance_at(name, graphs))
    return FirstDivergence(name, name, node.op_type, node.op_type, source_locations.read(node), own, graphs, comparison)
