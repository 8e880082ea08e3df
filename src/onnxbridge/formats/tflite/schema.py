"""The classes that flatc generated from TensorFlow Lite's schema: those of ai-edge-litert, or of an installed TensorFlow.

Neither framework's runtime is imported.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from onnxbridge import frameworks

PACKAGE = "ai_edge_litert"


@functools.cache
def schema() -> ModuleType:
    """The module of generated classes.

    Raises:
        MissingFrameworkError: if neither package is installed.
    """
    path = _file()
    if path is None:
        frameworks.missing(PACKAGE)
    name = "onnxbridge.formats.tflite._generated_schema"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def is_installed() -> bool:
    """Whether one of the packages with the schema is installed."""
    return _file() is not None


def _file() -> Path | None:
    for package, inner in ((PACKAGE, "."), ("tensorflow", "lite/python")):
        found = importlib.util.find_spec(package)
        for folder in (found.submodule_search_locations or ()) if found is not None else ():
            path = Path(folder, inner, "schema_py_generated.py")
            if path.is_file():
                return path
    return None


@functools.cache
def names(enum: str) -> dict[int, str]:
    """The names of an enumeration by number: {0: "SAME", 1: "VALID"} for "Padding"."""
    found = vars(getattr(schema(), enum, object))
    return {value: name for name, value in found.items() if isinstance(value, int) and not name.startswith("_")}


def snake_case(name: str) -> str:
    """The schema's own name of a field, which the generated classes write in camel case: "strideW" as "stride_w"."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])|(?<=[A-Z])([A-Z])(?=[a-z])", lambda m: "_" + (m[1] or m[2]), name).lower()
