"""Finds the projections around attention that make it Keras's layer `MultiHeadAttention`, whatever the order of their axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.element_order import (
    Array,
    Sizes,
    along,
    is_move,
    moved,
    numbered,
    path_before,
    sizes_of,
)
from onnxbridge.backends.tensorflow.functional.expressions import Expression, Weight
from onnxbridge.backends.tensorflow.functional.projections import (
    Product,
    added_weight,
    bias_of_columns,
    product_of,
)
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_config, is_float, only_user, rank, weight

_SWAPPED = (1, 0, 2)


@dataclass(frozen=True)
class Heads:
    """A value of heads: `arrange` gives its elements as (batch, heads, time, depth), or for the result of attention from (batch,
    time, heads, depth) those of the value."""

    value: ir.Value
    arrange: Callable[[Array], Array]


@dataclass
class _Input:
    """A projection into heads: the product, the weights of each (head, depth), and the nodes between."""

    product: Product
    source: ir.Value
    swapped: bool
    columns: Array
    bias: tuple[ir.Value, Array] | None
    path: list[ir.Value] = field(default_factory=list)


def multi_head(
    heads: Sequence[Heads], result: Heads, nodes: Sequence[ir.Node], scale: float | None, named: Mapping[str, Any],
    mask: ir.Value | None = None,
) -> Expression | None:  # fmt: skip
    """The layer `MultiHeadAttention` for queries, keys and values, each projected into heads, and the projection of the result.

    Args:
        nodes: the operators that compute attention itself, the one with the result last.
        scale: of the scores; None where it is that of the layer.
        named: the arguments of the layer's call beside them.
        mask: what hides scores, computed by operators that the layer may replace.
    """
    found = [_projected(h.value) for h in heads]
    sizes = sizes_of([h.value for h in heads] + [v for f in found if f is not None for v in f[1]])
    inputs = [_input(f, h, sizes) for f, h in zip(found, heads, strict=True) if f is not None]
    if len(inputs) < 3 or not sizes or any(i is None for i in inputs):
        return None
    q, k, v = (i for i in inputs if i is not None)
    if not is_float(q.source, k.source, v.source) or q.source.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return None
    (count, depth), value_dim = q.columns.shape, v.columns.shape[1]
    end = _output(result, (q, v), nodes, sizes)
    if end is None or k.columns.shape != (count, depth) or len({q.swapped, k.swapped, v.swapped}) > 1:
        return None
    if v.columns.shape[0] != count or (scale is not None and not math.isclose(scale, depth**-0.5, rel_tol=1e-6)):
        return None
    biases = [i.bias is not None for i in (q, k, v)] + [end.bias is not None]
    region = _region(heads, (q, k, v), end, mask, named)
    if len(set(biases)) > 1 or region is None or dims(k.source)[:2] != dims(v.source)[:2]:
        return None
    given = [Expression("ops.transpose", (i.source, _SWAPPED)) if i.swapped else i.source for i in (q, v, k)]
    given = given[:2] if k.source is v.source else given
    out = end.product.columns
    config = {
        "num_heads": count, "key_dim": depth, **({} if value_dim == depth else {"value_dim": value_dim}),
        **({} if all(biases) else {"use_bias": False}), **({} if out == dims(q.source)[-1] else {"output_shape": out}),
        **dtype_config(q.source),
    }  # fmt: skip
    weights = tuple(w for each in (*map(_input_weights, (q, k, v)), end.weights()) for w in each)
    call = Expression("MultiHeadAttention", tuple(given), config, weights, named)
    if not end.swapped:
        return replace(call, replaces=region)
    return _sum_of_transposes(call, region) or Expression("ops.transpose", (call, _SWAPPED), replaces=region)


def _sum_of_transposes(call: Expression, nodes: tuple[ir.Node, ...]) -> Expression | None:
    """The sum with another value, if both are transposed for it, and the sum is transposed back."""
    result = nodes[-1].outputs[0]
    add = only_user(result)
    back = None if add is None or add.op_type != "Add" else only_user(add.outputs[0])
    other = None if add is None else next((v.producer() for v in add.inputs if v is not None and v is not result), None)
    if add is None or back is None or other is None or not _swaps(other) or not _swaps(back) or other.inputs[0] is None:
        return None
    others = (other,) if only_user(other.outputs[0]) is add else ()
    return Expression("Add", (other.inputs[0], call), dtype_config(result), as_list=True, replaces=(*nodes, *others, add, back))


def _swaps(node: ir.Node) -> bool:
    return node.op_type == "Transpose" and "perm" in node.attributes and tuple(node.attributes["perm"].as_ints()) == _SWAPPED


def _projected(value: ir.Value) -> tuple[Product, list[ir.Value], tuple[ir.Value, ir.Value] | None] | None:
    """The product with weights that a value comes from, the values between and before it, and the sum with a bias."""
    path, bias = path_before(value), None
    producer = path[-1].producer()
    if (found := added_weight(producer)) is not None:
        bias = path[-1], found[1]
        path = [*path, *path_before(found[0])]
    product = product_of(path[-1].producer())
    if product is None or (bias is not None and product.bias is not None):
        return None
    return product, [*path, *path_before(product.x)], bias


def _input(found: Any, heads: Heads, sizes: Sequence[Sizes]) -> _Input | None:
    product, _, bias = found
    before = path_before(product.x)
    for length in range(len(before), 0, -1):
        if rank(before[length - 1]) != 3:
            continue
        ways = [_followed(product, before[:length], bias, heads, s) for s in sizes]
        if ways and all(w is not None and _same(w, ways[0]) for w in ways):
            made = ways[0]
            assert made is not None
            made.path = before[:length]
            return made
    return None


def _same(a: _Input, b: _Input | None) -> bool:
    biases = (None if x is None or x.bias is None else x.bias[1].tolist() for x in (a, b))
    same = b is not None and a.swapped == b.swapped and np.array_equal(a.columns, b.columns)
    return same and len({str(x) for x in biases}) == 1


def _followed(
    product: Product, before: Sequence[ir.Value], bias: tuple[ir.Value, ir.Value] | None, heads: Heads, sizes: Sizes
) -> _Input | None:  # fmt: skip
    """The projection, if the heads are made of (batch, time, features) as `MultiHeadAttention` makes them."""
    shape = sizes.of(before[-1])
    start = None if shape is None else along(before, numbered(shape), sizes)
    if start is None or shape is None or start.ndim <= product.axes:
        return None
    lead, rows = start.shape[: start.ndim - product.axes], start.reshape(-1, product.rows)
    if shape[-1] != product.rows or not np.array_equal(rows, rows[:, :1] + np.arange(product.rows)):
        return None
    elements = (rows[:, :1] // product.rows * product.columns + np.arange(product.columns)).reshape(*lead, *product.ends)
    columns_of_bias, added = None if product.bias is None else np.arange(product.columns), product.bias
    found: Array | None = elements
    if bias is not None:
        total, added = bias
        operand = added_weight(total.producer())
        found = None if operand is None else along(path_before(operand[0]), elements, sizes)
        columns_of_bias = None if found is None else bias_of_columns(added, found % product.columns, product.columns)
        if columns_of_bias is None:
            return None
    found = None if found is None else along(path_before(heads.value), found, sizes)
    if found is None:
        return None
    found = heads.arrange(found)
    source, columns = found // product.columns, (found % product.columns)[0, :, 0, :]
    if not (found % product.columns == columns[None, :, None, :]).all():
        return None
    plain = np.arange(shape[0] * shape[1]).reshape(shape[:2])
    for swapped, order in ((False, plain), (True, plain.T)):
        if (*order.shape,) == (found.shape[0], found.shape[2]) and (source == order[:, None, :, None]).all():
            return _Input(product, before[-1], swapped, columns, None if added is None else (added, columns_of_bias))  # type: ignore[arg-type]
    return None


def _input_weights(found: _Input) -> list[Weight]:
    """The kernel as (features, heads, depth), and the bias as (heads, depth)."""
    product, columns = found.product, found.columns
    made = [Weight((product.kernel,), lambda: product.matrix()[:, columns.reshape(-1)].reshape(product.rows, *columns.shape))]
    if found.bias is not None:
        value, order = found.bias
        made.append(Weight((value,), lambda: weight(value).array().reshape(-1)[order[columns]]))
    return made


@dataclass
class _Output:
    """The projection of the heads' results: the product, the order of its rows, the bias, and the result."""

    product: Product
    order: Array
    sizes: tuple[int, int]
    bias: tuple[ir.Value, Array] | None
    swapped: bool
    nodes: tuple[ir.Node, ...]

    def weights(self) -> list[Weight]:
        """The kernel as (heads, depth, features), and the bias."""
        product, order = self.product, np.argsort(self.order)
        made = [Weight((product.kernel,), lambda: product.matrix()[order].reshape(*self.sizes, product.columns))]
        if self.bias is not None:
            value, columns = self.bias
            made.append(Weight((value,), lambda: weight(value).array().reshape(-1)[columns]))
        return made


