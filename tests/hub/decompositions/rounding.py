"""Comparison of a model's outputs with a reference, up to what rounding explains: the tolerance that `verify` derives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor
from onnxbridge.runtime.verify.compare import compare
from onnxbridge.runtime.verify.rounding.tolerance import Rounding


def assert_within_rounding(
    m: onnx.ModelProto, feeds: dict[str, Any], expected: Sequence[Any], results: Sequence[Any] | None = None
) -> None:
    """The executor's outputs, or other results of the model, are the expected ones."""
    rounding = Rounding(onnx_files.from_proto(m))
    rounding.measure(feeds)
    references = dict(zip([o.name for o in m.graph.output], map(np.asarray, expected), strict=True))
    tolerances = rounding.tolerances(references)
    results = Executor(m).run(None, feeds) if results is None else results
    for (name, reference), got in zip(references.items(), results, strict=True):
        assert (got.dtype, got.shape) == (reference.dtype, reference.shape)
        assert tolerances[name].origin == "derived", tolerances[name].origin
        found = compare(name, reference, got, tolerances[name])
        assert found.passed, found
