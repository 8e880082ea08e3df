"""Convolutions with constant weights, together with the BatchNormalization, factors, sum and activation that follow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import Chain, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels.array_layout import Array
from onnxbridge.runtime.executor.kernels.convolution import convolution
from onnxbridge.runtime.executor.kernels.convolution_3d import convolution_3d, inner_slice
from onnxbridge.runtime.executor.kernels.transposed_convolution import transposed_convolution
from onnxbridge.runtime.executor.numpy.padding import Window, spread, window
from onnxbridge.runtime.executor.plan import NOTHING, Step

_MAX_STRIDE = 16  # each phase is a convolution of its own


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace convolutions in float32 over up to three dimensions, and transposed ones over two, by kernels."""
    for i, step in rewriter.steps("Conv", "ConvTranspose"):
        w, bias = (rewriter.constant(s) for s in (*step.sources[1:], NOTHING)[:2])
        known = single(w) and w.ndim in ((3, 4) if step.op == "ConvTranspose" else (3, 4, 5)) and w.size
        known = known and (len(step.sources) < 3 or step.sources[2] == NOTHING or single(bias))
        groups, is_transposed = step.attrs["group"], step.op == "ConvTranspose"
        if not known or groups < 1 or w.shape[0] % groups or tuple(step.attrs["kernel_shape"] or w.shape[2:]) != w.shape[2:]:
            continue
        if is_transposed:
            if set(step.attrs["dilations"] or (1,)) != {1} or max(step.attrs["strides"] or (1,)) > _MAX_STRIDE:
                continue
            w = _by_output_channel(w, groups)
        kernel, is_1d = w.shape[2:], w.ndim == 3
        w = w[:, :, None] if is_1d else w  # a 1-d convolution is a 2-d one of a single row
        is_3d = len(kernel) == 3
        if is_3d and _first_slice(step, w.shape[2]) is None:
            continue
        chain = Chain(rewriter, i, step)
        scale, shift = chain.factors(np.ones(w.shape[0]), np.zeros(w.shape[0]) if bias is None else bias.astype(np.float64))
        sources = [step.sources[0], *([] if is_transposed or is_1d or is_3d else chain.addend())]
        epilogue = chain.activation()
        weights = w if (scale == 1).all() else (w * scale.reshape(-1, *(1,) * (w.ndim - 1))).astype(np.float32)
        if is_3d:
            unit = all(set((step.attrs[name] or (1,))[-2:]) == {1} for name in ("strides", "dilations"))
            first = _first_slice(step, w.shape[2]) or 0
            run = convolution_3d(weights, shift.astype(np.float32), moves_of(step, kernel), groups, epilogue, pool, unit, first)
        elif is_transposed:
            strides = (1, *(step.attrs["strides"] or (1,) * len(kernel)))[-2:]
            run = transposed_convolution(
                weights, shift.astype(np.float32), _transposed_window(step, kernel), strides, groups, epilogue, pool
            )
        else:
            unit = all(set(step.attrs[name] or (1,)) == {1} for name in ("strides", "dilations"))
            run = convolution(weights, shift.astype(np.float32), moves_of(step, kernel), groups, epilogue, pool, unit)
        checked = _checked(_as_1d(run) if is_1d else run, w.shape[1] * groups, len(kernel))
        rewriter.fuse(chain.steps, "+".join(chain.names), checked, sources, [chain.result], how=run.how)  # type: ignore[attr-defined]


def _first_slice(step: Step, depth: int) -> int | None:
    """The slice of a 3-d kernel that its convolution starts with, None where the rule is needed."""
    a = step.attrs
    pads = a["pads"] or (0,) * 6
    if a["auto_pad"] not in ("NOTSET", "VALID") or len(pads) != 6:
        return None
    return inner_slice(depth, (0, 0) if a["auto_pad"] == "VALID" else (pads[0], pads[3]), (a["dilations"] or (1,))[0])


def _by_output_channel(w: Array, groups: int) -> Array:
    """Weights (C, M/groups, KH, KW) as (M, C/groups, KH, KW)."""
    channels, columns, *kernel = w.shape
    each = w.reshape(groups, channels // groups, columns, *kernel).swapaxes(1, 2)
    return each.reshape(groups * columns, channels // groups, *kernel)


def _transposed_window(step: Step, kernel: tuple[int, ...]) -> Callable[[Array], tuple[Window, tuple[int, ...]]]:
    """The window of a ConvTranspose over its output."""
    a = step.attrs

    def moves(x: Array) -> tuple[Window, tuple[int, ...]]:
        given = (a[n] for n in ("strides", "pads", "dilations", "auto_pad", "output_padding", "output_shape"))
        found, out = spread(x if len(kernel) == 2 else x[:, :, 0], kernel, *given)
        return _as_2d(found), out if len(kernel) == 2 else (1, *out)

    return moves


def _checked(run: Callable[..., Array], channels: int, space: int) -> Callable[..., Array]:
    def checked(x: Array, *more: Array) -> Array:
        if x.ndim != 2 + space or x.shape[1] != channels or x.dtype != np.float32:
            raise ValueError(f"a convolution of {channels} channels in {space} dimensions does not fit {x.dtype} of {x.shape}")
        return run(x, *more)

    return checked


def _as_1d(run: Callable[..., Array]) -> Callable[..., Array]:
    """A 2-d convolution as a 1-d one (N, C, W)."""

    return lambda x: run(x[:, :, None])[:, :, 0]


def _as_2d(w: Window) -> Window:
    """A window in one dimension as one in two."""
    return w if len(w.kernel) > 1 else Window((1, *w.kernel), (1, *w.strides), (1, *w.dilations), ((0, 0), *w.pads))


def moves_of(step: Step, kernel: tuple[int, ...]) -> Callable[[Array], Window]:
    """The window of a Conv as a function of its input, which has a single row where the kernel is 1-d."""
    a = step.attrs

    def moves(x: Array) -> Window:
        seen = x[:, :, 0] if len(kernel) == 1 else x
        return _as_2d(window(seen, kernel, a["strides"], a["pads"], a["dilations"], a["auto_pad"]))

    return moves
