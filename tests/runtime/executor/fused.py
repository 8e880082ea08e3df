"""Compares fused plans with the rules, run one by one."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
EPS = np.finfo(np.float32).eps


def normal_arrays(seed):
    """A function from a shape to normally distributed float32 numbers, with its own generator."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def model(text, **weights):
    """A model from text whose initializers are these arrays."""
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    return proto


def agrees(proto, feeds, *ops, depth=1):
    """Fused and plain runs are within the rounding error of sums of `depth` terms of float64; the fused steps are `ops`."""
    executor = Executor(proto)
    plain = executor.run(executor.output_names, feeds)
    wide = Executor(proto, precision="float64").run(None, feeds)
    for _ in range(2):  # the second run reuses buffers
        fused = executor.run(None, feeds)
        for a, b, exact in zip(fused, plain, wide, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            allowed = 8 * np.sqrt(depth) * EPS * max(1.0, np.abs(exact).max(initial=0))
            np.testing.assert_allclose(a, exact, rtol=0, atol=allowed)
    assert step_names(executor, feeds) == list(ops)
    return fused


def step_names(executor, feeds):
    """The names of the steps of a run on these inputs, in order."""
    return [step.op for step in executor.explain(feeds)]


def all_compiled(executor, feeds):
    """Whether a repeated run on these inputs consists of kernel calls only, without recomputing shapes."""
    return all(step.runs != "Python" for step in executor.explain(feeds))
