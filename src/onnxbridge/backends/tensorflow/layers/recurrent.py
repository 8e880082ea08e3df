"""Recurrent layers as Keras layers, whose sequences have the batch first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.element_order import rearranged
from onnxbridge.backends.tensorflow.functional.expressions import Expression, Item, Result, Weight
from onnxbridge.backends.tensorflow.functional.values import dtype_config, is_float, is_weight, weight
from onnxbridge.backends.tensorflow.layers import layer
from onnxbridge.hub.passes.value_queries import is_used, is_zero

_ACTIVATIONS = {
    "Sigmoid": ("sigmoid", None, None), "Tanh": ("tanh", None, None), "Relu": ("relu", None, None), "Elu": ("elu", 1.0, None),
    "Softsign": ("softsign", None, None), "Softplus": ("softplus", None, None), "Affine": ("linear", 1.0, 0.0),
    "HardSigmoid": ("hard_sigmoid", 1 / 6, 0.5),
}  # fmt: skip
"""Keras's name of an activation, with the `alpha` and `beta` that it has in Keras."""
_DEFAULTS = {"Elu": (1.0, None), "HardSigmoid": (0.2, 0.5), "Affine": (1.0, 0.0)}
_BATCH_FIRST = (1, 0, 2)


@dataclass(frozen=True)
class _Layer:
    """A recurrent operator of ONNX and how Keras stores its weights.

    Attributes:
        kind: the Keras layer.
        order: the gates in Keras's order, by their index in ONNX.
        bias: Keras's bias from those of the input and of the state, each (gates, units).
        states: how many states the layer has.
    """

    kind: str
    order: tuple[int, ...]
    bias: Callable[[Any, Any], Any]
    states: int = 1


def _activations(given: Sequence[str] | None, alpha: Any, beta: Any, default: Sequence[str]) -> list[str] | None:
    """Keras's names of the activations of one direction; None where Keras has no such activation."""
    alphas, betas = list(alpha or ()), list(beta or ())
    found = []
    for name in given or default:
        if name not in _ACTIVATIONS:
            return None
        own, keras_alpha, keras_beta = _ACTIVATIONS[name]
        defaults = _DEFAULTS.get(name, (None, None))
        numbers = [
            (rest.pop(0) if rest else number) if number is not None else None
            for rest, number in zip((alphas, betas), defaults, strict=True)
        ]
        for number, expected in zip(numbers, (keras_alpha, keras_beta), strict=True):
            if expected is not None and (number is None or not np.isclose(number, expected, rtol=1e-6)):
                return None
        found.append(own)
    return found


def _directions(found: list[str] | None, direction: str, count: int) -> list[str] | None:
    """The activations of a layer, if both directions have the same."""
    if found is None or direction != "bidirectional":
        return found
    return found[:count] if found[:count] == found[count:] else None


def _weights(kind: _Layer, W: ir.Value, R: ir.Value, B: ir.Value | None, direction: int, units: int) -> tuple[Weight, ...]:
    order, gates = list(kind.order), len(kind.order)

    def matrix(value: ir.Value) -> Weight:
        def array() -> np.ndarray[Any, Any]:
            own = weight(value).array()[direction]
            return np.concatenate([own[g * units : (g + 1) * units] for g in order]).T

        return Weight((value,), array)

    if B is None:
        return matrix(W), matrix(R)

    def bias() -> np.ndarray[Any, Any]:
        own = weight(B).array()[direction].reshape(2, gates, units)[:, order]
        return np.asarray(kind.bias(own[0].reshape(-1), own[1].reshape(-1)))

    return matrix(W), matrix(R), Weight((B,), bias)


def _recurrent(
    node: ir.Node, kind: _Layer, X: ir.Value, weights: Sequence[ir.Value | None], initial: Sequence[ir.Value | None],
    config: dict[str, Any], direction: str, units: int,
) -> tuple[Result, ...] | None:  # fmt: skip
    W, R, B = weights
    if W is None or R is None or not is_float(X, W, R) or not all(is_weight(v) for v in (W, R, *((B,) if B is not None else ()))):
        return None
    given = [v for v in initial if v is not None and not is_zero(v)]
    if (given and len(given) != kind.states) or any(v.const_value is not None for v in given):
        return None
    has_rows, has_states = is_used(node.outputs[0]), [is_used(o) for o in node.outputs[1:]]
    both = direction == "bidirectional"
    several = any(has_states[1:]) or (any(has_states) and (has_rows or both))
    config = {
        "units": units, **config, **({} if B is not None else {"use_bias": False}),
        **({"return_sequences": True} if has_rows else {}), **({"return_state": True} if several else {}),
        **({"go_backwards": True} if direction == "reverse" else {}), **dtype_config(X),
    }  # fmt: skip
    x = _batch_first(X)
    states = tuple(_state(v, i) for i in range(2 if both else 1) for v in given)
    named = {"initial_state": states} if states else {}
    sides = tuple(w for i in range(2 if both else 1) for w in _weights(kind, W, R, B, i, units))
    if both:
        wrapped = Expression(kind.kind, (), config)
        call = Expression("Bidirectional", (x,), {}, sides, named, wrapped=wrapped)
    else:
        call = Expression(kind.kind, (x,), config, sides, named)
    rows = _rows(node, Item(call, 0) if several else call, direction) if has_rows else None
    found: list[Result | None] = [rows]
    for i, needed in enumerate(has_states):
        if not needed:
            found.append(None)
        elif both:
            sources = [Item(call, 1 + i), Item(call, 1 + kind.states + i)]
            found.append(Expression("ops.stack", tuple(sources), {"axis": 0}, as_list=True))
        else:
            found.append(_final_state(node.outputs[1 + i], Item(call, 1 + i) if several else call))
    return tuple(found)  # type: ignore[arg-type]  # results that are not used have no call


