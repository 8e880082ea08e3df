"""Runs a source in TensorFlow and shows its intermediate values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from onnxbridge import frameworks
from onnxbridge.frontends.tensorflow.convert import Traced
from onnxbridge.frontends.tensorflow.dtypes import hub_dtype
from onnxbridge.frontends.tensorflow.graph import op_schemas
from onnxbridge.frontends.tensorflow.graph.tensors import plain_name
from onnxbridge.frontends.tensorflow.runner import Tracer
from onnxbridge.plugin_protocols import Arrays


def watch(source: Any, feeds: Arrays, see: Callable[[str, Any], None]) -> bool:
    """Call `see` with the name and the value of every tensor of the function's graph, called functions inlined.

    The graph runs in ceil(log2(n)) + 1 runs of a part of its values each, so that not all are in memory at once. Values inside
    of loops and branches are not shown. False for a function that changes variables, which are constants in that graph.
    """
    tracer = Tracer(source)
    given = tracer.selection.boundary.feeds(feeds)
    return tracer.with_traced(given, lambda found: _watched(found, given, see))


def _watched(found: Traced, feeds: Arrays, see: Callable[[str, Any], None]) -> bool:
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    if found.states:
        return False
    with frameworks.quiet():
        frozen = convert_variables_to_constants_v2(found.function, lower_control_flow=False)
    tensors = [
        t for op in frozen.graph.get_operations() if op.type not in ("Const", "Placeholder", "NoOp")
        for t in op.outputs if hub_dtype(t.dtype) is not None
    ]  # fmt: skip
    given = [tf.constant(feeds[name], t.dtype) for name, t in found.inputs]
    step = math.ceil(len(tensors) / math.ceil(math.log2(len(tensors) + 2))) if tensors else 1
    for start in range(0, len(tensors), step):
        part = tensors[start : start + step]
        results = frozen.prune(frozen.inputs, part)(*given)
        for tensor, value in zip(part, results, strict=True):
            see(plain_name(tensor), op_schemas.eager_array(value))
    return True
