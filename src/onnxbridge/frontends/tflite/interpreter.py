"""Runs a model in TensorFlow Lite's interpreter: ai-edge-litert's, or that of an installed TensorFlow."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxbridge import frameworks
from onnxbridge.errors import MissingFrameworkError, UsageError, VerificationError, first_line
from onnxbridge.formats.tflite.model import Signature, Tensor
from onnxbridge.formats.tflite.schema import PACKAGE
from onnxbridge.frontends.tflite import interpreted_file, states
from onnxbridge.hub.ir import strings
from onnxbridge.plugin_protocols import Arrays, Run


def is_installed() -> bool:
    return any(importlib.util.find_spec(package) is not None for package in (PACKAGE, "tensorflow"))


def require() -> None:
    """Check that an interpreter is installed.

    Raises:
        MissingFrameworkError: with the command that installs one.
    """
    if not is_installed():
        frameworks.missing(PACKAGE)


def runner(path: str | os.PathLike[str], key: str | None) -> Run:
    """Runs a signature. Variables are inputs and outputs; the states of layers of sequences start at zero in every run."""
    found = states.read(path, key)
    interpreter = _interpreter(path, found)
    return lambda feeds: _run(interpreter, found, feeds)


def watch(path: str | os.PathLike[str], key: str | None, feeds: Arrays, see: Callable[[str, Any], None]) -> bool:
    """Call `see` with every tensor of the graph that the interpreter shows; False for a signature of another graph than the
    first, whose tensors it does not show."""
    found = states.read(path, key)
    model, signature = found.model, found.signature
    if signature.graph:
        return False
    interpreter = _interpreter(path, found, experimental_preserve_all_tensors=True)
    _run(interpreter, found, feeds)
    for index, tensor in enumerate(model.graphs[0].tensors):
        if tensor.data is None and not tensor.is_variable:
            try:
                value = interpreter.get_tensor(found.variables.get(index, index))
            except ValueError:  # a tensor that no kernel has computed
                continue
            if np.iscomplexobj(value):
                see(f"{tensor.name}.real", value.real)
                see(f"{tensor.name}.imag", value.imag)
                continue
            see(tensor.name, value)
            if tensor.quantization is not None and not tensor.quantization.block:
                see(f"{tensor.name}.dequantized", _dequantized(value, tensor.quantization))
    return True


def _dequantized(value: Any, q: Any) -> np.ndarray[Any, Any]:
    along = [-1 if i == q.axis and len(q.scale) > 1 else 1 for i in range(value.ndim)]
    found = (value.astype(np.float32) - q.zero_point.reshape(along)) * q.scale.reshape(along)
    return np.asarray(found, np.float32).reshape(value.shape)


def _interpreter(path: str | os.PathLike[str], found: states.Stateless, **options: Any) -> Any:
    """A reference that computes without delegates, whose rounding depends on the processor.

    Raises:
        MissingFrameworkError: for custom operators without a kernel.
    """
    if importlib.util.find_spec(PACKAGE) is not None:
        from ai_edge_litert import interpreter as module
    else:
        from tensorflow.lite.python import interpreter as module

    try:
        with frameworks.quiet():
            content = interpreted_file.content(found)
            made = module.Interpreter(
                None if content else os.fspath(path), content, num_threads=1,
                experimental_op_resolver_type=module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, **options,
            )  # fmt: skip
            if any(o.is_custom for graph in found.model.graphs for o in graph.operators):
                _check_kernels(made)
            return made
    except (ValueError, RuntimeError) as error:
        raise VerificationError(f"TensorFlow Lite cannot load the model: {first_line(error)}") from error


def _check_kernels(interpreter: Any) -> None:
    try:
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        if found := re.search(r"unresolved custom op: ([\w.]+)", str(error)):
            name = found[1].rstrip(".")
            raise MissingFrameworkError(f"its interpreter has no kernel for the custom operator {name}") from error


def _run(interpreter: Any, found: states.Stateless, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    signature, variables = found.signature, found.variables
    missing = [name for name, _ in signature.inputs if name not in feeds]
    if missing:
        raise UsageError(f"the inputs are {', '.join(n for n, _ in signature.inputs)}; {', '.join(missing)} is missing")
    tensors = found.model.graphs[signature.graph].tensors
    inputs = {name: _as_run(feeds[name], tensors[index]) for name, index in signature.inputs}
    try:
        with frameworks.quiet():
            if signature.graph:
                return _run_signature(interpreter, signature, inputs)
            for name, index in signature.inputs:
                if tensors[index].type != "STRING":
                    interpreter.resize_tensor_input(index, np.shape(inputs[name]))
            interpreter.allocate_tensors()
            interpreter.reset_all_variables()
            for name, index in signature.inputs:
                interpreter.set_tensor(index, inputs[name])
            interpreter.invoke()
            return {name: _as_fed(interpreter.get_tensor(variables.get(index, index))) for name, index in signature.outputs}
    except (ValueError, RuntimeError) as error:
        raise VerificationError(f"TensorFlow Lite cannot run the model: {first_line(error)}") from error


def _run_signature(interpreter: Any, signature: Signature, inputs: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    found = interpreter.get_signature_runner(signature.key)(**inputs)
    return {name: _as_fed(found[name]) for name, _ in signature.outputs}


def _as_run(feed: Any, tensor: Tensor) -> np.ndarray[Any, Any]:
    """A feed as the interpreter takes it: complex numbers are fed as real and imaginary parts along the last axis."""
    array = np.asarray(feed)
    if not tensor.type.startswith("COMPLEX") or np.iscomplexobj(array):
        return array
    return np.asarray(array[..., 0] + 1j * array[..., 1], np.complex64 if tensor.type == "COMPLEX64" else np.complex128)


def _as_fed(result: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(result)
    if strings.is_strings(array):
        return strings.decoded(array)
    return np.stack([array.real, array.imag], axis=-1) if np.iscomplexobj(array) else array
