"""Joined plans beside the rules one by one: the comparison of what both compute."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
EPS = np.finfo(np.float32).eps


def drawing(seed):
    """Float32 numbers of a shape, of a row of draws that belongs to the file that asks."""
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def model(text, **weights):
    """A model from text whose initializers are these arrays."""
    proto = parser.parse_model(HEAD + text)
    proto.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    return proto


def agrees(proto, feeds, *ops, depth=1):
    """Joined and plain runs agree up to the rounding of sums of `depth` terms, judged by float64; the joined steps are `ops`."""
    executor = Executor(proto)
    plain = executor.run(executor.output_names, feeds)
    wide = Executor(proto, precision="float64").run(None, feeds)
    for _ in range(2):  # the second run gets used memory
        joined = executor.run(None, feeds)
        for a, b, exact in zip(joined, plain, wide, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            allowed = 8 * np.sqrt(depth) * EPS * max(1.0, np.abs(exact).max(initial=0))
            np.testing.assert_allclose(a, exact, rtol=0, atol=allowed)
    assert step_names(executor, feeds) == list(ops)
    return joined


def step_names(executor, feeds):
    """What the steps of a run on these inputs compute, in order."""
    return [step.op for step in executor.explain(feeds)]


def all_compiled(executor, feeds):
    """Whether a repeated run on these inputs is kernel calls alone, not even the shapes are computed again."""
    return all(step.runs != "Python" for step in executor.explain(feeds))
