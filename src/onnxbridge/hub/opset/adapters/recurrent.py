"""Recurrent operators: from opset 7 on they always return the sequence, opset 14 added a second layout."""

from __future__ import annotations

from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.rules import Outputs


def _without_output_sequence(name):
    def recurrent(op, X, W, R, B=None, sequence_lens=None, initial_h=None, *more, output_sequence=0, outputs: Outputs, **attrs):
        """Y and Y_h are both returned now, whatever `output_sequence` was."""
        inputs = (X, W, R, B, sequence_lens, initial_h, *more)
        return op.call(name, *inputs, outputs=max(_count(outputs), 2), **attrs)

    return recurrent


for _name in ("GRU", "LSTM", "RNN"):
    up(_name, to=7)(_without_output_sequence(_name))


@up("GRU", to=3)
def gru_direction(op, X, W, R, B=None, sequence_lens=None, initial_h=None, *, direction="forward", outputs: Outputs, **attrs):
    """The first version misspelt its default direction."""
    right = "forward" if direction == "foward" else direction
    return op.GRU(X, W, R, B, sequence_lens, initial_h, direction=right, outputs=_count(outputs), **attrs)


def _layout(name):
    def recurrent(op, X, W, R, B=None, sequence_lens=None, initial_h=None, *more, layout=0, outputs: Outputs, **attrs):
        """The second layout has the batch first in all inputs and outputs."""
        count = _count(outputs)
        if not layout:
            return op.call(name, X, W, R, B, sequence_lens, initial_h, *more, outputs=count, **attrs)

        def states(v):
            return None if v is None else op.Transpose(v, perm=[1, 0, 2])

        more = [states(v) if i == 0 else v for i, v in enumerate(more)]
        results = op.call(name, states(X), W, R, B, sequence_lens, states(initial_h), *more, outputs=count, **attrs)
        results = results if isinstance(results, tuple) else (results,)
        return (op.Transpose(results[0], perm=[2, 0, 1, 3]), *(states(r) for r in results[1:]))

    return recurrent


for _name in ("GRU", "LSTM", "RNN"):
    down(_name, to=13)(_layout(_name))


def _count(outputs):
    return max((i + 1 for i, used in enumerate(outputs) if used), default=1)
