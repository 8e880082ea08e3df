"""A minimal reproduction of a divergence: the few nodes of each model as an ONNX file, their inputs, and a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

SCRIPT = '''"""Runs the operators at which two models diverge on the same inputs, and prints how far apart their results are."""

from pathlib import Path

import numpy as np
import onnxruntime

here, results = Path(__file__).parent, []
for side in ("reference", "candidate"):
    session = onnxruntime.InferenceSession(here / f"{side}.onnx")
    results.append(session.run(None, dict(np.load(here / f"{side}_inputs.npz")))[0])
    print(side, results[-1].shape, results[-1].reshape(-1)[:6])
a, b = results if results[0].shape == results[1].shape else [np.sort(r, axis=None) for r in results]
print("max abs difference:", np.abs(a - b).max() if a.shape == b.shape else "the sizes differ")
'''


@dataclass(frozen=True)
class Part:
    """A part of one model: the nodes between some of its values.

    Attributes:
        inputs: arrays by the names of the values that the part reads.
        output: the name of its only output.
    """

    side: str
    model: ir.Model
    inputs: Mapping[str, Any]
    output: str


def cut(model: ir.Model, inputs: Sequence[str], output: str) -> ir.Model:
    """The nodes of a model that compute `output` from `inputs`, as a model."""
    graph = ir.convenience.extract(model.graph, list(inputs), [output])
    return ir.Model(graph, ir_version=model.ir_version, functions=tuple(f.clone() for f in model.functions.values()))


def write(folder: Path, parts: Sequence[Part], text: str, command: str, force: bool) -> list[Path]:
    """Write the files of a reproduction.

    Raises:
        UsageError: if there is nothing to write, or something is at `folder` already.
    """
    from onnxbridge.atomic_write import write_atomically

    if not parts:
        raise UsageError("there is no divergence to save")

    def into(free: Path) -> list[Path]:
        free.mkdir()
        for part in parts:
            _write_part(free, part)
        (free / "reproduce.py").write_text(SCRIPT, encoding="utf-8")
        told = f"{text}\n\n" + (f"The whole again:\n\n    {command}\n" if command else "")
        (free / "README.txt").write_text(told, encoding="utf-8")
        return [free]

    write_atomically(folder, force, into, ())
    return sorted(folder.iterdir())


def _write_part(folder: Path, part: Part) -> None:
    from onnxbridge import plugins

    backend = plugins.backend("onnx")
    model = cut(part.model, list(part.inputs), part.output)
    for value in model.graph.inputs:
        array = np.asarray(part.inputs[str(value.name)])
        value.shape = ir.Shape(array.shape)
    backend.save(backend.from_hub(model), folder / f"{part.side}.onnx")
    arrays = {str(v.name): _declared(np.asarray(part.inputs[str(v.name)]), v) for v in model.graph.inputs}
    np.savez(folder / f"{part.side}_inputs.npz", **arrays)  # type: ignore[arg-type]


def _declared(array: np.ndarray[Any, Any], value: ir.Value) -> np.ndarray[Any, Any]:
    """The array in the dtype that the model declares; the executor may have computed it in float64."""
    return array if value.dtype is None or array.dtype.kind in "OUS" else array.astype(value.dtype.numpy())
