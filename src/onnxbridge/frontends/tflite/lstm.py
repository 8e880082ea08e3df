"""LSTM cells of TensorFlow Lite: one step, and layers over a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tflite.fused_activation import activated

# the activations that ONNX's recurrent operators have
ACTIVATIONS = {"TANH": "Tanh", "RELU": "Relu"}


@dataclass(frozen=True)
class Cell:
    """The parameters of a cell, each by gate: input, forget, cell, output. Weights are [cells, inputs].

    There are peepholes for all gates but that of the cell, and coefficients of a normalization, or none. `cell_clip` and
    `proj_clip` are 0 for a cell that does not clip. `rounded` rounds what is multiplied with weights that are integers.
    """

    weights: Sequence[Any]
    recurrent: Sequence[Any]
    biases: Sequence[Any]
    peepholes: Sequence[Any]
    norms: Sequence[Any]
    projection: Any
    projection_bias: Any
    activation: str
    cell_clip: float
    proj_clip: float
    rounded: Callable[[Any, Any], Any] | None

    @property
    def fits_onnx(self) -> bool:
        """Whether ONNX's operator computes the cell."""
        extras = self.projection is not None or self.norms or self.cell_clip or self.rounded is not None
        return not extras and self.activation in ACTIVATIONS


def cell(
    op: Any, tensors: Sequence[Any], norms: Sequence[Any] = (), aux_weights: Sequence[Any] = (), activation: str = "NONE",
    cell_clip: float = 0.0, proj_clip: float = 0.0, rounded: Callable[[Any, Any], Any] | None = None,
) -> Cell:  # fmt: skip
    """A cell from the tensors of an operator: weights, recurrent weights, peepholes, biases, projection and its bias.

    A cell without an input gate takes 1 - forget gate for it, which is the gate of the negated parameters:
    1 - sigmoid(x) = sigmoid(-x). The weights of an auxiliary input continue those of the input.

    Raises:
        Unsupported: for a cell that lacks parameters.
    """
    weights, recurrent, peepholes, biases = (list(tensors[i:j]) for i, j in ((0, 4), (4, 8), (8, 11), (11, 15)))
    norms = list(norms)
    if any(w is not None for w in aux_weights):
        weights = [w if a is None else op.Concat(w, a, axis=1) for w, a in zip(weights, aux_weights, strict=True)]
    if weights[0] is None and recurrent[0] is None:
        for group in (weights, recurrent, biases, peepholes):
            if group[1] is not None:
                group[0] = op.Neg(group[1])
        norms[:1] = norms[1:2]
    groups = {"weights": weights, "recurrent weights": recurrent, "biases": biases}
    groups |= {name: g for name, g in (("peepholes", peepholes), ("normalizations", norms)) if any(p is not None for p in g)}
    for name, group in groups.items():
        if any(p is None for p in group):
            raise Unsupported(f"an LSTM without the {name} of one of its gates", "get the file again")
    if peepholes[1] is None:
        peepholes = []
    if not norms or norms[1] is None:
        norms = []
    projection, projection_bias = tensors[15:17]
    if projection is None and projection_bias is not None:
        raise Unsupported("an LSTM with the bias of a projection that it does not have", "get the file again")
    # the kernels clip the result of a projection only
    proj_clip = 0.0 if projection is None else proj_clip
    return Cell(
        weights, recurrent, biases, peepholes, norms, projection, projection_bias, activation, cell_clip, proj_clip, rounded
    )  # fmt: skip


def step(op: Any, x: Any, h: Any, c: Any, cell: Cell) -> tuple[Any, Any]:
    """The output and the cell state after one step, of x [batch, inputs], which is rounded already."""
    return _step(op, _input_part(op, x, cell), h, c, cell)


