"""The largest magnitude of every float that a program computes, measured by our interpreter on samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.artifact import fed, filled, stored
from onnxbridge.backends.coreml.interface import Interface
from onnxbridge.backends.coreml.types import is_float
from onnxbridge.errors import UsageError
from onnxbridge.runtime.inputs import samples_for
from onnxbridge.runtime.mil import Interpreter


def ranges(program: Any, interface: Interface, model: ir.Model) -> dict[str, float]:
    """The magnitudes by name. Infinities do not count: float16 has them too.

    The program is as it was before: its own outputs are put back.
    """
    function = program.functions["main"]
    samples = interface.asked.samples
    if samples is None:
        samples = samples_for(model.graph, bounds={**interface.asked.bounds, **interface.asked.sizes(model.graph)})
    watched: dict[str, Any] = {v.name: v for v in function.inputs.values() if _watchable(v)}
    for op in function.operations:
        if op.op_type != "const":
            watched.update({v.name: v for v in op.outputs if _watchable(v)})
    own = list(function.outputs)
    function.set_outputs(list(watched.values()))
    try:
        engine = Interpreter(program)
        found = dict.fromkeys(watched, 0.0)
        for sample in samples:
            missing = [p.hub for p in (*interface.inputs, *interface.states) if p.hub not in sample]
            if missing:
                raise UsageError(f"calibration: the input {', '.join(missing)} is missing")
            for port in interface.states:
                engine.states[port.coreml].value = stored(np.asarray(sample[port.hub]), interface.growths.get(port.hub))
            images = interface.asked.images
            given = {p.coreml: fed(np.asarray(sample[p.hub]), p, images.get(p.hub)) for p in interface.inputs}
            given |= filled(interface.states, sample, interface.growths, interface.positions)
            for name, value in engine.run(given).items():
                array = np.abs(np.asarray(value, np.float64))
                found[name] = max(found[name], float(array[np.isfinite(array)].max(initial=0.0)))
    finally:
        function.set_outputs(own)
    return found


def _watchable(value: Any) -> bool:
    from coremltools.converters.mil.mil import types

    return types.is_tensor(value.sym_type) and is_float(value)
