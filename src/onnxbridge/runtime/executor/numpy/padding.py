"""Padding, strides and dilations of convolution and pooling, from ONNX attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.numpy.dtypes import Array
from onnxbridge.runtime.executor.numpy.kernels.windows import extent, out_sizes, same_pads

Ints = Sequence[int] | None


@dataclass(frozen=True)
class Window:
    """Strides, padding and dilations over the spatial axes, with defaults filled in."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for what, numbers in (("kernel", self.kernel), ("strides", self.strides), ("dilations", self.dilations)):
            if any(n < 1 for n in numbers):
                raise ValueError(f"the {what} {list(numbers)} must be 1 at least")

    @property
    def moves(self) -> dict[str, tuple[int, ...] | tuple[tuple[int, int], ...]]:
        """As keyword arguments of the kernels."""
        return {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}


def window(x: Array, kernel: Sequence[int], strides: Ints, pads: Ints, dilations: Ints, auto_pad: str) -> Window:
    """The window over x (N, C, *D); refuses one that exceeds the budget."""
    sizes, space = x.shape[2:], x.ndim - 2
    kernel = tuple(kernel)
    if len(kernel) != space:
        raise ValueError(f"a kernel of {len(kernel)} dimensions does not fit data of {space}")
    strides, dilations = tuple(strides or (1,) * space), tuple(dilations or (1,) * space)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        found = tuple(same_pads(sizes, kernel, strides, dilations, lower=auto_pad == "SAME_LOWER"))
    elif auto_pad in ("NOTSET", "VALID"):
        found = pairs(pads, space) if auto_pad == "NOTSET" else ((0, 0),) * space
    else:
        raise Unsupported(f"auto_pad {auto_pad!r}")
    claim((*x.shape[:2], *(n + max(0, b) + max(0, a) for n, (b, a) in zip(sizes, found, strict=True))), x.dtype)
    return Window(kernel, strides, dilations, found)


def spread(
    x: Array,
    kernel: Sequence[int],
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    auto_pad: str,
    output_padding: Ints,
    output_shape: Ints,
) -> tuple[Window, tuple[int, ...]]:
    """The window of a transposed convolution of x (N, C, *D), whose pads are cut off, and the sizes of its output."""
    space = x.ndim - 2
    strides, dilations = tuple(strides or (1,) * space), tuple(dilations or (1,) * space)
    extra = tuple(output_padding or (0,) * space)
    full = [(n - 1) * s + e for n, s, e in zip(x.shape[2:], strides, extent(kernel, dilations), strict=True)]
    if output_shape is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if output_shape is None:
        cut = pairs(pads if auto_pad == "NOTSET" else None, space)
    else:
        wanted = list(output_shape)[-space:]
        cut = tuple(_cut(n + a - o, auto_pad) for n, a, o in zip(full, extra, wanted, strict=True))
    out = tuple(n - b - e + a for n, (b, e), a in zip(full, cut, extra, strict=True))
    for sizes in (full, out):
        claim((x.shape[0], 1, *sizes), x.dtype)
    return Window(tuple(kernel), strides, dilations, cut), out


def _cut(total: int, auto_pad: str) -> tuple[int, int]:
    """How much is cropped at the start and at the end; where the output has to be larger, the end is extended."""
    half = max(0, total) // 2
    return (half, total - half) if auto_pad == "SAME_UPPER" or total < 0 else (total - half, half)


def pairs(pads: Ints, space: int) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis, from ONNX's pads (all starts, then all ends)."""
    if not pads:
        return ((0, 0),) * space
    return tuple(zip(pads[:space], pads[space:], strict=True))


def claim_output(x: Array, channels: int, w: Window, ceil_mode: bool = False) -> None:
    """Refuse an output beyond the budget."""
    out = out_sizes(x.shape[2:], w.kernel, w.strides, w.pads, w.dilations, ceil_mode=ceil_mode)
    claim((x.shape[0], channels, *out), x.dtype)