def _output(
    result: Heads, inputs: tuple[_Input, _Input], nodes: Sequence[ir.Node], sizes: Sequence[Sizes]
) -> _Output | None:
    ways = [_followed_output(result, inputs, nodes, s) for s in sizes]
    first = ways[0] if ways else None
    if first is None or any(w is None or w.nodes != first.nodes or w.swapped != first.swapped for w in ways):
        return None
    return first if all(w is not None and np.array_equal(w.order, first.order) for w in ways) else None


def _followed_output(
    result: Heads, inputs: tuple[_Input, _Input], start: Sequence[ir.Node], sizes: Sizes
) -> _Output | None:
    """The projection that follows, if its result is (batch, time, features) again."""
    q, v = inputs
    shape = sizes.of(q.source)
    if shape is None:
        return None
    batch, time = reversed(shape[:2]) if q.swapped else shape[:2]
    count, depth = v.columns.shape
    found: Array | None = result.arrange(numbered((batch, time, count, depth)))
    value, nodes = result.value, list(start)
    while (user := only_user(value)) is not None and is_move(user) and user.inputs[0] is value and found is not None:
        value = user.outputs[0]
        found, nodes = moved(user, value, found, sizes), [*nodes, user]
    product = product_of(user)
    if user is None or product is None or found is None or product.x is not value or product.rows != count * depth:
        return None
    rows = found.reshape(-1, product.rows)
    order = rows[0] % product.rows
    if not np.array_equal(rows, rows[:, :1] // product.rows * product.rows + order):
        return None
    lead = found.shape[: found.ndim - product.axes]
    found = (rows[:, :1] // product.rows * product.columns + np.arange(product.columns)).reshape(*lead, *product.ends)
    value, nodes = user.outputs[0], [*nodes, user]
    bias: tuple[ir.Value, Array] | None = None if product.bias is None else (product.bias, np.arange(product.columns))
    ends: list[_Output] = []
    while found is not None:
        for swapped, axes in ((False, (0, 1, 2)), (True, _SWAPPED)):
            if np.array_equal(found, numbered((batch, time, product.columns)).transpose(axes)):
                ends.append(_Output(product, order, (count, depth), bias, swapped, tuple(nodes)))
        user = only_user(value)
        added = added_weight(user) if bias is None else None
        if user is not None and added is not None:
            columns = bias_of_columns(added[1], found % product.columns, product.columns)
            if columns is None or sizes.of(user.outputs[0]) != found.shape:
                break
            bias = added[1], columns
            ends.clear()
        elif user is not None and is_move(user) and user.inputs[0] is value:
            found = moved(user, user.outputs[0], found, sizes)
        else:
            break
        value, nodes = user.outputs[0], [*nodes, user]
    return next((e for e in ends if e.swapped == q.swapped), ends[0] if ends else None)


def _region(
    heads: Sequence[Heads], inputs: Sequence[_Input], end: _Output, mask: ir.Value | None, named: Mapping[str, Any]
) -> tuple[ir.Node, ...] | None:
    """All nodes that the layer replaces, the one that gives the result last; None if others read what they compute."""
    nodes = set(end.nodes)
    for each, head in zip(inputs, heads, strict=True):
        nodes.add(each.product.node)
        waiting = [head.value]
        while waiting:
            producer = waiting.pop().producer()
            if producer is not None and producer not in nodes:
                nodes.add(producer)
                operand = producer.inputs[0] if is_move(producer) else (added_weight(producer) or (None,))[0]
                waiting += [operand] if operand is not None else []
    last = end.nodes[-1]
    nodes |= _unused(_before(mask) - _before(*named.values(), *(i.source for i in inputs)), nodes)
    if any(o.is_graph_output() or any(u.node not in nodes for u in o.uses()) for n in nodes - {last} for o in n.outputs):
        return None
    if nodes & _before(*named.values()):  # the mask depends on what the layer replaces
        return None
    for each in inputs:  # the moves before a projection, where nothing else reads them
        for value in each.path[:-1]:
            mover = value.producer()
            if mover is None or any(u.node not in nodes for u in value.uses()):
                break
            nodes.add(mover)
    return (*(n for n in nodes if n is not last), last)


def _before(*values: Any) -> set[ir.Node]:
    """All nodes that values are computed by."""
    found: set[ir.Node] = set()
    waiting = [v for v in values if isinstance(v, ir.Value)]
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found.add(node)
            waiting += [v for v in node.inputs if v is not None]
    return found


def _unused(nodes: set[ir.Node], others: set[ir.Node]) -> set[ir.Node]:
    """Those of the nodes that only they and the others need."""
    while True:
        needed = {
            n for n in nodes for o in n.outputs
            if o.is_graph_output() or any(u.node not in nodes and u.node not in others for u in o.uses())
        }  # fmt: skip
        if not needed:
            return nodes
        nodes = nodes - needed
