"""Patch: packed sequences, whose number of elements depends on data."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torch_patches.target import Target, replaced


class _ShapeFunctions:
    """Shape functions of operators on packed sequences; `batch` maps the symbol of the maximum length to the batch size."""

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
        batch = self.batch_size(batch_sizes)
        sizes = [batch, total_length] if batch_first else [total_length, batch]
        return data.new_empty([*sizes, *data.shape[1:]]), batch_sizes.new_empty([batch])

    def batch_size(self, batch_sizes: Any) -> Any:
        size = batch_sizes.shape[0]
        expression = None if isinstance(size, int) else size.node.expr
        if expression not in self.batch:
            raise NotImplementedError("a packed sequence that is an input of the model: pack it inside the model")
        return self.batch[expression]

    def lstm(
        self, data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool,
    ) -> Any:  # fmt: skip
        h, c = hx
        return self._output(data, h, bidirectional), self._state(h, batch_sizes), self._state(c, batch_sizes)

    def rnn(
        self, data: Any, batch_sizes: Any, hx: Any, params: Any, has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool,
    ) -> Any:  # fmt: skip
        return self._output(data, hx, bidirectional), self._state(hx, batch_sizes)

    def _output(self, data: Any, state: Any, bidirectional: bool) -> Any:
        return data.new_empty([data.shape[0], state.shape[-1] * (2 if bidirectional else 1)])

    def _state(self, state: Any, batch_sizes: Any) -> Any:
        return state.new_empty([state.shape[0], self.batch_size(batch_sizes), state.shape[-1]])


@functools.cache
def _pad_operator() -> Any:
    """A padding operator with PyTorch's parameters, but with a symbolic length."""
    torch = frameworks.torch()
    torch.library.define(
        "onnxbridge::pad_packed_sequence",
        "(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, SymInt total_length) -> (Tensor, Tensor)",
    )
    return torch.ops.onnxbridge.pad_packed_sequence.default


# Checked on PyTorch 2.13.0: these methods compare the size of the state with the number of sequences.
TARGETS = tuple(
    Target("torch.nn.modules.rnn", f"{name}.check_forward_args", ("self", "input", "hidden", "batch_sizes"))
    for name in ("RNNBase", "LSTM")
)


@contextlib.contextmanager
def packed_sequences() -> Iterator[None]:
    """Trace operators on packed sequences with shape functions only."""
    with contextlib.ExitStack() as stack:
        for target in TARGETS:
            stack.enter_context(replaced(target, _skip_if_packed))
        shapes = _ShapeFunctions()
        stack.enter_context(_layer_kernels(shapes))
        stack.enter_context(_packing(shapes))
        yield


# Checked on PyTorch 2.13.0: the Python kernels of recurrent operators unroll them over time; operators cache their dispatch.
@contextlib.contextmanager
def _layer_kernels(shapes: _ShapeFunctions) -> Iterator[None]:
    """Replace the Python kernels of recurrent operators on packed sequences."""
    aten = frameworks.torch().ops.aten
    layers = {aten.lstm.data: shapes.lstm, aten.gru.data: shapes.rnn, aten.rnn_tanh.data: shapes.rnn,
              aten.rnn_relu.data: shapes.rnn}  # fmt: skip
    saved = {op: dict(op.py_kernels) for op in layers}
    try:
        for op, function in layers.items():
            for key in saved[op]:
                op.py_kernels[key] = function
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in saved.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


# Checked on PyTorch 2.13.0: FakeTensor looks up shape functions in `op_implementations_dict`; pad_packed_sequence calls
# `torch._VF._pad_packed_sequence`, whose kernel reads the lengths.
@contextlib.contextmanager
def _packing(shapes: _ShapeFunctions) -> Iterator[None]:
    """Add shape functions for packing and padding, and replace the padding operator."""
    torch = frameworks.torch()
    from torch._subclasses import fake_impls

    operators = {torch.ops.aten._pack_padded_sequence.default: shapes.pack, _pad_operator(): shapes.pad}
    saved = {op: function for op, function in fake_impls.op_implementations_dict.items() if op in operators}
    try:
        fake_impls.op_implementations_dict.update(operators)
        torch._VF._pad_packed_sequence = _pad_operator()
        yield
    finally:
        torch._VF.__dict__.pop("_pad_packed_sequence", None)
        for op in operators:
            fake_impls.op_implementations_dict.pop(op, None)
        fake_impls.op_implementations_dict.update(saved)  # PyTorch's own shape function of packing


def _skip_if_packed(check: Any) -> Any:
    def checked(self: Any, input: Any, hidden: Any, batch_sizes: Any) -> None:
        if batch_sizes is None:
            check(self, input, hidden, batch_sizes)

    return checked
