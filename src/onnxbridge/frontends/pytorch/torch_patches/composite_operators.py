"""Patch: composite operators whose own kernels cannot be traced, or not at every size."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks


# Checked on PyTorch 2.13.0: the kernel of tensor_split compares each part's number with the remainder of the size, so that the
# program is right only for sizes with the remainder of the example's; the kernel of max_pool1d takes the size as a constant; the
# kernel of cov compares tensors as Python values.
@contextlib.contextmanager
def traceable_composite_operators() -> Iterator[None]:
    """Decompose them into operators that are traced at any size."""
    torch = frameworks.torch()
    aten, key = torch.ops.aten, torch._C.DispatchKey.CompositeImplicitAutograd
    kernels = {aten.tensor_split.sections: _tensor_split, aten.max_pool1d.default: _max_pool1d, aten.cov.default: _cov}
    before = {op: op.py_kernels.get(key) for op in kernels}
    try:
        for op, kernel in kernels.items():
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()
        yield
    finally:
        for op, own in before.items():
            op.py_kernels.pop(key, None)
            if own is not None:
                op.py_kernels[key] = own
            op._dispatch_cache.clear()


def _tensor_split(self: Any, sections: int, dim: int = 0) -> list[Any]:
    """The first parts are longer by one where the size is not a multiple of their number."""
    torch = frameworks.torch()
    size = self.shape[dim]
    small, longer = size // sections, size % sections
    starts = [i * small + torch.sym_min(longer, i) for i in range(sections)]
    return [torch.ops.aten.slice.Tensor(self, dim, a, b) for a, b in zip(starts, [*starts[1:], size], strict=True)]


def _max_pool1d(
    self: Any, kernel_size: list[int], stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    """A pooling of images of one row."""
    aten = frameworks.torch().ops.aten
    kernel, steps, pads, distances = (1, *kernel_size), (1, *(stride or kernel_size)), (0, *padding), (1, *dilation)
    return aten.max_pool2d.default(self.unsqueeze(-2), kernel, steps, pads, distances, ceil_mode).squeeze(-2)


def _cov(self: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """The covariance of the rows, whose observations count `fweights` times and have the weights `aweights`.

    https://docs.pytorch.org/docs/stable/generated/torch.cov.html
    """
    rows = self if self.dim() == 2 else self.reshape(1, -1)
    given = [w for w in (fweights, aweights) if w is not None]
    if not given:
        total = rows.new_zeros(()) + rows.shape[1]
        centered = weighted = rows - rows.sum(1, keepdim=True) / total
        count = total - correction
    else:
        weights = given[0] if len(given) == 1 else given[0] * given[1]
        total = weights.sum()
        centered = rows - (rows * weights).sum(1, keepdim=True) / total
        weighted = centered * weights
        lost = correction if aweights is None else correction * (weights * aweights).sum() / total
        count = total - lost
    products = weighted @ centered.conj().t()
    return (products / count.real.clamp(min=0) if count.is_complex() else products / count.clamp(min=0)).squeeze()
