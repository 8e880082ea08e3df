"""The largest magnitude of every float that a program computes, measured by our interpreter on samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.artifact import fed, filled, stored
from onnxbridge.backends.coreml.element_types import is_float
from onnxbridge.backends.coreml.interface.features import Interface
from onnxbridge.errors import UsageError
from onnxbridge.runtime.mil import Interpreter
from onnxbridge.runtime.verify.sample_inputs import samples_for
from onnxbridge.runtime.verify.sample_sizes import drawn, dynamic
from onnxbridge.runtime.verify.time_limit import SECONDS, within


def ranges(program: Any, interface: Interface, model: ir.Model) -> dict[str, float]:
    """The magnitudes by name. Infinities do not count: float16 has them too.

    The program is as it was before: its own outputs are put back.
    """
    function = program.functions["main"]
    watched: dict[str, Any] = {v.name: v for v in function.inputs.values() if _watchable(v)}
    for op in function.operations:
        if op.op_type != "const":
            watched.update({v.name: v for v in op.outputs if _watchable(v)})
    own = list(function.outputs)
    function.set_outputs(list(watched.values()))
    try:
        engine = Interpreter(program)
        return within(
            SECONDS, lambda: _measured(engine, interface, model, list(watched)),
            lambda: "running the model to measure the ranges of its values (compute_precision mixed)",
            "give fewer or smaller samples (calibration=), or use fp16 or fp32",
        )  # fmt: skip
    finally:
        function.set_outputs(own)


def _measured(engine: Interpreter, interface: Interface, model: ir.Model, watched: Sequence[str]) -> dict[str, float]:
    """The largest magnitude of each value on all samples."""
    samples = interface.asked.samples
    if samples is None:
        samples = _drawn(interface, model, lambda sample: _magnitudes(engine, interface, sample))
    found = dict.fromkeys(watched, 0.0)
    for sample in samples:
        missing = [p.hub for p in (*interface.inputs, *interface.states) if p.hub not in sample]
        if missing:
            raise UsageError(f"calibration: the input {', '.join(missing)} is missing")
        for name, most in _magnitudes(engine, interface, sample).items():
            found[name] = max(found[name], most)
    return found


def _magnitudes(engine: Interpreter, interface: Interface, sample: Mapping[str, Any]) -> dict[str, float]:
    """The largest magnitude of each value on one sample."""
    for port in interface.states:
        engine.states[port.coreml].value = stored(np.asarray(sample[port.hub]), interface.growths.get(port.hub))
    images = interface.asked.images
    given = {p.coreml: fed(np.asarray(sample[p.hub]), p, images.get(p.hub)) for p in interface.inputs}
    given |= filled(interface.states, sample, interface.growths, interface.positions)
    return {name: _largest(np.asarray(value, np.float64)) for name, value in engine.run(given).items()}


def _largest(array: np.ndarray[Any, Any]) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _drawn(
    interface: Interface, model: ir.Model, run: Callable[[Mapping[str, Any]], Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Samples of sizes that the program runs at, and one of each other size that was asked for."""

    def fit(sample: Mapping[str, Any]) -> int:
        try:
            return 2 if any(run(sample).values()) else 1
        except Exception:  # an image too small for what halves it fails in whatever operator is last
            return 0

    usual, *others = interface.asked.sizes(model.graph) or ({},)
    bounds = {**interface.asked.bounds, **usual}
    if not dynamic(model.graph):
        return samples_for(model.graph, bounds=bounds)
    found, _ = drawn(model.graph, 3, 0, bounds, fit)
    return found + [samples_for(model.graph, 1, bounds={**bounds, **other})[0] for other in others]


def _watchable(value: Any) -> bool:
    from coremltools.converters.mil.mil import types

    return types.is_tensor(value.sym_type) and is_float(value)
