"""Convolutions with constant weights, together with the BatchNormalization, factors, sum and activation that follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import activation, other, scalar, single
from onnxbridge.runtime.executor.fusion.plan_rewriter import Draft
from onnxbridge.runtime.executor.kernels.array_layout import Array
from onnxbridge.runtime.executor.kernels.convolution import Ending, convolution
from onnxbridge.runtime.executor.kernels.convolution_3d import inside, volume
from onnxbridge.runtime.executor.kernels.transposed_convolution import transposed
from onnxbridge.runtime.executor.numpy.padding import Window, spread, window
from onnxbridge.runtime.executor.plan import NOTHING, Step

_MOST_PLACES = 16  # between two inputs on an axis; each is a convolution of its own


def join(draft: Draft, pool: Pool) -> None:
    """Put native convolutions in the place of those in float32 over up to three dimensions, transposed ones over two."""
    for i, step in draft.steps("Conv", "ConvTranspose"):
        w, bias = (draft.constant(s) for s in (*step.sources[1:], NOTHING)[:2])
        known = single(w) and w.ndim in ((3, 4) if step.op == "ConvTranspose" else (3, 4, 5)) and w.size
        known = known and (len(step.sources) < 3 or step.sources[2] == NOTHING or single(bias))
        groups, back = step.attrs["group"], step.op == "ConvTranspose"
        if not known or groups < 1 or w.shape[0] % groups or tuple(step.attrs["kernel_shape"] or w.shape[2:]) != w.shape[2:]:
            continue
        if back:
            if set(step.attrs["dilations"] or (1,)) != {1} or max(step.attrs["strides"] or (1,)) > _MOST_PLACES:
                continue
            w = _by_map(w, groups)
        kernel, line = w.shape[2:], w.ndim == 3
        w = w[:, :, None] if line else w  # a line is a picture of one row
        deep = len(kernel) == 3
        if deep and _begin(step, w.shape[2]) is None:
            continue
        chain, slot, scale, shift = [i], step.targets[0], np.ones(w.shape[0]), np.zeros(w.shape[0])
        if bias is not None:
            shift = bias.astype(np.float64)
        while (follow := draft.user(slot)) is not None and (change := _factors(draft, follow[1], slot, w.shape[0])) is not None:
            scale, shift = scale * change[0], shift * change[0] + change[1]
            chain.append(follow[0])
            slot = follow[1].targets[0]
        sources = [step.sources[0]]
        follow = draft.user(slot)
        with_sum = not back and not line and not deep
        if with_sum and follow is not None and follow[1].op in ("Add", "Sum") and (more := other(follow[1], slot)) != NOTHING:
            chain.append(follow[0])
            slot = follow[1].targets[0]
            sources.append(more)
        ending, names = Ending(), [step.op]
        follow = draft.user(slot)
        if follow is not None and (found := activation(draft, follow[1])) is not None:
            chain.append(follow[0])
            slot, ending = follow[1].targets[0], found
            names.append(follow[1].op)
        weights = w if (scale == 1).all() else (w * scale.reshape(-1, *(1,) * (w.ndim - 1))).astype(np.float32)
        if deep:
            unit = all(set((step.attrs[name] or (1,))[-2:]) == {1} for name in ("strides", "dilations"))
            begin = _begin(step, w.shape[2]) or 0
            run = volume(weights, shift.astype(np.float32), moves_of(step, kernel), groups, ending, pool, unit, begin)
        elif back:
            strides = (1, *(step.attrs["strides"] or (1,) * len(kernel)))[-2:]
            run = transposed(weights, shift.astype(np.float32), _spread_of(step, kernel), strides, groups, ending, pool)
        else:
            unit = all(set(step.attrs[name] or (1,)) == {1} for name in ("strides", "dilations"))
            run = convolution(weights, shift.astype(np.float32), moves_of(step, kernel), groups, ending, pool, unit)
        checked = _single_only(_of_lines(run) if line else run, w.shape[1] * groups, len(kernel))
        if not back and len(kernel) == 2:
            checked.shape_of = run.shape_of  # type: ignore[attr-defined]
        draft.join(chain, "+".join(names), checked, sources, [slot], how=run.how)  # type: ignore[attr-defined]


def _begin(step: Step, depth: int) -> int | None:
    """The slice of a kernel over three axes that its convolution begins with, None where the rule has to do it."""
    a = step.attrs
    pads = a["pads"] or (0,) * 6
    if a["auto_pad"] not in ("NOTSET", "VALID") or len(pads) != 6:
        return None
    return inside(depth, (0, 0) if a["auto_pad"] == "VALID" else (pads[0], pads[3]), (a["dilations"] or (1,))[0])


def _by_map(w: Array, groups: int) -> Array:
    """Weights (C, M/groups, KH, KW) as (M, C/groups, KH, KW)."""
    channels, columns, *kernel = w.shape
    each = w.reshape(groups, channels // groups, columns, *kernel).swapaxes(1, 2)
    return each.reshape(groups * columns, channels // groups, *kernel)


def _spread_of(step: Step, kernel: tuple[int, ...]) -> Callable[[Array], tuple[Window, tuple[int, ...]]]:
    """How the kernel of a ConvTranspose moves over its output."""
    a = step.attrs

    def moves(x: Array) -> tuple[Window, tuple[int, ...]]:
        given = (a[n] for n in ("strides", "pads", "dilations", "auto_pad", "output_padding", "output_shape"))
        found, out = spread(x if len(kernel) == 2 else x[:, :, 0], kernel, *given)
        return _picture(found), out if len(kernel) == 2 else (1, *out)

    return moves


def _single_only(run: Callable[..., Array], channels: int, space: int) -> Callable[..., Array]:
    def checked(x: Array, *more: Array, into: Array | None = None) -> Array:
        if x.ndim != 2 + space or x.shape[1] != channels or x.dtype != np.float32:
            raise ValueError(f"a convolution of {channels} channels in {space} dimensions does not fit {x.dtype} of {x.shape}")
        return run(x, *more) if into is None else run(x, *more, into=into)

    return checked


def _of_lines(run: Callable[..., Array]) -> Callable[..., Array]:
    """A convolution of pictures as one of lines (N, C, W)."""

    return lambda x: run(x[:, :, None])[:, :, 0]


def _picture(w: Window) -> Window:
    """The window over pictures that lines are taken for."""
    return w if len(w.kernel) > 1 else Window((1, *w.kernel), (1, *w.strides), (1, *w.dilations), ((0, 0), *w.pads))


def moves_of(step: Step, kernel: tuple[int, ...]) -> Callable[[Array], Window]:
    """How the kernel of a Conv moves over an input, which is a picture of one row where the kernel has one dimension."""
    a = step.attrs

    def moves(x: Array) -> Window:
        seen = x[:, :, 0] if len(kernel) == 1 else x
        return _picture(window(seen, kernel, a["strides"], a["pads"], a["dilations"], a["auto_pad"]))

    return moves


def _factors(draft: Draft, step: Step, slot: int, channels: int) -> tuple[Any, Any] | None:
    """What a step with constant operands does to each channel: times the first, plus the second."""
    if step.op == "BatchNormalization":
        values = [draft.constant(s) for s in step.sources[1:]]
        if step.sources[0] != slot or not all(single(v) for v in values) or step.attrs["training_mode"]:
            return None
        gamma, beta, mean, variance = (v.astype(np.float64) for v in values)
        factor = gamma / np.sqrt(variance + np.float32(step.attrs["epsilon"]))
        return factor, beta - mean * factor
    if step.op in ("Mul", "Add"):
        value = draft.constant(other(step, slot))
        if scalar(value) is None and not (single(value) and value.shape in ((channels, 1, 1), (1, channels, 1, 1))):
            return None
        each = np.broadcast_to(value.astype(np.float64).reshape(-1), (channels,))
        return (each, 0.0) if step.op == "Mul" else (1.0, each)
    return None


def affine(draft: Draft, step: Step, slot: int) -> tuple[Any, Any] | None:
    """The factors of a BatchNormalization whose input is not a convolution's."""
    scale = draft.constant(step.sources[1])
    return _factors(draft, step, slot, scale.shape[0]) if single(scale) else None


factors = _factors
