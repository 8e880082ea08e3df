"""Meta kernels that keep recurrent operators as single nodes while torch.export traces.

PyTorch would otherwise unroll them over time, which also fixes the sequence length.
"""

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


def _rnn(
    input: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    return _output(input, hx, bidirectional), hx.new_empty(hx.shape)


@contextlib.contextmanager
def rnn_meta_kernels() -> Iterator[None]:
    """Replace the Python kernels of the recurrent operators by ones that only compute output shapes."""
    aten = frameworks.torch().ops.aten
    meta_kernels = {aten.lstm.input: _lstm, aten.gru.input: _rnn, aten.rnn_tanh.input: _rnn, aten.rnn_relu.input: _rnn}
    original_kernels = {op: dict(op.py_kernels) for op in meta_kernels}
    try:
        for op, function in meta_kernels.items():
            for key in original_kernels[op]:
                op.py_kernels[key] = function
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in original_kernels.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