def sequence(op: Any, x: Any, cell: Cell, reverse: bool = False) -> Any:
    """The outputs [time, batch, outputs] for x [time, batch, inputs], which is rounded already, from a state of zeros."""
    if cell.fits_onnx:
        return _onnx_lstm(op, x, cell, reverse)

    def body(h: Any, c: Any, part: Any) -> tuple[Any, Any, Any]:
        h, c = _step(op, part, h, c, cell)
        return h, c, h

    sizes = cell.recurrent[1].shape[1], cell.recurrent[1].shape[0]
    h, c = (op.Expand(np.zeros((), np.float32), op.dims([op.size(x, 1), n])) for n in sizes)
    directions = [1] if reverse else None
    found = op.Scan(
        h, c, _input_part(op, x, cell), body=body, num_scan_inputs=1, scan_input_directions=directions,
        scan_output_directions=directions, outputs=3,
    )  # fmt: skip
    return found[2]


def _input_part(op: Any, x: Any, cell: Cell) -> Any:
    """What the input contributes to all gates; normalized gates get their biases after they are normalized."""
    part = op.MatMul(x, op.Transpose(op.Concat(*cell.weights, axis=0), perm=[1, 0]))
    return part if cell.norms else op.Add(part, op.Concat(*cell.biases, axis=0))


def _step(op: Any, part: Any, h: Any, c: Any, cell: Cell) -> tuple[Any, Any]:
    recurrent = op.Transpose(op.Concat(*cell.recurrent, axis=0), perm=[1, 0])
    h = h if cell.rounded is None else cell.rounded(op, h)
    parts = op.Split(op.Add(part, op.MatMul(h, recurrent)), axis=-1, num_outputs=4, outputs=4)
    i, f = (op.Sigmoid(_gate(op, parts[k], c, k, k, cell)) for k in (0, 1))
    g = activation(op, _gate(op, parts[2], None, 2, None, cell), cell.activation)
    c = op.Add(op.Mul(f, c), op.Mul(i, g))
    if cell.cell_clip:
        c = op.Clip(c, -float(cell.cell_clip), float(cell.cell_clip))
    o = op.Sigmoid(_gate(op, parts[3], c, 3, 2, cell))
    h = op.Mul(o, activation(op, c, cell.activation))
    if cell.projection is not None:
        h = h if cell.rounded is None else cell.rounded(op, h)
        h = op.MatMul(h, op.Transpose(cell.projection, perm=[1, 0]))
        h = h if cell.projection_bias is None else op.Add(h, cell.projection_bias)
    if cell.proj_clip:
        h = op.Clip(h, -float(cell.proj_clip), float(cell.proj_clip))
    return h, c


def _gate(op: Any, part: Any, c: Any, index: int, peephole: int | None, cell: Cell) -> Any:
    """A gate before its activation; `c` is the cell state that its peephole sees."""
    if cell.peepholes and peephole is not None:
        part = op.Add(part, op.Mul(c, cell.peepholes[peephole]))
    if cell.norms:
        part = op.LayerNormalization(part, cell.norms[index], cell.biases[index], axis=-1, epsilon=1e-8)
    return part


def activation(op: Any, x: Any, name: str) -> Any:
    """The activation of a recurrent layer, which may be one that ONNX's recurrent operators do not have."""
    return op.Tanh(x) if name == "TANH" else activated(op, x, name)


def _onnx_lstm(op: Any, x: Any, cell: Cell, reverse: bool) -> Any:
    """By ONNX's operator, whose gates are in the order input, output, forget, cell."""

    def stacked(gates: Sequence[Any], order: Sequence[int], *more: Any) -> Any:
        return op.Unsqueeze(op.Concat(*(gates[i] for i in order), *more, axis=0), [0])

    cells = cell.recurrent[1].shape[0]
    function, order = ACTIVATIONS[cell.activation], (0, 3, 1, 2)
    # TensorFlow Lite has no biases of the recurrent part
    biases = stacked(cell.biases, order, np.zeros(4 * cells, np.float32))
    y, _, _ = op.LSTM(
        x, stacked(cell.weights, order), stacked(cell.recurrent, order), biases, None, None, None,
        stacked(cell.peepholes, (0, 2, 1)) if cell.peepholes else None, hidden_size=cells, outputs=3,
        activations=["Sigmoid", function, function], direction="reverse" if reverse else "forward",
    )  # fmt: skip
    return op.Squeeze(y, [1])
