"""Keeps recurrent layers whole while torch.export traces: PyTorch would unroll them over time, and fix the time in doing so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks


def _output(input: Any, state: Any, bidirectional: bool) -> Any:
    return input.new_empty([*input.shape[:-1], state.shape[-1] * (2 if bidirectional else 1)])


def _lstm(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    h, c = hx
    return _output(input, h, bidirectional), h.new_empty(h.shape), c.new_empty(c.shape)


def _plain(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    return _output(input, hx, bidirectional), hx.new_empty(hx.shape)


@contextlib.contextmanager
def whole_layers() -> Iterator[None]:
    """While inside, traced recurrent operators only tell the shapes of their results."""
    aten = frameworks.torch().ops.aten
    shapes = {aten.lstm.input: _lstm, aten.gru.input: _plain, aten.rnn_tanh.input: _plain, aten.rnn_relu.input: _plain}
    kept = {op: dict(op.py_kernels) for op in shapes}
    try:
        for op, function in shapes.items():
            for key in kept[op]:
                op.py_kernels[key] = function
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in kept.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
