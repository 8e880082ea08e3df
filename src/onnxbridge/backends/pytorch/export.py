"""A built module run on arrays, and saved as a `.pt2` program."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.errors import ConversionError, Problem, Source
from onnxbridge.frameworks import quiet
from onnxbridge.runtime.inputs import LEAST


def run(artifact: Any, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The module on the given inputs, by the hub's names."""
    with quiet(), torch.no_grad():  # torch.fx prints where a graph fails, beside raising it
        results = artifact(*[_in(feeds.get(name)) for name in artifact.input_names])
    results = results if isinstance(results, tuple) else (results,)
    return {
        name: _out(r, dtype)
        for name, r, dtype in zip(artifact.output_names, results, artifact.output_types, strict=True)
    }  # fmt: skip


def _in(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value if value is None else [_in(v) for v in value]
    array = np.asarray(value)
    return array if array.dtype.kind in "OUST" else dtypes.tensor(array)


def _out(value: Any, dtype: ir.DataType | None) -> Any:
    if isinstance(value, (list, tuple)):
        return [_out(v, dtype) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    array = dtypes.array(value)
    return array.astype(dtype.numpy()) if dtype in dtypes.NARROW else array


def exported(artifact: Any) -> Any:
    """The module as an exported program whose dynamic dimensions have the hub's names.

    Raises:
        ConversionError: if torch.export cannot take the module.
    """
    refused: Exception | None = None
    tried = [(least, LEAST[0]) for least in LEAST]
    single = _examples(artifact, LEAST[0], 1)[0]
    if not any(_runs(artifact, _examples(artifact, *sizes)[0]) for sizes in tried) and _runs(artifact, single):
        artifact.notes = ("the program takes a batch of 1 only, as the model computes at no other",)
        tried = [(LEAST[0], 1)]
    for least, batch in tried:
        examples, dynamic = _examples(artifact, least, batch)
        if least != LEAST[-1] and not _runs(artifact, examples):
            continue
        try:
            with quiet(), torch.no_grad():
                return torch.export.export(artifact, examples, dynamic_shapes=dynamic, strict=False)
        except Exception as e:
            refused = refused or e
            if all(isinstance(d, int) for _, dims in artifact.input_types for d in dims[1:]):
                break
    raise _refused((str(refused).strip().splitlines() or [type(refused).__name__])[0]) from refused


def _examples(artifact: Any, least: int, batch: int = LEAST[0]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Inputs of zeros, each dynamic size its own, those past the first at least `least`; and what torch.export is told.

    A dynamic size that comes first is at least `batch`; a batch of 1 stays one.
    """
    examples, dynamic = [], []
    found: dict[str, Any] = {}
    step = 1 if least == LEAST[0] else 32
    for name, (dtype, dims) in zip(artifact.input_names, artifact.input_types, strict=True):
        if dims is None or dtype is None or dtype == ir.DataType.STRING:
            raise _refused(f"the input {name!r} is no tensor of known rank")
        sizes: list[int] = []
        axes: dict[int, Any] = {}
        for axis, d in enumerate(dims):
            if isinstance(d, int):
                sizes.append(d)
                continue
            key = d or f"{name}_{axis}"
            if key not in found:
                size = least + step * len(found) if axis else 1 if batch == 1 else batch + len(found)
                found[key] = (torch.export.Dim.DYNAMIC if size > 1 else torch.export.Dim.STATIC, size)
            axes[axis], size = found[key]
            sizes.append(size)
        examples.append(torch.zeros(sizes, dtype=dtypes.outside(dtype)))
        dynamic.append(axes)
    return tuple(examples), tuple(dynamic)


def _runs(artifact: Any, examples: tuple[Any, ...]) -> bool:
    """Whether the module computes something of inputs of these sizes; a network that halves them may have nothing left."""
    try:
        with quiet(), torch.no_grad():
            results = artifact(*examples)
    except Exception:
        return False
    tensors = results if isinstance(results, tuple) else (results,)
    return all(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def _refused(reason: str) -> ConversionError:
    hint = "write it as source (--emit source, emit=\"source\"), or use the module itself (Conversion.model)"
    return ConversionError("PyTorch module to .pt2", [Problem("torch.export", reason, hint, (Source(),))])


def save(artifact: Any, path: Path) -> None:
    """Write the `.pt2` file."""
    held = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch remarks on weights that are views, which it then saves rightly
        torch.export.save(exported(artifact), held)
    path.write_bytes(held.getvalue())
