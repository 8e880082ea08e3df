"""Keeps packed sequences traceable: how many elements they have is only known when the model runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks


class _Shapes:
    """What the operators on packed sequences give; `batch` is how many there are, by the symbol of the longest's length."""

    def __init__(self) -> None:
        self.batch: dict[Any, Any] = {}

    def pack(self, mode: Any, func: Any, input: Any, lengths: Any, batch_first: bool) -> Any:
        torch = frameworks.torch()
        from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

        time, batch = (input.shape[1], input.shape[0]) if batch_first else input.shape[:2]
        elements, longest = (mode.shape_env.create_unbacked_symint() for _ in range(2))
        for size in (elements, longest):
            _constrain_range_for_size(size)
        torch._check(longest <= time)
        self.batch[longest.node.expr] = batch
        data = input.new_empty([elements, *input.shape[2:]])
        return data, lengths.new_empty([longest], dtype=torch.int64)

    def pad(
        self, mode: Any, func: Any, data: Any, batch_sizes: Any, batch_first: bool, padding_value: Any, total_length: Any
    ) -> Any:
        batch = self.of(batch_sizes)
        ends = [batch, total_length] if batch_first else [total_length, batch]
        return data.new_empty([*ends, *data.shape[1:]]), batch_sizes.new_empty([batch])

    def of(self, batch_sizes: Any) -> Any:
        size = batch_sizes.shape[0]
        expression = None if isinstance(size, int) else size.node.expr
        if expression not in self.batch:
            raise NotImplementedError("a packed sequence that comes from outside the model: pack it inside")
        return self.batch[expression]

    def lstm(
        self, data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool,
    ) -> Any:  # fmt: skip
        h, c = hx
        return self._output(data, h, bidirectional), self._state(h, batch_sizes), self._state(c, batch_sizes)

    def plain(
        self, data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool,
    ) -> Any:  # fmt: skip
        return self._output(data, hx, bidirectional), self._state(hx, batch_sizes)

    def _output(self, data: Any, state: Any, bidirectional: bool) -> Any:
        return data.new_empty([data.shape[0], state.shape[-1] * (2 if bidirectional else 1)])

    def _state(self, state: Any, batch_sizes: Any) -> Any:
        return state.new_empty([state.shape[0], self.of(batch_sizes), state.shape[-1]])


@functools.cache
def _pad_operator() -> Any:
    """The operator that pads, of PyTorch's arguments, but for the length, which need not be known."""
    torch = frameworks.torch()
    torch.library.define(
        "onnxbridge::pad_packed_sequence",
        "(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, SymInt total_length) -> (Tensor, Tensor)",
    )
    return torch.ops.onnxbridge.pad_packed_sequence.default


@contextlib.contextmanager
def packed_sequences() -> Iterator[None]:
    """While inside, traced operators on packed sequences only tell the shapes of their results."""
    torch = frameworks.torch()
    from torch._subclasses import fake_impls
    from torch.nn.modules import rnn

    aten, shapes = torch.ops.aten, _Shapes()
    layers = {aten.lstm.data: shapes.lstm, aten.gru.data: shapes.plain, aten.rnn_tanh.data: shapes.plain,
              aten.rnn_relu.data: shapes.plain}  # fmt: skip
    alone = {aten._pack_padded_sequence.default: shapes.pack, _pad_operator(): shapes.pad}
    kept = {op: dict(op.py_kernels) for op in layers}
    checks = {kind: kind.check_forward_args for kind in (rnn.RNNBase, rnn.LSTM)}
    try:
        for kind, check in checks.items():
            kind.check_forward_args = _unless_packed(check)  # which would ask how many sequences there are
        for op, function in layers.items():
            for key in kept[op]:
                op.py_kernels[key] = function
            op._dispatch_cache.clear()
        fake_impls.op_implementations_dict.update(alone)
        torch._VF._pad_packed_sequence = _pad_operator()
        yield
    finally:
        torch._VF.__dict__.pop("_pad_packed_sequence", None)
        for kind, check in checks.items():
            kind.check_forward_args = check
        for op, kernels in kept.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
        for op in alone:
            fake_impls.op_implementations_dict.pop(op, None)


def _unless_packed(check: Any) -> Any:
    def checked(self: Any, input: Any, hidden: Any, batch_sizes: Any) -> None:
        if batch_sizes is None:
            check(self, input, hidden, batch_sizes)

    return checked
