"""Keras 2 files, which tf_keras reads: their configuration is checked before, since tf_keras would import modules that it names
and run code of Lambda layers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.hub.io.zip_archives import content, open_archive

_MOST_TEXT = 64 << 20
_MODULES = re.compile(r"(tf_keras|keras)(\.\w+)*|builtins")
_CODE = frozenset({"Lambda", "__lambda__", "LambdaCallback"})
# functions of TensorFlow that run Python, or access files
_UNSAFE_FUNCTIONS = re.compile(r".*(py_func|numpy_function|\bio\.|raw_ops|saved_model|debugging|summary|\bdata\.|train\.).*")


def is_installed() -> bool:
    return importlib.util.find_spec("tf_keras") is not None


def is_candidate(path: str | os.PathLike[str], kind: str) -> bool:
    """Whether tf_keras is installed and may load a file.

    Raises:
        UnsafeFileError: if the file contains code, or names modules other than Keras' own.
    """
    if not is_installed():
        return False
    text = _configuration(path, kind)
    if text is None:
        return False
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return False
    for item in _dicts(config):
        name, module = item.get("class_name"), item.get("module")
        if name in _CODE or item.get("function_type") == "lambda":
            raise UnsafeFileError(
                f"{os.fspath(path)}: contains Python code (such as a Lambda layer), which is not run; if you trust it, "
                "load the model and convert the live model."
            )
        called = item.get("function") if isinstance(item.get("function"), str) else ""
        if (isinstance(module, str) and not _MODULES.fullmatch(module)) or _UNSAFE_FUNCTIONS.fullmatch(str(called)):
            what = module if isinstance(module, str) and not _MODULES.fullmatch(module) else called
            raise UnsafeFileError(f"{os.fspath(path)}: Keras rejects it as unsafe (it uses {what}); save the model again.")
    return True


def load(path: str | os.PathLike[str]) -> Any:
    """The model, None where tf_keras cannot load it either."""
    import tf_keras

    try:
        return tf_keras.models.load_model(os.fspath(path), compile=False, safe_mode=True)
    except Exception:
        return None


def _configuration(path: str | os.PathLike[str], kind: str) -> str | None:
    if kind == "keras":
        archive = open_archive(path, "save the model again with model.save")
        return (
            content(archive, "config.json", _MOST_TEXT).decode("utf-8", "replace") if "config.json" in archive.members else None
        )
    import h5py

    with h5py.File(os.fspath(path), "r") as file:
        found = file.attrs.get("model_config")
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _dicts(item: Any) -> Iterator[dict[str, Any]]:
    todo = [item]
    while todo:
        found = todo.pop()
        if isinstance(found, dict):
            yield found
            todo += found.values()
        elif isinstance(found, list):
            todo += found
