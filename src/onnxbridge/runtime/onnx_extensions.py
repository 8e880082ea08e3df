"""Operators of onnxruntime-extensions (the domain ai.onnx.contrib), where that package is installed."""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxbridge.errors import VerificationError

DOMAIN = "ai.onnx.contrib"
PACKAGE = "onnxruntime_extensions"


def is_installed() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


def load() -> None:
    """Load the package, if it is installed, before another library that has the same symbols (TensorFlow) is loaded."""
    if is_installed():
        importlib.import_module(PACKAGE)


def register(options: onnxruntime.SessionOptions, model: Any) -> None:
    """Make the operators available to a session, if the model uses them and the package is installed.

    Raises:
        VerificationError: if another library, loaded before, breaks its regular expressions.
    """
    if not _domains(model) & {DOMAIN} or not is_installed():
        return
    if not _replaces():
        raise VerificationError(
            "the regular expressions of onnxruntime-extensions do not work where TensorFlow was imported before; import "
            "onnxruntime_extensions first"
        )
    _register(options)


def _register(options: onnxruntime.SessionOptions) -> None:
    options.register_custom_ops_library(importlib.import_module(PACKAGE).get_library_path())


def _domains(model: Any) -> set[str]:
    if isinstance(model, onnx.ModelProto):
        return {o.domain for o in model.opset_import}
    return set(model.opset_imports) if isinstance(model, ir.Model) else set()


@functools.cache
def _replaces() -> bool:
    """Whether a regular expression is replaced here."""
    if "tensorflow" not in sys.modules:
        return True
    helper = onnx.helper
    node = helper.make_node("StringRegexReplace", ["x", "pattern", "rewrite"], ["y"], domain=DOMAIN)
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.STRING, [1]) for n in ("x", "pattern", "rewrite", "y")]
    graph = helper.make_graph([node], "g", ends[:3], ends[3:])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    options = onnxruntime.SessionOptions()
    _register(options)
    session = onnxruntime.InferenceSession(
        helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString(), options
    )
    feeds = {"x": ["a b"], "pattern": [" "], "rewrite": ["-"]}
    (found,) = session.run(None, {k: np.array(v, object) for k, v in feeds.items()})
    return bool(found.tolist() == ["a-b"])
