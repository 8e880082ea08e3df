"""LSTM layers with constant weights and the usual activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxbridge.hub.limits import claim
from onnxbridge.runtime.fusion.draft import Draft
from onnxbridge.runtime.fusion.endings import single
from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import copy
from onnxbridge.runtime.native.recurrent import Layer, lstm
from onnxbridge.runtime.plan import NOTHING

_USUAL = {"activation_alpha": (None,), "activation_beta": (None,), "clip": (None,), "input_forget": (0,), "layout": (0,)}
_WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def join(draft: Draft, pool: Pool) -> None:
    """Put native layers in the place of LSTM steps that ask for nothing unusual."""
    for i, step in draft.steps("LSTM"):
        w, r = (draft.constant(s) for s in step.sources[1:3])
        b, lengths, h, c, peephole = (*step.sources[3:], *(NOTHING,) * 5)[:5]
        bias = draft.constant(b)
        known = single(w) and single(r) and (b == NOTHING or single(bias)) and lengths == peephole == NOTHING
        usual = all(step.attrs[name] in values for name, values in _USUAL.items())
        ways = _WAYS.get(step.attrs["direction"], ())
        usual = usual and step.attrs["activations"] in (None, ("Sigmoid", "Tanh", "Tanh") * len(ways))
        if known and usual and len(w) == len(ways):
            layers = [lstm(w[k], r[k], None if bias is None else bias[k], reverse, pool) for k, reverse in enumerate(ways)]
            run = _run(layers, [0 if reverse else -1 for reverse in ways], r.shape[-1], pool)
            draft.join([i], step.op, run, [step.sources[0], h, c], step.targets)


def _run(layers: list[Layer], ends: list[int], hidden: int, pool: Pool) -> Callable[..., Any]:
    """The layers of all directions side by side; each has its last step at its own end."""

    def run(x: Any, h: Any, c: Any) -> Any:
        if x.dtype != np.float32 or x.ndim != 3 or not x.size:
            raise ValueError(f"an LSTM over {x.dtype} of {x.shape}")
        steps, batch = x.shape[:2]
        shape = (steps, len(layers), batch, hidden)
        claim(shape, np.float32)
        y, last, cells = pool.empty(shape), pool.empty(shape[1:]), pool.empty(shape[1:])
        for k, (layer, end) in enumerate(zip(layers, ends, strict=True)):
            copy(layer(x, None if h is None else h[k], None if c is None else c[k], y[:, k]), cells[k])
            copy(y[end, k], last[k])
        return y, last, cells

    return run
