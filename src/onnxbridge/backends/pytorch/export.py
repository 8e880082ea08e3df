"""A built module run on arrays, and saved as a `.pt2` program."""

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
from onnxbridge.errors import ConversionError, LimitError, Problem, Source
from onnxbridge.frameworks import quiet
from onnxbridge.frameworks.torch_rnn_kernels import whole_layers
from onnxbridge.runtime.verify.sample_inputs import LEAST
from onnxbridge.runtime.verify.sample_sizes import BATCHES, shorts
from onnxbridge.runtime.verify.time_limit import within


def run(artifact: Any, feeds: Mapping[str, Any], module: Any = None) -> dict[str, np.ndarray[Any, Any]]:
    """The module, or what was written of it, on the given inputs, by the hub's names."""
    with quiet(), torch.no_grad():  # torch.fx prints where a graph fails, beside raising it
        results = (module or artifact)(*[_in(feeds.get(name)) for name in artifact.input_names])
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


_WAY_OUT = "write it as source (--emit source, emit=\"source\"), or use the module itself (Conversion.model)"
TRIAL_SECONDS = 120.0
"""How long one run of a module may take while it is exported."""
_TRIES = 2
"""How many sizes are tried of a module that torch.export refuses.

What the model asks of its sizes is decided by those that are tried. A size of which it asks whether it is just that one gives a
program for that one alone, which is no dynamic size and is refused; any other size gives the program for all but that one.
Likewise a program that does not take the next larger sizes that the module takes gives way to the one that is made of these.
"""


def exported(artifact: Any) -> Any:
    """The module as an exported program whose dynamic dimensions have the hub's names.

    Raises:
        ConversionError: if torch.export cannot take the module.
    """
    for which, types in (("input", [t for t, _ in artifact.input_types]), ("output", artifact.output_types)):
        names = artifact.input_names if which == "input" else artifact.output_names
        if texts := [name for name, t in zip(names, types, strict=True) if t == ir.DataType.STRING]:
            raise _refused(f"the {which} {texts[0]!r} is of texts, and a program holds nothing but tensors")
    refused: list[Exception] = []
    made: list[tuple[Any, int]] = []
    for examples, dynamic, batch in _working(artifact):
        if made and (made[-1][1] != batch or _takes(made[-1][0], examples)):
            break
        try:
            program = _program(artifact, examples, dynamic)
        except Exception as e:
            refused.append(e)
        else:
            if not _same(artifact, program, examples):
                raise _refused("the program that torch.export makes of the model computes something else than it")
            made.append((program, batch))
        if len(refused) == _TRIES or len(made) == _TRIES:
            break
    if made:
        program, batch = made[-1]
        if batch == 1 and any(dims and not isinstance(dims[0], int) for _, dims in artifact.input_types):
            artifact.notes = ("the program takes a batch of 1 only, as the model computes at no other",)
        return program
    if not refused:
        raise _refused("the model runs neither on zeros nor on ones, at any of the sizes that were tried")
    raise _refused(_reason(artifact, refused[0]), _place(artifact, refused[0])) from refused[0]


def _program(artifact: Any, examples: tuple[Any, ...], dynamic: tuple[Any, ...]) -> Any:
    if any(bodies(m) for m in artifact.modules() if isinstance(m, Network)):
        torch._dynamo.reset()  # which otherwise traces branches at the sizes that it has seen in other programs
    with quiet(), whole_layers(), torch.no_grad():
        return torch.export.export(artifact, examples, dynamic_shapes=dynamic, strict=False)


def _takes(program: Any, examples: tuple[Any, ...]) -> bool:
    """Whether a program takes inputs of these sizes."""
    try:
        _trial(program.module(), examples)
    except LimitError:
        raise
    except Exception:
        return False
    return True


def _trial(module: Any, examples: Sequence[Any]) -> Any:
    """What a module gives for some inputs.

    Raises:
        LimitError: if that takes too long.
    """

    def run() -> Any:
        with quiet(), torch.no_grad():
            return module(*examples)

    return within(TRIAL_SECONDS, run, lambda: "running the converted module once, to export it,", _WAY_OUT)


def _working(artifact: Any) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], int]]:
    """Inputs on which the module computes something, with what torch.export is told and the batch.

    Those of a batch of 1 only where it takes no other, ones only where it takes no zeros (it may divide by them), and those of
    which it makes nothing at all only where that is always so.
    """
    grows = any(not isinstance(d, int) for _, dims in artifact.input_types for d in dims or ())
    empty, found = [], False
    inputs = {name: dims or () for name, (_, dims) in zip(artifact.input_names, artifact.input_types, strict=True)}
    for number in (0, 1):
        for short, batch in itertools.product(shorts(inputs), BATCHES):
            for least in LEAST if grows else LEAST[:1]:
                examples, dynamic = _examples(artifact, least, batch, short, number)
                made = _computes(artifact, examples)
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


