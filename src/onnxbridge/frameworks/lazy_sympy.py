"""Lazy import of sympy, which onnx_ir imports for arithmetic on symbolic sizes.

Few models need it, and it takes longer to import than everything else. A meta path finder defers executing the modules until the
first access to one of their attributes. It is active only during the import of onnx_ir; other imports of sympy are not affected.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_LAZY_MODULES = frozenset({"sympy", "onnx_ir._symbolic_shapes"})


class _LazyFinder:
    """A meta path finder that loads the modules in `_LAZY_MODULES` lazily."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in _LAZY_MODULES or not _is_importing("onnx_ir._core"):
            return None
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LazyLoader(spec.loader)
        return spec


def _is_importing(name: str) -> bool:
    module = sys.modules.get(name)
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def install() -> None:
    """Insert the finder at the front of `sys.meta_path`, once."""
    if "onnx_ir" not in sys.modules and not any(isinstance(finder, _LazyFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LazyFinder())