def _batch_first(X: ir.Value) -> Any:
    """The sequence with its batch first."""
    before = X.producer()
    if before is not None and before.op_type == "Transpose" and tuple(before.attributes["perm"].as_ints()) == _BATCH_FIRST:
        return before.inputs[0]
    return Expression("ops.transpose", (X, _BATCH_FIRST))


def _state(value: ir.Value, direction: int) -> Expression:
    return Expression("ops.take", (value, direction), {"axis": 0})


def _rows(node: ir.Node, sequence: Any, direction: str) -> Result:
    """The first output, (time, directions, batch, units), or what follows it if that moves the batch to the front again."""
    if direction == "reverse":
        sequence = Expression("ops.flip", (sequence,), {"axis": 1})
    after = rearranged(node.outputs[0], (2, 0, 1, 3), lambda s: (*s[:2], s[2] * s[3]))  # (batch, time, directions * units)
    if after:
        return _replacing(sequence, after)
    after = rearranged(node.outputs[0], (0, 2, 1, 3), lambda s: (*s[:2], s[2] * s[3]))  # (time, batch, ...)
    if after:
        return Expression("ops.transpose", (sequence, _BATCH_FIRST), replaces=after)
    if direction == "bidirectional":
        halves = Expression("ops.split", (Expression("ops.transpose", (sequence, _BATCH_FIRST)), 2), {"axis": -1})
        return Expression("ops.stack", (Item(halves, 0), Item(halves, 1)), {"axis": 1}, as_list=True)
    return Expression("ops.expand_dims", (Expression("ops.transpose", (sequence, _BATCH_FIRST)), 1))


def _final_state(output: ir.Value, state: Any) -> Result:
    after = rearranged(output, (1, 0, 2), lambda s: (s[0], s[1] * s[2]))  # (batch, units)
    return _replacing(state, after) if after else Expression("ops.expand_dims", (state, 0))


def _replacing(result: Expression | Item, nodes: tuple[ir.Node, ...]) -> Result:
    """The result, as that of the last of these nodes."""
    return replace(result, replaces=nodes)


@layer("LSTM")
def lstm(
    node: ir.Node, X: ir.Value, W: ir.Value, R: ir.Value, B: ir.Value | None = None, sequence_lens: ir.Value | None = None,
    initial_h: ir.Value | None = None, initial_c: ir.Value | None = None, P: ir.Value | None = None, *,
    activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None, clip: float | None = None,
    direction: str = "forward", hidden_size: int | None = None, input_forget: int = 0, layout: int = 0,
) -> tuple[Result, ...] | None:  # fmt: skip
    found = _activations(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh") * _count(direction))
    found = _directions(found, direction, 3)
    if found is None or found[1] != found[2] or any(v is not None for v in (sequence_lens, P, clip)) or input_forget or layout:
        return None
    config = {} if found[:2] == ["sigmoid", "tanh"] else {"activation": found[1], "recurrent_activation": found[0]}
    kind = _Layer("LSTM", (0, 2, 3, 1), np.add, states=2)
    return _recurrent(node, kind, X, (W, R, B), (initial_h, initial_c), config, direction, _units(R, hidden_size))


@layer("GRU")
def gru(
    node: ir.Node, X: ir.Value, W: ir.Value, R: ir.Value, B: ir.Value | None = None, sequence_lens: ir.Value | None = None,
    initial_h: ir.Value | None = None, *, activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Result, ...] | None:  # fmt: skip
    found = _activations(activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh") * _count(direction))
    found = _directions(found, direction, 2)
    if found is None or sequence_lens is not None or clip is not None or layout:
        return None
    config: dict[str, Any] = {} if found == ["sigmoid", "tanh"] else {"activation": found[1], "recurrent_activation": found[0]}
    if not linear_before_reset:
        config["reset_after"] = False
    bias: Callable[[Any, Any], Any] = (lambda w, r: np.stack([w, r])) if linear_before_reset else np.add
    kind = _Layer("GRU", (0, 1, 2), bias)
    return _recurrent(node, kind, X, (W, R, B), (initial_h,), config, direction, _units(R, hidden_size))


@layer("RNN")
def rnn(
    node: ir.Node, X: ir.Value, W: ir.Value, R: ir.Value, B: ir.Value | None = None, sequence_lens: ir.Value | None = None,
    initial_h: ir.Value | None = None, *, activation_alpha: Any = None, activation_beta: Any = None, activations: Any = None,
    clip: float | None = None, direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
) -> tuple[Result, ...] | None:  # fmt: skip
    found = _activations(activations, activation_alpha, activation_beta, ("Tanh",) * _count(direction))
    found = _directions(found, direction, 1)
    if found is None or sequence_lens is not None or clip is not None or layout:
        return None
    config = {} if found == ["tanh"] else {"activation": found[0]}
    kind = _Layer("SimpleRNN", (0,), np.add)
    return _recurrent(node, kind, X, (W, R, B), (initial_h,), config, direction, _units(R, hidden_size))


def _count(direction: str) -> int:
    return 2 if direction == "bidirectional" else 1


def _units(R: ir.Value, hidden_size: int | None) -> int:
    assert R.shape is not None
    return hidden_size or int(R.shape[-1])  # type: ignore[arg-type]  # weights have known sizes
