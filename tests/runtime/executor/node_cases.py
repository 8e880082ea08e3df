"""The test cases of the onnx package: models with inputs and expected outputs."""

from __future__ import annotations

import functools
import glob
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from onnxbridge.hub.ir.opset_version import OPSET

EXPECTED_FAILURES = Path(__file__).parents[2] / "expected_failures"


@functools.cache
def cases(lowest: int = 13, highest: int = OPSET) -> dict[str, Any]:
    """The single-operator cases from opset 13, the first with today's operator definitions, to the hub's opset."""
    return {c.name: c for c in load_model_tests(kind="node") if lowest <= opset(model_of(c)) <= highest}


def model_of(case: Any) -> onnx.ModelProto:
    return case.model if case.model is not None else onnx.load(os.path.join(case.model_dir, "model.onnx"))


def opset(model: onnx.ModelProto) -> int:
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=OPSET)


def data_sets(case: Any) -> list[tuple[list[Any], list[Any]]]:
    """Pairs of inputs and expected outputs as NumPy arrays, lists and None."""
    if case.model is not None:
        return [(_plain(inputs), _plain(outputs)) for inputs, outputs in case.data_sets]
    model = model_of(case)
    found = []
    for folder in sorted(glob.glob(os.path.join(case.model_dir, "test_data_set_*"))):
        inputs = [_read(folder, f"input_{i}.pb", v) for i, v in enumerate(model.graph.input)]
        outputs = [_read(folder, f"output_{i}.pb", v) for i, v in enumerate(model.graph.output)]
        found.append((inputs, outputs))
    return found


def _plain(values: Any) -> list[Any]:
    return [_value(v) for v in values]


def _value(v: Any) -> Any:
    if isinstance(v, onnx.TensorProto):
        return numpy_helper.to_array(v)
    return [_value(item) for item in v] if isinstance(v, list) else v


def _read(folder: str, name: str, declared: onnx.ValueInfoProto) -> Any:
    content = Path(folder, name).read_bytes()
    kind = declared.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def expected_failures(name: str) -> dict[str, str]:
    """For each case that is known to fail in one part of the project, the reason."""
    with (EXPECTED_FAILURES / f"{name}.toml").open("rb") as file:
        listed = tomllib.load(file)["failure"]
    return {case: entry["reason"] for entry in listed for case in entry["cases"]}


def assert_same(got: Any, expected: Any, rtol: float, atol: float) -> None:
    """Same structure, same shapes, same types, and numbers within the tolerance of the case."""
    if isinstance(expected, list):
        assert isinstance(got, list)
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            assert_same(g, e, rtol, atol)
        return
    if expected is None:
        assert got is None
        return
    expected = np.asarray(expected)
    assert isinstance(got, np.ndarray)
    assert got.shape == expected.shape
    if expected.dtype.kind in "OUS":
        assert got.astype(str).tolist() == expected.astype(str).tolist()
        return
    assert got.dtype == expected.dtype
    if expected.dtype.kind == "V":
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
