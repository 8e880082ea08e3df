"""Convolutions over three axes as sums of those over two: each slice of the kernel with the slices of the input that it meets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, first, last
from onnxbridge.runtime.executor.kernels.convolution import Ending, bent, convolution
from onnxbridge.runtime.executor.numpy.padding import Window


def volume(
    w: Array, bias: Array, window: Callable[[Array], Window], groups: int, ending: Ending, pool: Pool, unit: bool, begin: int
) -> Callable[[Array], Array]:
    """The function of x (N, C, D, H, W) for constant weights (M, C/groups, KD, KH, KW); `unit` as of a convolution.

    `begin` is a slice of the kernel that lies inside of the input for every slice of the result.
    """
    maps, depth = w.shape[0], w.shape[2]

    def across(x: Array) -> Window:
        whole = window(np.broadcast_to(np.float32(0), (*x.shape[:2], depth, *x.shape[2:])))
        return Window(whole.kernel[1:], whole.strides[1:], whole.dilations[1:], whole.pads[1:])

    biases = [bias if k == begin else np.zeros(maps, np.float32) for k in range(depth)]
    slices = [convolution(w[:, :, k], biases[k], across, groups, Ending(), pool, unit) for k in range(depth)]
    order = (begin, *(k for k in range(depth) if k != begin))

    def run(x: Array) -> Array:
        moves = window(x)
        (before, after), stride, dilation = moves.pads[0], moves.strides[0], moves.dilations[0]
        samples, _, size, *_ = x.shape
        out = (size + before + after - (depth - 1) * dilation - 1) // stride + 1
        if out < 1:
            raise ValueError(f"a kernel over {(depth - 1) * dilation + 1} slices does not fit {size + before + after} of them")
        _, *sizes, _ = slices[begin].shape_of(x[:, :, 0])  # type: ignore[attr-defined]
        claim((samples, out, *sizes, maps), np.float32)
        data, y = last(x, pool), pool.empty((samples, out, *sizes, maps))
        for n in range(samples):
            for k in order:
                offset = k * dilation - before
                low, end = max(0, -(offset // stride)), min(out, (size - 1 - offset) // stride + 1)
                if low < end:
                    at, into = low * stride + offset, y[n, low:end]
                    seen = first(data[n, at : at + (end - low - 1) * stride + 1 : stride])
                    slices[k](seen, None if k == begin else first(into), into=into)
        return first(y if ending == Ending() else bent(y, ending, pool))

    run.how = ("slices of the kernel", slices[0].how[1] * depth)  # type: ignore[attr-defined]
    return run


def inside(depth: int, pads: tuple[int, int], dilation: int) -> int | None:
    """A slice of a kernel that no padding meets at any place, None where there is none."""
    found = -(-pads[0] // dilation)
    return found if min(pads) >= 0 and found * dilation + pads[1] <= (depth - 1) * dilation else None
