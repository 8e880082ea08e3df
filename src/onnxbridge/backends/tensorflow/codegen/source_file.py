"""A built model as a readable Python file with its weights; it imports nothing but keras, numpy and tensorflow.

Names are generated and values are written as literals, so nothing in the model can inject code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxbridge import frameworks
from onnxbridge.backends.tensorflow.codegen.statements import Statements
from onnxbridge.backends.tensorflow.functional.build import keras_defaults
from onnxbridge.backends.tensorflow.functional.model import KerasModel
from onnxbridge.errors import ConversionError, Problem, SourceLocation, Unsupported
from onnxbridge.formats.python_source.line_breaking import lines, quoted
from onnxbridge.frameworks import tensorflow_errors

WEIGHTS = ".weights.h5"
_LOAD = '''

def load(weights=None):
    """Return the model with the weights of `weights`, by default the .weights.h5 file next to this one."""
    model = build()
    model.load_weights(weights or os.path.splitext(os.path.abspath(__file__))[0] + ".weights.h5")
    return model
'''
_OTHERWISE = "write the model itself: -o net.keras"
_RESERVED = ("keras", "layers", "ops", "np", "os", "tf", "build", "load", "model")


def written(path: Path) -> list[Path]:
    """The files that are written for a path: the source, and its weights."""
    mark = ".failed" if path.suffix == ".failed" else ""  # the suffix that `convert` adds if verification failed
    stem = path.with_suffix("") if mark else path
    return [stem.with_suffix(kind + mark) for kind in (".py", WEIGHTS)]


def save(artifact: Any, path: Path) -> list[Path]:
    """Write the `.py` file and its `.weights.h5`.

    Raises:
        ConversionError: if the model has something that cannot be written as source.
    """
    try:
        text = source_of(artifact)
    except Unsupported as e:
        raise _refused(e.reason, e.hint) from e
    code, weights = written(path)
    code.write_text(text, encoding="ascii")
    with frameworks.quiet(), keras_defaults(), tempfile.TemporaryDirectory(dir=weights.parent) as folder:
        try:
            model = _executed(code)["build"]()
        except Exception as e:
            raise _refused(f"Keras does not build the source: {tensorflow_errors.main_line(e)}", _OTHERWISE) from e
        for layer in artifact.layers:
            if layer.weights:
                model.get_layer(layer.name).set_weights(layer.get_weights())
        named = Path(folder, f"net{WEIGHTS}")  # Keras requires the suffix
        model.save_weights(str(named))
        named.replace(weights)
    return [code, weights]


def _refused(reason: str, hint: str) -> ConversionError:
    return ConversionError("TensorFlow model to source", [Problem("emit", reason, hint, (SourceLocation(),))])


def _executed(code: Path) -> dict[str, Any]:
    """The names that the written file defines."""
    found: dict[str, Any] = {"__name__": "net", "__file__": str(code)}
    exec(compile(code.read_text(encoding="ascii"), str(code), "exec"), found)  # noqa: S102  written above
    return found


def opened(artifact: Any, path: Path) -> Any:
    """The model loaded from the written files as a function of the inputs in order."""
    with frameworks.quiet(), keras_defaults():
        model = _executed(path)["load"]()

    def call(inputs: Sequence[Any]) -> Any:
        return model(inputs[0] if len(inputs) == 1 else list(inputs))

    return call


def source_of(artifact: Any) -> str:
    """The source of the model.

    Raises:
        Unsupported: if it has something that cannot be written as source.
    """
    if not isinstance(artifact, KerasModel):
        raise Unsupported(f"the result is no functional Keras model: {artifact.reason}", "write a SavedModel, without a suffix")
    several = len(artifact.inputs) > 1
    names = artifact.keywords if several else ("inputs",)
    statements = Statements(artifact.built_calls, list(zip(artifact.inputs, names, strict=True)), artifact.outputs, _RESERVED)
    lines_ = statements.lines()
    if statements.classes.refused:
        raise Unsupported(f"no source for {', '.join(dict.fromkeys(statements.classes.refused))}", _OTHERWISE)
    body = [f"{statements.name(t)} = {_input(t)}" for t in artifact.inputs] + lines_
    inputs, outputs = (", ".join(map(statements.name, tensors)) for tensors in (artifact.inputs, artifact.outputs))
    outputs = f"({outputs})" if len(artifact.outputs) > 1 else outputs
    body += ["", f"return keras.Model({f'[{inputs}]' if several else inputs}, {outputs}, name={quoted(artifact.name)})"]
    code = "\n".join([*body, *statements.classes.definitions])
    libraries = [name for name in ("layers", "ops") if f"{name}." in code]
    imports = ["import os", "", "import keras", *(["import numpy as np"] if "np.array(" in code else [])]
    imports += ["import tensorflow as tf"] if "tf." in code else []
    imports += [f"from keras import {', '.join(libraries)}"] if libraries else []
    return "\n".join([
        f"# The model {ascii(artifact.name)}, written by onnxbridge.",
        *lines([f"# Inputs: {', '.join(map(ascii, artifact.hub_inputs))}"]),
        *lines([f"# Outputs: {', '.join(map(ascii, artifact.hub_outputs))}"]),
        "# `load()` returns it with its weights.", "", *imports, "", "",
        *(f"{definition}\n\n" for definition in statements.classes.definitions), "def build():",
        '    """Return the model with new weights."""', *lines(body, 4), _LOAD,
    ])  # fmt: skip


def _input(tensor: Any) -> str:
    shape = tuple(tensor.shape)
    size = repr(shape[1:]) if shape and shape[0] is None else f"batch_shape={shape!r}"
    dtype = "" if tensor.dtype == "float32" else f", dtype={quoted(tensor.dtype)}"
    return f"keras.Input({size}, name={quoted(tensor.name)}{dtype})"
