"""Whether the user's samples fit a model's inputs, checked before anything runs."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.ir.values import dtype_name, shape_text
from onnxbridge.hub.passes.bind_inputs import bound_inputs
from onnxbridge.runtime.verify.samples.arrays import as_array, for_input
from onnxbridge.runtime.verify.samples.random_inputs import Bounds
from onnxbridge.runtime.verify.samples.samples_file import Sample

_MOST_SHOWN = 6


def checked_samples(samples: Sequence[Sample], hub: ir.Model, bounds: Bounds, advice: str = "") -> list[Sample]:
    """The samples with arrays as the hub model's inputs take them, in order. `advice` ends the message where one does not fit.

    Raises:
        UsageError: with what does not fit, and what would.
    """
    problems: list[str] = []
    found = []
    for i, sample in enumerate(samples):
        wrong, inputs = _fitted(sample.inputs, hub, bounds)
        problems += [f"{sample.name or f'sample {i + 1}'}: {text}" for text in wrong]
        found.append(Sample(sample.name, inputs, sample.outputs))
    if problems:
        more = f"; and {len(problems) - _MOST_SHOWN} more" if len(problems) > _MOST_SHOWN else ""
        raise UsageError(f"the data does not fit the model: {'; '.join(problems[:_MOST_SHOWN])}{more}{advice}")
    return found


def _fitted(given: Mapping[str, Any], hub: ir.Model, bounds: Bounds) -> tuple[list[str], dict[str, Any]]:
    """What does not fit, and the arrays by input name."""
    values = {str(v.name): v for v in hub.graph.inputs}
    bound = bound_inputs(hub)
    problems: list[str] = []
    strange: list[str] = []
    missing = [name for name, v in values.items() if name not in given and not isinstance(v.type, ir.OptionalType)]
    unknown = [name for name in given if name not in values]
    for name in unknown:
        if name in bound:
            problems.append(f"the input {name!r} was made a constant (--inputs {name}=...); leave it out")
            continue
        near = difflib.get_close_matches(name, missing, n=1, cutoff=0.5) or (missing if len(missing) == len(unknown) == 1 else [])
        if near:
            problems.append(f"the model has no input {name!r}; did you mean {near[0]!r}?")
        else:
            strange.append(repr(name))
        missing = [other for other in missing if other not in near]
    if strange:
        shown = ", ".join(strange[:_MOST_SHOWN]) + (", ..." if len(strange) > _MOST_SHOWN else "")
        problems.append(f"the model has no input {shown}; it has {', '.join(values) or 'none'}")
    problems += [f"the input {name!r} is missing: {_described(values[name])}" for name in missing]
    arrays: dict[str, Any] = {}
    for name, value in values.items():
        if name in given:
            arrays[name], wrong = _fitted_input(given[name], value, bounds)
            problems += wrong
    return problems, arrays


def _fitted_input(given: Any, value: ir.Value, bounds: Bounds) -> tuple[Any, list[str]]:
    name = str(value.name)
    if isinstance(value.type, ir.SequenceType):
        if isinstance(given, (list, tuple)):
            return [np.asarray(item) for item in given], []
        return given, [f"the input {name!r} is a sequence: give a list of arrays"]
    if given is None:
        return None, []
    array = as_array(given)
    if array is None:
        array = np.asarray(given)
        if array.dtype == object:
            return given, [f"{name!r} is a {type(given).__name__}, not an array"]
    array = for_input(array, value)
    return array, [f"{name!r} {text}" for text in _mismatches(array, value, bounds)]


def _mismatches(array: np.ndarray[Any, Any], value: ir.Value, bounds: Bounds) -> Iterator[str]:
    """Why an array is no input `value`."""
    if value.dtype is not None:
        strings = array.dtype.kind in "OSU"
        wanted = None if value.dtype == ir.DataType.STRING else value.dtype.numpy()
        if strings != (wanted is None) or (wanted is not None and array.dtype != wanted):
            name = dtype_name(value.dtype)
            cast = f": array.astype({name!r})" if not strings and wanted is not None else ""
            yield f"has dtype {'string' if strings else array.dtype}; the model takes {name}{cast}"
    if value.shape is None:
        return
    dims = list(value.shape)
    names = [None if isinstance(d, int) else d.value for d in dims]
    if not _fits(array.shape, dims):
        yield f"has shape {list(array.shape)}; the model takes {shape_text(value.shape)}{_advice(array.shape, dims)}"
        return
    for dim, size in zip(names, array.shape, strict=True):
        low, high = bounds.get(dim or "", (0, None))
        if size < low or (high is not None and size > high):
            yield f"has {dim}={size}, which --dynamic {dim}={low}..{'' if high is None else high} (dynamic=) excludes"


def _fits(shape: Sequence[int], dims: Sequence[Any]) -> bool:
    return len(shape) == len(dims) and all(not isinstance(d, int) or d == size for d, size in zip(dims, shape, strict=True))


def _advice(shape: Sequence[int], dims: Sequence[Any]) -> str:
    """A step that makes the shape fit: a first dimension to add or to remove, or an order of the axes."""
    if _fits([1, *shape], dims):
        return ": array[None] adds the first dimension"
    if shape and shape[0] == 1 and _fits(shape[1:], dims):
        return ": array[0] removes the first dimension"
    if 2 <= len(shape) == len(dims) <= 5:
        for order in itertools.permutations(range(len(shape))):
            if order[0] == 0 and _fits([shape[i] for i in order], dims):  # the batch stays first
                return f": array.transpose{order} fits"
    return ""


def _described(value: ir.Value) -> str:
    dtype = "" if value.dtype is None else dtype_name(value.dtype)
    return dtype + ("" if value.shape is None else shape_text(value.shape))
