"""Reads TensorFlow's and Keras' files. No user code in them is run."""

from __future__ import annotations

import os
import re
import sys
import weakref
import zipfile
import zlib
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import OnnxbridgeError, UnsafeFileError, UsageError
from onnxbridge.frameworks.tensorflow_errors import main_line
from onnxbridge.frontends.tensorflow import graph_files
from onnxbridge.frontends.tensorflow.saved_model import hdf5_checks, keras_2, operator_checks
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.hub.io.pinned_files import Pinned
from onnxbridge.hub.io.zip_archives import open_archive

# how Keras words security errors
_SECURITY_ERROR = re.compile(r"safe_mode|unsafe|not allowed|disallowed|security|KerasSaveable", re.IGNORECASE)
_MODULE = re.compile(r"'module': '(\w+)")


def load(path: str | os.PathLike[str]) -> Any:
    """The model in a file or folder: a Keras model, or a loaded SavedModel. No user code in it is run."""
    tf = frameworks.tensorflow()
    kind = detect_format(path)
    if kind in ("graphdef", "metagraph"):
        return graph_files.read(path, kind)
    pinned = Pinned(path)
    try:
        model = _load(tf, pinned.path, kind)
    except OnnxbridgeError as e:
        pinned.close()
        raise type(e)(pinned.shown(str(e))) from e
    except BaseException:
        pinned.close()
        raise
    weakref.finalize(model, pinned.close)  # functions of a SavedModel may read its assets when they are called
    return model


def _load(tf: Any, path: str, kind: str) -> Any:
    """The model at a path that stays what it is."""
    if kind == "savedmodel":
        operator_checks.check(path)
        try:
            with frameworks.quiet():  # it logs a traceback about an unreadable fingerprint, and continues
                return tf.saved_model.load(os.fspath(path))
        except (OSError, IndexError, tf.errors.OpError) as e:
            reason = f"its variables are missing or damaged ({main_line(e)})"
            raise UnsafeFileError(f"{os.fspath(path)}: {reason}; save the model again.") from e
        except Exception as e:
            return _by_signatures(tf, os.fspath(path), e)
    if kind == "keras":
        open_archive(path, "save the model again with model.save")
    return _load_keras(path, kind)


def _load_keras(path: str | os.PathLike[str], kind: str) -> Any:
    """The model in a Keras file, by Keras 3 or else by tf_keras, if that is installed."""
    import keras

    try:
        hdf5_checks.check(path, kind)
        try:
            with frameworks.quiet():
                return keras.saving.load_model(os.fspath(path), compile=False, safe_mode=True)
        except Exception as e:
            if _SECURITY_ERROR.search(str(e)) or _names_python(str(e)) or not keras_2.is_candidate(path, kind):
                raise
            with frameworks.quiet():
                found = keras_2.load(path)
            if found is None:
                raise
            return found
    except OnnxbridgeError:
        raise
    except (OSError, KeyError, IndexError, EOFError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile) as e:
        reason = main_line(e)
        raise UnsafeFileError(f"{os.fspath(path)}: is damaged ({reason}); get the file again or save the model again.") from e
    except Exception as e:
        text = str(e).split("Exception encountered: ")[-1]  # the error in an inner layer
        if _SECURITY_ERROR.search(text) and "lambda" in text.lower():
            raise UnsafeFileError(
                f"{os.fspath(path)}: contains Python code (such as a Lambda layer), which is not run; if you trust it, "
                "load the model and convert the live model."
            ) from e
        if _SECURITY_ERROR.search(text) or _names_python(text):
            reason = main_line(text or repr(e)).split(". ")[0].removesuffix(".")
            raise UnsafeFileError(f"{os.fspath(path)}: Keras rejects it as unsafe ({reason}); save the model again.") from e
        if "No model config" in text:
            raise UsageError(
                f"{os.fspath(path)}: contains weights only; build the model in Python, load_weights, and convert the live model"
            ) from e
        hint = "" if keras_2.is_installed() else "; if Keras 2 wrote it, install tf_keras (pip install tf_keras)"
        raise UsageError(f"{os.fspath(path)}: Keras cannot load it: {main_line(text or repr(e))}{hint}") from e


def _names_python(text: str) -> bool:
    """Whether what Keras could not find is a module of Python's standard library."""
    found = _MODULE.search(text)
    return found is not None and found[1] in sys.stdlib_module_names - {"builtins"}


def _by_signatures(tf: Any, path: str, cause: Exception) -> Any:
    """A SavedModel whose objects cannot be restored (old optimizers), loaded through its signatures."""
    from tensorflow.python.saved_model import load_v1_in_v2

    operator_checks.check(path, by_signatures=True)
    try:
        with frameworks.quiet():
            return load_v1_in_v2.load(path, tags=None)
    except Exception as e:
        raise UsageError(f"{path}: TensorFlow cannot load it: {main_line(cause)}") from e
