"""Patch: operators whose own kernels cannot be traced, or not at every size or dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks


# Checked on PyTorch 2.13.0: the kernel of tensor_split compares each part's number with the remainder of the size, so that the
# program is right only for sizes with the remainder of the example's; the kernel of max_pool1d takes the size as a constant; the
# kernel of cov compares tensors as Python values; _grouped_mm computes float32, too, but is traced in bfloat16 only.
@contextlib.contextmanager
def traceable_composite_operators() -> Iterator[None]:
    """Decompose them into operators that are traced at any size, or infer the result at any dtype."""
    torch = frameworks.torch()
    aten, composite, meta = torch.ops.aten, torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Meta
    kernels = {
        (aten.tensor_split.sections, composite): _tensor_split,
        (aten.max_pool1d.default, composite): _max_pool1d,
        (aten.cov.default, composite): _cov,
    }
    if hasattr(aten, "_grouped_mm"):  # not before PyTorch 2.8
        kernels[aten._grouped_mm.default, meta] = _grouped_mm_result
    before = {(op, key): op.py_kernels.get(key) for op, key in kernels}
    try:
        for (op, key), kernel in kernels.items():
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()
        yield
    finally:
        for (op, key), own in before.items():
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


def _grouped_mm_result(self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """An empty result: a matrix where one operand is a batch, else a batch of the groups or of the products."""
    sizes = [self.shape[-2], mat2.shape[-1]]
    if self.dim() == mat2.dim():
        sizes = [offs.shape[0] if self.dim() == 2 else self.shape[0], *sizes]
    return self.new_empty(sizes, dtype=out_dtype or self.dtype)
