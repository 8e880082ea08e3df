"""Layers of LSTM, GRU and RNN with constant weights and the usual activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.fusion.epilogues import single
from onnxbridge.runtime.executor.fusion.plan_rewriter import PlanRewriter
from onnxbridge.runtime.executor.kernels import integers
from onnxbridge.runtime.executor.kernels.array_layout import copy
from onnxbridge.runtime.executor.kernels.recurrent import Layer, layer
from onnxbridge.runtime.executor.kernels.recurrent_quantized import lstm_on_bytes
from onnxbridge.runtime.executor.plan import NOTHING, Step

_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "activation_alpha": (None,), "activation_beta": (None,), "clip": (None,), "input_forget": (0,), "layout": (0,),
    "linear_before_reset": (1,),
}  # fmt: skip
_ACTIVATIONS: dict[str, list[tuple[str, ...]]] = {
    "LSTM": [("Sigmoid", "Tanh", "Tanh")], "GRU": [("Sigmoid", "Tanh")], "RNN": [("Tanh",), ("Relu",)],
}  # fmt: skip
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def rewrite(rewriter: PlanRewriter, pool: Pool) -> None:
    """Replace recurrent layers with the default options by kernels."""
    for i, step in rewriter.steps(*_ACTIVATIONS):
        w, r = (rewriter.constant(s) for s in step.sources[1:3])
        b, lengths, h, c, peephole = (*step.sources[3:], *(NOTHING,) * 5)[:5]
        bias = rewriter.constant(b)
        known = single(w) and single(r) and (b == NOTHING or single(bias)) and lengths == peephole == NOTHING
        supported = all(step.attrs.get(name, values[0]) in values for name, values in _SUPPORTED.items())
        directions = _DIRECTIONS.get(step.attrs["direction"], ())
        activation = _activation(step.op, step, len(directions))
        if known and supported and activation and len(w) == len(directions):
            relu = activation == ("Relu",)
            layers = [
                layer(step.op, w[k], r[k], None if bias is None else bias[k], reverse, pool, relu)
                for k, reverse in enumerate(directions)
            ]
            run = _run(step.op, layers, [0 if reverse else -1 for reverse in directions], w.shape[-1], r.shape[-1], pool)
            rewriter.fuse([i], step.op, run, [step.sources[0], h, c], step.targets)
    if integers.available():
        for i, step in rewriter.steps("com.microsoft::DynamicQuantizeLSTM"):
            _quantized_lstm(rewriter, i, step, pool)


def _quantized_lstm(rewriter: PlanRewriter, i: int, step: Step, pool: Pool) -> None:
    """An LSTM that quantizes what it multiplies with weights in bytes (inputs, outputs)."""
    x, w, r, b, lengths, h, c, peephole, *scales = (*step.sources, *(NOTHING,) * 12)[:12]
    given = [rewriter.constant(s) for s in (w, r, *scales)]
    bias, directions = rewriter.constant(b), _DIRECTIONS.get(step.attrs["direction"], ())
    activation = _activation("LSTM", step, len(directions))
    simple = not (lengths or peephole or step.attrs["clip"] or step.attrs["input_forget"] or step.attrs["activation_alpha"])
    if any(v is None for v in given) or not simple or activation is None or (b != NOTHING and not single(bias)):
        return
    layers = []
    for k, reverse in enumerate(directions):
        forward, back = ((given[n][k], given[2 + 2 * n][k], given[3 + 2 * n][k]) for n in (0, 1))
        made = lstm_on_bytes(forward, back, None if bias is None else bias[k], reverse, pool)
        if made is None:
            return
        layers.append(made)
    sizes = given[0].shape[1], given[1].shape[1]
    run = _run("LSTM", layers, [0 if reverse else -1 for reverse in directions], *sizes, pool)
    rewriter.fuse([i], "DynamicQuantizeLSTM", run, [x, h, c], step.targets)


def _activation(op: str, step: Step, directions: int) -> tuple[str, ...] | None:
    """The activations of one direction, the same in all; None where there is no kernel for them."""
    known = _ACTIVATIONS[op]
    given = step.attrs["activations"] or known[0] * directions
    return next((a for a in known if tuple(given[: len(a) * directions]) == a * directions), None)


def _run(op: str, layers: list[Layer], ends: list[int], width: int, hidden: int, pool: Pool) -> Callable[..., Any]:
    """The layers of all directions; each has its last step at its own end. Shapes are checked here, kernels do not check them."""

    def run(x: Any, h: Any, c: Any) -> Any:
        if x.dtype != np.float32 or x.ndim != 3 or x.shape[2] != width or not x.size:
            raise ValueError(f"{op} of {width} numbers a step over {x.dtype} of {x.shape}")
        steps, batch = x.shape[:2]
        for name, state in (("initial_h", h), ("initial_c", c)):
            if state is not None and (state.dtype != np.float32 or state.shape != (len(layers), batch, hidden)):
                raise ValueError(f"{op}: {name} is {state.dtype} of {state.shape}, not of {(len(layers), batch, hidden)}")
        shape = (steps, len(layers), batch, hidden)
        claim(shape, np.float32)
        y, last, cells = pool.empty(shape), pool.empty(shape[1:]), pool.empty(shape[1:])
        for k, (one, end) in enumerate(zip(layers, ends, strict=True)):
            cell = one(x, None if h is None else h[k], None if c is None else c[k], y[:, k])
            if cell is not None:
                copy(cell, cells[k])
            copy(y[end, k], last[k])
        return (y, last, cells) if op == "LSTM" else (y, last)

    return run
