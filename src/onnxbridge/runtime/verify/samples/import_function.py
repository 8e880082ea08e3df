"""Functions of the user's own, named MODULE:FUNCTION."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from onnxbridge.errors import UsageError, first_line


def is_function_name(text: str) -> bool:
    """Whether a text has the form MODULE:FUNCTION."""
    module, _, function = text.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *function.split(".")))


def import_function(name: str) -> Any:
    """The object that MODULE:FUNCTION names; modules of the current folder are found, as with `python -m`.

    Raises:
        UsageError: if there is no such module or function, or the import fails.
    """
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        raise UsageError(f"{name}: there is no module {e.name!r}") from e
    except (Exception, SystemExit) as e:
        raise UsageError(f"{name}: the import fails with {type(e).__name__}: {first_line(e)}") from e
    finally:
        sys.path.remove(os.getcwd())
    for part in function.split("."):
        if not hasattr(found, part):
            public = [n for n, v in vars(found).items() if callable(v) and not n.startswith("_")]
            raise UsageError(f"{name}: {module} has no {part!r}" + (f"; it has {', '.join(public[:5])}" if public else ""))
        found = getattr(found, part)
    return found
