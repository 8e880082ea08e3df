"""sympy is imported by onnx_ir for arithmetic on symbolic sizes, which hardly any model needs; it takes longer than all the rest.

A finder puts off running those two modules until something in them is asked for. It acts only while onnx_ir is being
imported: whoever imports sympy by himself gets it as always.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_POSTPONED = frozenset({"sympy", "onnx_ir._symbolic_shapes"})


class _Finder:
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname not in _POSTPONED or not _importing("onnx_ir._core"):
            return None
        from importlib.machinery import PathFinder
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LazyLoader(spec.loader)
        return spec


def _importing(name: str) -> bool:
    module = sys.modules.get(name)
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def install() -> None:
    """Put the finder first, once."""
    if "onnx_ir" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