def _examples(
    artifact: Any, least: int, batch: int = BATCHES[0], short: frozenset[str] = frozenset(), number: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Inputs full of one number, each dynamic size its own, those past the first at least `least`; and what torch.export is told.

    A dynamic size that comes first is at least `batch`; a batch of 1 stays one. Where others are named in `short`, they and the
    first ones are all as large as the batch.
    """
    examples, dynamic = [], []
    found: dict[str, Any] = {}
    step = 1 if least == LEAST[0] else 32
    for name, (dtype, dims) in zip(artifact.input_names, artifact.input_types, strict=True):
        if dims is None or dtype is None:
            raise _refused(f"the input {name!r} is no tensor of known rank")
        sizes: list[int] = []
        axes: dict[int, Any] = {}
        for axis, d in enumerate(dims):
            if isinstance(d, int):
                sizes.append(d)
                continue
            key = d or f"{name}.{axis}"
            if key not in found:
                of_batch = batch if batch == 1 or short else batch + len(found)
                size = least + step * len(found) if axis and key not in short else of_batch
                found[key] = (torch.export.Dim.DYNAMIC if size > 1 else torch.export.Dim.STATIC, size)
            axes[axis], size = found[key]
            sizes.append(size)
        examples.append(torch.full(sizes, number, dtype=torch.int8).to(dtypes.outside(dtype)))
        dynamic.append(axes)
    return tuple(examples), tuple(dynamic)


def _computes(artifact: Any, examples: tuple[Any, ...]) -> bool | None:
    """Whether the module computes something of these inputs, or tensors without elements; None where it fails.

    A network that halves images may have nothing left of a small one.
    """
    try:
        results = _trial(artifact, examples)
    except LimitError:
        raise
    except Exception:
        return None
    tensors = results if isinstance(results, tuple) else (results,)
    return all(t.numel() for t in tensors if isinstance(t, torch.Tensor))


def _same(artifact: Any, program: Any, examples: tuple[Any, ...]) -> bool:
    """Whether the program gives what the module gives, of numbers drawn: what torch.export traces it can get wrong.

    Where either fails, or the module draws numbers itself, there is nothing to compare.
    """
    generator = torch.Generator().manual_seed(0)
    for whole in (0, 1):
        given = [
            torch.randn(e.shape, generator=generator).to(e.dtype) if e.is_floating_point() else torch.full_like(e, whole)
            for e in examples
        ]
        try:
            first, again, other = (_tensors(_trial(m, given)) for m in (artifact, artifact, program.module()))
        except LimitError:
            raise
        except Exception:
            continue
        if all(map(_close, first, again)) and not all(map(_close, first, other)):
            return False
    return True


def _tensors(results: Any) -> list[torch.Tensor]:
    return [r for r in tree_leaves(results) if isinstance(r, torch.Tensor)]


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two results are the same but for the order in which float32 sums may be taken."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return a.dtype == b.dtype and not a.numel() and not b.numel()  # of no turn a loop collects nothing, of any size
    a, b = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
    finite = a[torch.isfinite(a)].abs()
    scale = finite.max().item() if finite.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=1e-3, atol=1e-3 * scale, equal_nan=True))


def _refused(reason: str, place: Source | None = None) -> ConversionError:
    return ConversionError("PyTorch module to .pt2", [Problem("torch.export", reason, _WAY_OUT, (place or Source(),))])


_FIXED = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]")


def _reason(artifact: Any, error: Exception) -> str:
    """In one line, what torch.export says."""
    text = str(error).strip()
    fixed = sorted(set(_FIXED.findall(text))) if text.startswith("Constraints violated") else []
    if fixed:
        axes = " and ".join(f"axis {axis} of {name}" for name, axis in fixed)
        return f"what the model does with its sizes fixes {axes}, which is dynamic"
    if "data-dependent expression" in text:
        return "a number that only a run tells, as an axis, a size or a choice, decides what is computed here"
    told = re.search(r"got \w+\([\"'](.+?)[\"']\)$", text, re.MULTILINE)  # what dynamo met on its way
    return told[1] if told else (text.splitlines() or [type(error).__name__])[0]


def _place(artifact: Any, error: Exception) -> Source | None:
    """Where the model has the operator that torch.export met it at."""
    found = re.findall(r"While executing %(\w+)", str(error))
    nodes = {n.name: n for m in artifact.modules() if isinstance(m, torch.fx.GraphModule) for n in reversed(m.graph.nodes)}
    return next((nodes[name].meta["where"] for name in found if name in nodes and "where" in nodes[name].meta), None)


def save(artifact: Any, path: Path) -> None:
    """Write the `.pt2` file."""
    held = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch remarks on weights that are views, which it then saves rightly
        torch.export.save(exported(artifact), held)
    path.write_bytes(held.getvalue())
