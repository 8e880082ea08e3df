"""Running a built module on arrays, and exporting it as a `.pt2` program."""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.utils._pytree import tree_leaves

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.codegen.classes import bodies
from onnxbridge.backends.pytorch.modules.graph_module import Network
from onnxbridge.errors import ConversionError, LimitError, Problem, SourceLocation
from onnxbridge.frameworks import quiet
from onnxbridge.frameworks.torch_rnn_kernels import rnn_meta_kernels
from onnxbridge.runtime.verify.samples.random_inputs import LEAST
from onnxbridge.runtime.verify.samples.sizes import BATCHES, small_dimensions
from onnxbridge.runtime.verify.time_limit import within


def run(artifact: Any, feeds: Mapping[str, Any], module: Any = None) -> dict[str, np.ndarray[Any, Any]]:
    """Run the module, or the module loaded from its written source, on inputs by hub name."""
    with quiet(), torch.no_grad():  # torch.fx prints the failing node in addition to raising
        results = (module or artifact)(*[_to_torch(feeds.get(name)) for name in artifact.input_names])
    results = results if isinstance(results, tuple) else (results,)
    return {
        name: _from_torch(r, dtype)
        for name, r, dtype in zip(artifact.output_names, results, artifact.output_types, strict=True)
    }  # fmt: skip


def _to_torch(value: Any) -> Any:
    if value is None or isinstance(value, list):
        return value if value is None else [_to_torch(v) for v in value]
    array = np.asarray(value)
    return array if array.dtype.kind in "OUST" else dtypes.tensor(array)


def _from_torch(value: Any, dtype: ir.DataType | None) -> Any:
    if isinstance(value, (list, tuple)):
        return [_from_torch(v, dtype) for v in value]
    if not isinstance(value, torch.Tensor):
        return value
    array = dtypes.array(value)
    return array.astype(dtype.numpy()) if dtype in dtypes.NARROW else array


_HINT = 'write it as source (--emit source, emit="source"), or use the module itself (Conversion.model)'
RUN_SECONDS = 120.0
"""Time limit in seconds for one run of a module during export."""
_MAX_ATTEMPTS = 2
"""How many example sizes are tried if torch.export fails.

The guards depend on the example sizes. If the model compares a size for equality with the example, the program is specialized to
it and refused; another example gives a program for all sizes but that one. Likewise, a program that rejects the next larger
sizes, which the module accepts, is replaced by one exported at those sizes.
"""


_OF_THIS_PROCESS = ("stack_trace", "from_node")
"""What torch.export notes of each node: lines of onnxbridge's own code, and addresses in memory."""


def exported(artifact: Any) -> Any:
    """The module as an exported program whose dynamic dimensions have the hub's names.

    Raises:
        ConversionError: if torch.export fails on the module.
    """
    for which, types in (("input", [t for t, _ in artifact.input_types]), ("output", artifact.output_types)):
        names = artifact.input_names if which == "input" else artifact.output_names
        if strings := [name for name, t in zip(names, types, strict=True) if t == ir.DataType.STRING]:
            raise _error(f"the {which} {strings[0]!r} has strings; a .pt2 program supports tensors only")
    refused: list[Exception] = []
    made: list[tuple[Any, int]] = []
    for examples, dynamic, batch in _example_inputs(artifact):
        if made and (made[-1][1] != batch or _accepts(made[-1][0], examples)):
            break
        try:
            program = _program(artifact, examples, dynamic)
        except Exception as e:
            refused.append(e)
        else:
            if not _outputs_match(artifact, program, examples):
                raise _error("the program exported by torch.export gives other outputs than the module")
            made.append((program, batch))
        if len(refused) == _MAX_ATTEMPTS or len(made) == _MAX_ATTEMPTS:
            break
    if made:
        program, batch = made[-1]
        if batch == 1 and any(dims and not isinstance(dims[0], int) for _, dims in artifact.input_types):
            artifact.notes = ("the program supports a batch size of 1 only: the model runs at no other",)
        return program
    if not refused:
        raise _error("the model fails on inputs of zeros and of ones at every size that was tried")
    raise _error(_reason(artifact, refused[0]), _location(artifact, refused[0])) from refused[0]


def _program(artifact: Any, examples: tuple[Any, ...], dynamic: tuple[Any, ...]) -> Any:
    if any(bodies(m) for m in artifact.modules() if isinstance(m, Network)):
        torch._dynamo.reset()  # otherwise it traces branches at sizes cached from other programs
    with quiet(), rnn_meta_kernels(), torch.no_grad():
        return torch.export.export(artifact, examples, dynamic_shapes=dynamic, strict=False)


def _accepts(program: Any, examples: tuple[Any, ...]) -> bool:
    """Whether a program accepts inputs of these sizes."""
    try:
        _timed_run(program.module(), examples)
    except LimitError:
        raise
    except Exception:
        return False
    return True


def _timed_run(module: Any, examples: Sequence[Any]) -> Any:
    """The outputs of a module for some inputs.

    Raises:
        LimitError: if the time limit is exceeded.
    """

    def run() -> Any:
        with quiet(), torch.no_grad():
            return module(*examples)

    return within(RUN_SECONDS, run, lambda: "running the converted module for export", _HINT)


