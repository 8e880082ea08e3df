"""Shapes of a loop's states, which ONNX leaves open: those that no iteration changes are declared on the body's inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import onnx_ir as ir

from onnxbridge.hub.ir.inference import Contradiction

_Sizes: TypeAlias = "list[int | ir.SymbolicDim] | None"
_ROUNDS = 3  # of assuming less, where an iteration changed what was assumed


def declare_kept_shapes(loop: ir.Node, body: ir.Graph, infer: Callable[[ir.Graph], None]) -> None:
    """Declare on the body's inputs which sizes of the states stay those of the initial values.

    The initial sizes are assumed, and `infer` infers a copy of the body from them. If the body returns states of these sizes, so
    does every iteration; otherwise less is assumed.
    """
    states = body.inputs[2:]
    assumed = [_assumed(inner, outer) for inner, outer in zip(states, loop.inputs[2:], strict=True)]
    for _ in range(_ROUNDS):
        if all(_says_nothing_new(sizes, inner) for sizes, inner in zip(assumed, states, strict=True)):
            return
        trial = body.clone(allow_outer_scope_values=True)
        _declare(trial, assumed)
        try:
            infer(trial)
        except Contradiction:  # the body cannot run on these sizes: they change, or the loop is never entered
            return
        kept = [_kept(sizes, value.shape) for sizes, value in zip(assumed, trial.outputs[1:], strict=False)]
        if kept == assumed:
            _declare(body, assumed)
            return
        assumed = kept


def _declare(body: ir.Graph, shapes: list[_Sizes]) -> None:
    for inner, sizes in zip(body.inputs[2:], shapes, strict=True):
        inner.shape = inner.shape if sizes is None else ir.Shape(sizes)


def _assumed(inner: ir.Value, outer: ir.Value | None) -> _Sizes:
    """The declared sizes, and the initial ones where none are declared."""
    if outer is None or outer.shape is None:
        return None if inner.shape is None else list(inner.shape)
    if inner.shape is None:
        return list(outer.shape)
    if len(inner.shape) != len(outer.shape):
        return list(inner.shape)
    return [first if _is_open(own) else own for own, first in zip(inner.shape, outer.shape, strict=True)]


def _kept(sizes: _Sizes, after: ir.Shape | None) -> _Sizes:
    if sizes is None or after is None or len(after) != len(sizes):
        return None
    return [size if size == new else ir.SymbolicDim(None) for size, new in zip(sizes, after, strict=True)]


def _says_nothing_new(sizes: _Sizes, inner: ir.Value) -> bool:
    if sizes is None or inner.shape is None:
        return sizes is None
    return all(_is_open(size) or size == own for size, own in zip(sizes, inner.shape, strict=True))


def _is_open(size: int | ir.SymbolicDim) -> bool:
    return not isinstance(size, int) and size.value is None
