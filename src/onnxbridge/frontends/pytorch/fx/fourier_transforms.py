"""Decompositions of Fourier transforms that hold for any size.

PyTorch's own take sizes as constants: those of transforms over several axes to other sizes, and the scale of `norm="ortho"`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks

_OVER_THE_OTHER_AXES = {"fft": "fft", "ifft": "ifft", "rfft": "fft", "irfft": "ifft"}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Functions by operator, with the signature of the operator."""
    aten = frameworks.torch().ops.aten
    one = {name: _over_one_axis(name) for name in _OVER_THE_OTHER_AXES}
    found = {getattr(aten, f"fft_{name}").default: function for name, function in one.items()}
    for name, other in _OVER_THE_OTHER_AXES.items():
        for suffix, axes in (("2", (-2, -1)), ("n", None)):
            operator = getattr(aten, f"fft_{name}{suffix}").default
            found[operator] = _over_each_axis(name, suffix, axes, last=one[name], first=one[other])
    return found


def _over_one_axis(name: str) -> Callable[..., Any]:
    from torch._refs import fft

    function = getattr(fft, name)

    def transform(self: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        if norm != "ortho":
            return function(self, n, dim, norm)
        found = function(self, n, dim, "backward")
        count = n if n is not None else (self if name == "rfft" else found).shape[dim]
        root = (found.new_zeros(()).real + count).sqrt()
        return found * root if name[0] == "i" else found / root

    return transform


def _over_each_axis(
    name: str, suffix: str, axes: tuple[int, int] | None, *, last: Callable[..., Any], first: Callable[..., Any]
) -> Callable[..., Any]:
    """PyTorch's decomposition where it holds, else `last` over the last axis and `first` over the others.

    Real numbers are transformed over the last axis first, and become real again in the last step.
    """
    from torch._refs import fft

    def transform(self: Any, s: Any = None, dim: Any = axes, norm: Any = None) -> Any:
        if s is None and norm != "ortho":
            return getattr(fft, name + suffix)(self, s, dim, norm)
        along = list(dim) if dim is not None else list(range(-len(s), 0)) if s is not None else list(range(self.dim()))
        steps = [(first, a, n) for a, n in zip(along, [-1] * len(along) if s is None else s, strict=True)]
        steps[-1] = (last, *steps[-1][1:])
        for function, axis, size in steps if name[0] == "i" else reversed(steps):
            if isinstance(size, int) and size == -1:
                self = function(self, None, axis, norm)
            else:
                is_half = name == "irfft" and function is last
                self = function(_resized(self, axis, size // 2 + 1 if is_half else size), size, axis, norm)
        return self

    return transform


def _resized(x: Any, axis: int, size: Any) -> Any:
    """With zeros at the end of the axis, or without its last elements; PyTorch pads complex numbers by known sizes only."""
    torch = frameworks.torch()
    own = x.shape[axis]
    if isinstance(own, int) and isinstance(size, int) and size <= own:
        return x.narrow(axis, 0, size)
    # a comparison would fix which of the two is larger, and one element or none would be taken as a constant
    missing = torch.sym_max(size - own, 0) + 2
    zeros = x.new_zeros([missing if i == axis % x.dim() else n for i, n in enumerate(x.shape)])
    return torch.ops.aten.slice.Tensor(torch.cat([x, zeros], axis), axis, 0, size)
