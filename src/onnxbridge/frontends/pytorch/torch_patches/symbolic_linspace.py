"""Patch: `linspace` with a number of steps that is a dynamic size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks


# Checked on PyTorch 2.13.0: the operator declares `steps` as an int, so that a trace takes a size as a constant.
@contextlib.contextmanager
def symbolic_linspace() -> Iterator[None]:
    """Compute `linspace` from `arange` where the number of steps is symbolic."""
    torch = frameworks.torch()
    from torch.overrides import TorchFunctionMode

    functions = (torch.linspace, torch.ops.aten.linspace.default)

    class Mode(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func in functions:
                named = dict(zip(("start", "end", "steps"), args, strict=False)) | kwargs
                if isinstance(named["steps"], torch.SymInt):
                    return _linspace(named["start"], named["end"], named["steps"], named.get("dtype"))
            return func(*args, **kwargs)

    with Mode():
        yield


def _linspace(start: Any, end: Any, steps: Any, dtype: Any) -> Any:
    """As PyTorch's kernel: the first half counts from the start, the second from the end; integers are computed in float64."""
    torch = frameworks.torch()
    dtype = dtype or torch.get_default_dtype()
    kind = dtype if dtype.is_floating_point or dtype.is_complex else torch.float64
    positions = torch.arange(steps, dtype=kind)
    start, end = (x.to(kind) if isinstance(x, torch.Tensor) else torch.zeros((), dtype=kind) + x for x in (start, end))
    step = (end - start) / (torch.zeros((), dtype=kind) + torch.sym_max(steps - 1, 1))
    first = positions < steps // 2
    return torch.where(first, start + step * positions, end - step * (steps - 1 - positions)).to(dtype)
