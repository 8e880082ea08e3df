"""Measures the largest magnitude of every float value of a program, by running it on samples with our interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.element_types import is_float
from onnxbridge.backends.coreml.interface.feature_values import state_positions, state_value, to_core_ml_input
from onnxbridge.backends.coreml.interface.features import Interface
from onnxbridge.errors import UsageError
from onnxbridge.runtime.mil import Interpreter
from onnxbridge.runtime.verify.samples.random_inputs import samples_for
from onnxbridge.runtime.verify.samples.sizes import draw_samples, dynamic
from onnxbridge.runtime.verify.time_limit import SECONDS, within


def ranges(program: Any, interface: Interface, model: ir.Model) -> dict[str, float]:
    """The largest finite magnitude by value name; infinities are excluded, since float16 has them too.

    The program is not changed: its outputs are replaced for the run and restored.
    """
    function = program.functions["main"]
    float_values: dict[str, Any] = {v.name: v for v in function.inputs.values() if _is_float_tensor(v)}
    for op in function.operations:
        if op.op_type != "const":
            float_values.update({v.name: v for v in op.outputs if _is_float_tensor(v)})
    original_outputs = list(function.outputs)
    function.set_outputs(list(float_values.values()))
    try:
        interpreter = Interpreter(program)
        return within(
            SECONDS, lambda: _measured(interpreter, interface, model, list(float_values)),
            lambda: "running the model to measure value ranges (compute_precision mixed)",
            "give fewer or smaller samples (calibration=), or use fp16 or fp32",
        )  # fmt: skip
    finally:
        function.set_outputs(original_outputs)


def _measured(interpreter: Interpreter, interface: Interface, model: ir.Model, float_values: Sequence[str]) -> dict[str, float]:
    """The largest magnitude of each value on all samples."""
    samples = interface.options.samples
    if samples is None:
        samples = _random_samples(interface, model, lambda sample: _magnitudes(interpreter, interface, sample))
    found = dict.fromkeys(float_values, 0.0)
    for sample in samples:
        missing = [p.hub for p in (*interface.inputs, *interface.states) if p.hub not in sample]
        if missing:
            raise UsageError(f"calibration: the input {', '.join(missing)} is missing")
        for name, most in _magnitudes(interpreter, interface, sample).items():
            found[name] = max(found[name], most)
    return found


def _magnitudes(interpreter: Interpreter, interface: Interface, sample: Mapping[str, Any]) -> dict[str, float]:
    """The largest magnitude of each value on one sample."""
    for feature in interface.states:
        interpreter.states[feature.coreml].value = state_value(
            np.asarray(sample[feature.hub]), interface.growing_states.get(feature.hub)
        )
    images = interface.options.images
    feeds = {p.coreml: to_core_ml_input(np.asarray(sample[p.hub]), p, images.get(p.hub)) for p in interface.inputs}
    feeds |= state_positions(interface.states, sample, interface.growing_states, interface.positions)
    return {name: _largest(np.asarray(value, np.float64)) for name, value in interpreter.run(feeds).items()}


def _largest(array: np.ndarray[Any, Any]) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _random_samples(
    interface: Interface, model: ir.Model, run: Callable[[Mapping[str, Any]], Mapping[str, float]]
) -> list[dict[str, Any]]:
    """Random samples of sizes that the program supports, and one of each further enumerated shape."""

    def score(sample: Mapping[str, Any]) -> int:
        try:
            return 2 if any(run(sample).values()) else 1
        except Exception:  # for example an image that is too small for the network's strides
            return 0

    default, *others = interface.options.sizes(model.graph) or ({},)
    bounds = {**interface.options.bounds, **default}
    if not dynamic(model.graph):
        return samples_for(model.graph, bounds=bounds)
    found, _ = draw_samples(model.graph, 3, 0, bounds, score)
    return found + [samples_for(model.graph, 1, bounds={**bounds, **other})[0] for other in others]


def _is_float_tensor(value: Any) -> bool:
    from coremltools.converters.mil.mil import types

    return types.is_tensor(value.sym_type) and is_float(value)