def _example_inputs(artifact: Any) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], int]]:
    """Example inputs on which the module produces output, with their `dynamic_shapes` and batch size.

    A batch of 1 is used only if the module accepts no other, ones only if it fails on zeros (it may divide by them), and inputs
    with empty outputs only if all outputs are empty.
    """
    grows = any(not isinstance(d, int) for _, dims in artifact.input_types for d in dims or ())
    empty, found = [], False
    inputs = {name: dims or () for name, (_, dims) in zip(artifact.input_names, artifact.input_types, strict=True)}
    for number in (0, 1):
        for short, batch in itertools.product(small_dimensions(inputs), BATCHES):
            for min_size in LEAST if grows else LEAST[:1]:
                examples, dynamic = _constant_inputs(artifact, min_size, batch, short, number)
                made = _has_output(artifact, examples)
                if made:
                    found = True
                    yield examples, dynamic, batch
                elif made is not None:
                    empty.append((examples, dynamic, batch))
            if found:
                return
        if empty:
            break
    yield from empty


def _constant_inputs(
    artifact: Any, min_size: int, batch: int = BATCHES[0], short: frozenset[str] = frozenset(), number: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Constant inputs with a distinct size for each dynamic dimension, and their `dynamic_shapes`.

    Dynamic sizes on the first axis are at least `batch` (a batch of 1 stays 1), those on other axes at least `min_size`. If
    `short` names inputs' dimensions, these and the first ones are all as large as the batch.
    """
    examples, dynamic = [], []
    found: dict[str, Any] = {}
    step = 1 if min_size == LEAST[0] else 32
    for name, (dtype, dims) in zip(artifact.input_names, artifact.input_types, strict=True):
        if dims is None or dtype is None:
            raise _error(f"the input {name!r} is not a tensor of known rank")
        sizes: list[int] = []
        axes: dict[int, Any] = {}
        for axis, d in enumerate(dims):
            if isinstance(d, int):
                sizes.append(d)
                continue
            key = d or f"{name}.{axis}"
            if key not in found:
                of_batch = batch if batch == 1 or short else batch + len(found)
                size = min_size + step * len(found) if axis and key not in short else of_batch
                found[key] = (torch.export.Dim.DYNAMIC if size > 1 else torch.export.Dim.STATIC, size)
            axes[axis], size = found[key]
            sizes.append(size)
        examples.append(torch.full(sizes, number, dtype=torch.int8).to(dtypes.outside(dtype)))
        dynamic.append(axes)
    return tuple(examples), tuple(dynamic)


def _has_output(artifact: Any, examples: tuple[Any, ...]) -> bool | None:
    """Whether the module's outputs for these inputs have elements; None if it fails.

    A network that downsamples may produce empty outputs for small images.
    """
    try:
        results = _timed_run(artifact, examples)
    except LimitError:
        raise
    except Exception:
        return None
    tensors = results if isinstance(results, tuple) else (results,)
    return all(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def _outputs_match(artifact: Any, program: Any, examples: tuple[Any, ...]) -> bool:
    """Whether the program matches the module on random inputs, since torch.export can mistrace.

    If either fails, or the module itself is random, nothing is compared.
    """
    generator = torch.Generator().manual_seed(0)
    for integer in (0, 1):
        inputs = [
            torch.randn(e.shape, generator=generator).to(e.dtype) if e.is_floating_point() else torch.full_like(e, integer)
            for e in examples
        ]
        try:
            first, repeated, other = (_tensors(_timed_run(m, inputs)) for m in (artifact, artifact, program.module()))
        except LimitError:
            raise
        except Exception:  # noqa: S112  these inputs do not run, which says nothing
            continue
        if all(map(_close, first, repeated)) and not all(map(_close, first, other)):
            return False
    return True


def _tensors(results: Any) -> list[torch.Tensor]:
    return [r for r in tree_leaves(results) if isinstance(r, torch.Tensor)]


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two results are equal up to the summation order of float32."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return (
            a.dtype == b.dtype and not a.numel() and not b.numel()
        )  # a loop without iterations collects an empty tensor of any size
    a, b = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
    finite = a[torch.isfinite(a)].abs()
    scale = finite.max().item() if finite.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))


def _error(reason: str, location: SourceLocation | None = None) -> ConversionError:
    return ConversionError("PyTorch module to .pt2", [Problem("torch.export", reason, _HINT, (location or SourceLocation(),))])


_FIXED = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]")


def _reason(artifact: Any, error: Exception) -> str:
    """The error of torch.export in one line."""
    text = str(error).strip()
    fixed = sorted(set(_FIXED.findall(text))) if text.startswith("Constraints violated") else []
    if fixed:
        axes = " and ".join(f"axis {axis} of {name}" for name, axis in fixed)
        return f"the model specializes {axes}, which is declared dynamic"
    if "data-dependent expression" in text:
        return "the computation here depends on the values of a tensor (as an axis, a size or a condition)"
    detail = re.search(r"got \w+\([\"'](.+?)[\"']\)$", text, re.MULTILINE)  # what dynamo failed on
    return detail[1] if detail else (text.splitlines() or [type(error).__name__])[0]


def _location(artifact: Any, error: Exception) -> SourceLocation | None:
    """The source location of the node that torch.export failed at."""
    found = re.findall(r"While executing %(\w+)", str(error))
    nodes = {n.name: n for m in artifact.modules() if isinstance(m, torch.fx.GraphModule) for n in reversed(m.graph.nodes)}
    return next((nodes[name].meta["where"] for name in found if name in nodes and "where" in nodes[name].meta), None)


def save(artifact: Any, path: Path) -> None:
    """Write the `.pt2` file."""
    program = exported(artifact)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            for name in _OF_THIS_PROCESS:
                node.meta.pop(name, None)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about weights that are views, but saves them correctly
        torch.export.save(program, buffer)
    path.write_bytes(buffer.getvalue())
