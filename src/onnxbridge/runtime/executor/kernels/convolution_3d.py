"""3-d convolutions as sums of 2-d ones: each slice of the kernel with the slices of the input that it covers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, first, last
from onnxbridge.runtime.executor.kernels.convolution import Epilogue, apply_epilogue, convolution
from onnxbridge.runtime.executor.numpy.padding import Window


def convolution_3d(
    w: Array, bias: Array, window: Callable[[Array], Window], groups: int, epilogue: Epilogue, pool: Pool, unit: bool, inner: int
) -> Callable[[Array], Array]:
    """The function of x (N, C, D, H, W) for constant weights (M, C/groups, KD, KH, KW); `unit` as of a convolution.

    `inner` is a slice of the kernel that lies inside of the input for every slice of the result.
    """
    maps, depth = w.shape[0], w.shape[2]

    def across(x: Array) -> Window:
        whole = window(np.broadcast_to(np.float32(0), (*x.shape[:2], depth, *x.shape[2:])))
        return Window(whole.kernel[1:], whole.strides[1:], whole.dilations[1:], whole.pads[1:])

    biases = [bias if k == inner else np.zeros(maps, np.float32) for k in range(depth)]
    slices = [convolution(w[:, :, k], biases[k], across, groups, Epilogue(), pool, unit) for k in range(depth)]
    order = (inner, *(k for k in range(depth) if k != inner))

    def run(x: Array) -> Array:
        moves = window(x)
        (before, after), stride, dilation = moves.pads[0], moves.strides[0], moves.dilations[0]
        samples, _, size, *_ = x.shape
        out = (size + before + after - (depth - 1) * dilation - 1) // stride + 1
        if out < 1:
            raise ValueError(f"a kernel over {(depth - 1) * dilation + 1} slices does not fit {size + before + after} of them")
        _, *sizes, _ = slices[inner].shape_of(x[:, :, 0])  # type: ignore[attr-defined]
        claim((samples, out, *sizes, maps), np.float32)
        data, y = last(x, pool), pool.empty((samples, out, *sizes, maps))
        for n in range(samples):
            for k in order:
                offset = k * dilation - before
                low, end = max(0, -(offset // stride)), min(out, (size - 1 - offset) // stride + 1)
                if low < end:
                    at, into = low * stride + offset, y[n, low:end]
                    seen = first(data[n, at : at + (end - low - 1) * stride + 1 : stride])
                    slices[k](seen, None if k == inner else first(into), into=into)
        return first(y if epilogue == Epilogue() else apply_epilogue(y, epilogue, pool))

    run.how = ("slices of the kernel", slices[0].how[1] * depth)  # type: ignore[attr-defined]
    return run


def inner_slice(depth: int, pads: tuple[int, int], dilation: int) -> int | None:
    """A slice of a kernel that never overlaps the padding, None where there is none."""
    found = -(-pads[0] // dilation)
    return found if min(pads) >= 0 and found * dilation + pads[1] <= (depth - 1) * dilation else None
