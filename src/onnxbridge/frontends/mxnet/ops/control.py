"""Control flow: a symbol's subgraphs become ONNX subgraphs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import scalar_shape
from onnxbridge.hub.ir.values import keep_shapes


def _body_inputs(count, *groups):
    """The inputs of a body, from (positions, values) pairs."""
    inputs = [None] * count
    for positions, values in groups:
        for position, value in zip(positions, values, strict=False):
            inputs[position] = value
    return inputs


def _tuple(locations):
    return tuple(locations) if isinstance(locations, (tuple, list)) else (locations,)


@rule("_foreach")
def foreach(op, *data, fn, num_outputs, num_out_data, in_state_locs, in_data_locs, remain_locs, np_shape=False):
    """Run the body over the first axis of the data; its last outputs are the states of the next iteration."""
    slices, states, rest = _tuple(in_data_locs), _tuple(in_state_locs), _tuple(remain_locs)
    items, first, outer = data[: len(slices)], data[len(slices) : len(slices) + len(states)], data[len(slices) + len(states) :]

    def body(i, condition, *state):
        keep_shapes(state, first)
        parts = [scalar_shape(op, op.Gather(d, i, axis=0), np_shape) for d in items]
        results = fn(*_body_inputs(len(data), (slices, parts), (states, state), (rest, outer)))
        return op.Identity(condition), *results[num_out_data:], *results[:num_out_data]

    count = op.size(items[0], 0)
    trips = op.constant(np.int64(count)) if isinstance(count, int) else count
    found = op.Loop(trips, op.constant(np.bool_(True)), *first, body=body, outputs=num_outputs)
    stacked, last = _stacked_and_states(found, first)
    return *(_rows(y, count) for y in stacked), *last


@rule("_cond")
def cond(op, *data, cond, then_branch, else_branch, num_outputs, cond_input_locs, then_input_locs, else_input_locs):
    """The inputs are the union of the condition's and the branches' inputs."""

    def select(locations):
        return [data[i] for i in _tuple(locations)]

    (truth,) = cond(*select(cond_input_locs))
    truth = op.Cast(op.Reshape(truth, []), to=np.bool_)
    return op.If(
        truth, then_branch=lambda: then_branch(*select(then_input_locs)),
        else_branch=lambda: else_branch(*select(else_input_locs)),
        outputs=num_outputs,
    )  # fmt: skip


@rule("_while_loop")
def while_loop(
    op, *data, cond, func, num_outputs, num_out_data, max_iterations, cond_input_locs, func_input_locs, func_var_locs
):  # fmt: skip
    """Stacked outputs have the size of the maximum trip count; in MXNet, rows after the last iteration are undefined."""
    condition_inputs, inner, variables = _tuple(cond_input_locs), _tuple(func_input_locs), _tuple(func_var_locs)
    groups = [inner[v] for v in variables]

    def everything(state):
        values = list(data)
        for position, value in zip(groups, state, strict=True):
            values[position] = value
        return values

    def truth(state):
        values = everything(state)
        return op.Cast(op.Reshape(cond(*[values[i] for i in condition_inputs])[0], []), to=np.bool_)

    def body(i, condition, *state):
        keep_shapes(state, first)
        values = everything(state)
        results = func(*[values[i] for i in inner])
        return truth(results[num_out_data:]), *results[num_out_data:], *results[:num_out_data]

    first = [data[p] for p in groups]
    found = op.Loop(op.constant(np.int64(max_iterations)), truth(first), *first, body=body, outputs=num_outputs)
    stacked, last = _stacked_and_states(found, first)
    return *(_padded(op, y, max_iterations) for y in stacked), *last


def _stacked_and_states(found, first):
    """The stacked results of a Loop, and its last states, whose shapes do not change in MXNet."""
    found = found if isinstance(found, tuple) else (found,)
    keep_shapes(found[: len(first)], first)
    return found[len(first) :], found[: len(first)]


def _rows(stacked, count):
    """Stacked results of which there are `count`, where that is known."""
    if stacked.shape is not None and isinstance(count, int):
        stacked.shape = ir.Shape([count, *list(stacked.shape)[1:]])
    return stacked


def _padded(op, y, count):
    missing = op.Sub(np.array([count], np.int64), op.Shape(y, start=0, end=1))
    zeros = op.Expand(op.constant(np.zeros((), y.dtype.numpy())), op.Concat(missing, op.Shape(y, start=1), axis=0))
    return _rows(op.Concat(y, zeros, axis=0), count)
