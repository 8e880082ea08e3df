"""Patterns of LayerNormalization, RMSNormalization, InstanceNormalization and GroupNormalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.fold import constant_array, known_sizes
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Either, Number, Op, Pattern, Power, Product, Value

X, AXES, SCALE, SHIFT, EPSILON = Value("x"), Value("axes"), Value("scale"), Value("shift"), Number("epsilon")
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_KEEPDIMS: dict[str, Any] = {"keepdims": lambda keepdims: keepdims in (None, 1)}


def _deviation(squares: Pattern) -> Power:
    """The factor 1 / sqrt(mean of squares + epsilon)."""
    return Power(Op("Add", Op("ReduceMean", squares, AXES, **_KEEPDIMS), EPSILON), -0.5)


def _centered(x: Pattern) -> Pattern:
    return Op("Sub", x, Op("ReduceMean", x, AXES, **_KEEPDIMS))


def _factors(x: Pattern) -> tuple[Pattern, Power]:
    """x minus its mean, and the reciprocal of its standard deviation."""
    return _centered(x), _deviation(Product(Power(_centered(x), 2.0)))


_WIDE = Op("Cast", X, to=ir.DataType.FLOAT.value)


def _cast_to_half(*factors: Pattern | Power) -> Pattern:
    """A product of a half-precision value computed in float32, cast back to half precision."""
    return Op("Cast", Product(*factors), node="cast")


_MEAN = Op("ReduceMean", X, AXES, **_KEEPDIMS)
_SQUARED = _factors(X)[1]
# x f + (shift - mean f) with f = scale / sqrt(variance + epsilon), the form of tf.nn.batch_normalization.
_AFFINE = Op(
    "Add",
    Product(X, SCALE, _SQUARED),
    Either((Op("Sub", SHIFT, Product(_MEAN, SCALE, _SQUARED)), Op("Add", SHIFT, Product(-1.0, _MEAN, SCALE, _SQUARED)))),
)


@form("InstanceNormalization", Op("Add", Product(*_factors(X), SCALE), SHIFT), _AFFINE)
def instance(op: Builder, x: ir.Value, axes: ir.Value, epsilon: float, scale: ir.Value, shift: ir.Value) -> Any:
    """Normalization of each channel over the spatial axes."""
    rank, channels = _rank(x), _channels(x)
    if x.dtype != ir.DataType.FLOAT or not rank or rank < 3 or _reduced_axes(x, axes) != list(range(2, rank)):
        return None
    if channels is None or not all(_is_per_channel(v, channels, rank) for v in (scale, shift)):
        return None
    return op.InstanceNormalization(x, op.Reshape(scale, [channels]), op.Reshape(shift, [channels]), epsilon=epsilon)


@form("LayerNormalization", _AFFINE, Product(*_factors(X), SCALE), Product(_cast_to_half(*_factors(_WIDE)), SCALE))
def layer(
    op: Builder, x: ir.Value, axes: ir.Value, epsilon: float, scale: ir.Value, shift: ir.Value | None = None,
    cast: ir.Node | None = None,
) -> Any:  # fmt: skip
    """Normalization over the last axes, with a scale."""
    count = _reduced_last_axes(x, axes, cast)
    if not count or not all(v is None or _is_per_feature(v, x, count) for v in (scale, shift)):
        return None
    weights = [op.Reshape(v, _features(x, count)) if _rank(v) != count else v for v in (scale, shift) if v is not None]
    return op.LayerNormalization(x, *weights, axis=-count, epsilon=epsilon)


@form("LayerNormalization", Op("Add", Op("LayerNormalization", X, SCALE, node="norm", axis=lambda axis: True), SHIFT))
def layer_with_bias(op: Builder, x: ir.Value, scale: ir.Value, norm: ir.Node, shift: ir.Value) -> Any:
    """A LayerNormalization without bias, followed by an Add of the bias."""
    count = _rank(scale)
    if shift.const_value is None or not count or not _is_per_feature(shift, x, count) or norm.attributes.get("stash_type"):
        return None
    shift = op.Reshape(shift, _features(x, count)) if _rank(shift) != count else shift
    return op.LayerNormalization(x, scale, shift, axis=-count, epsilon=norm.attributes["epsilon"].as_float())


def _squares(x: Pattern) -> Pattern:
    return Product(Power(x, 2.0))


@form(
    "RMSNormalization",
    Product(X, _deviation(_squares(X)), SCALE),
    Product(_cast_to_half(_WIDE, _deviation(_squares(_WIDE))), SCALE),
)
def root_mean_square(
    op: Builder, x: ir.Value, axes: ir.Value, epsilon: float, scale: ir.Value, cast: ir.Node | None = None
) -> Any:
    """Division by the root mean square over the last axes, with a scale."""
    count = _reduced_last_axes(x, axes, cast)
    if not count or scale.dtype != x.dtype or not _is_per_feature(scale, x, count):
        return None
    scale = op.Reshape(scale, _features(x, count)) if _rank(scale) != count else scale
    return op.RMSNormalization(x, scale, axis=-count, epsilon=epsilon)


_ONES, _ZEROS, _ROWS, _BACK = Value("ones"), Value("zeros"), Value("rows"), Value("back")


@form(
    "GroupNormalization",
    Op(
        "Add",
        Product(Op("Reshape", Op("InstanceNormalization", Op("Reshape", X, _ROWS), _ONES, _ZEROS, node="norm"), _BACK), SCALE),
        SHIFT,
    ),
)
def group(
    op: Builder, x: ir.Value, rows: ir.Value, ones: ir.Value, zeros: ir.Value, norm: ir.Node, back: ir.Value,
    scale: ir.Value, shift: ir.Value,
) -> Any:  # fmt: skip
    """InstanceNormalization with the groups as channels, as torch.onnx decomposes it."""
    rank, channels, shape, after = _rank(x), _channels(x), known_sizes(rows), known_sizes(back)
    if not rank or rank < 3 or channels is None or shape is None or len(shape) != 3 or shape[2] != -1:
        return None
    groups, scale_array, offset, dims = (
        shape[1],
        constant_array(ones),
        constant_array(zeros),
        [d if isinstance(d, int) else None for d in x.shape or ()],
    )
    batch = shape[0] == 0 or (shape[0] is not None and shape[0] == dims[0])
    if not batch or not groups or groups < 1 or channels % groups or not _shape_of(x, back, after, dims):
        return None
    if scale_array is None or offset is None or (scale_array != 1).any() or (offset != 0).any():
        return None
    if not all(_is_per_channel(v, channels, rank) and v.dtype == x.dtype for v in (scale, shift)):
        return None
    epsilon = norm.attributes.get("epsilon")
    weights = op.Reshape(scale, [channels]), op.Reshape(shift, [channels])
    return op.GroupNormalization(x, *weights, epsilon=epsilon.as_float() if epsilon else 1e-5, num_groups=groups)


def _shape_of(x: ir.Value, back: ir.Value, after: Sequence[int | None] | None, dims: Sequence[int | None]) -> bool:
    """Whether a Reshape to `back` restores the shape of x."""
    node = back.producer()
    if node is not None and node.op_type == "Shape" and node.inputs[0] is x and not node.attributes:
        return True
    if after is None or len(after) != len(dims):
        return False
    equal = [a is not None and a == d for a, d in zip(after, dims, strict=True)]
    return equal.count(False) <= 1 and all(ok or a == -1 for ok, a in zip(equal, after, strict=True))


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _channels(x: ir.Value) -> int | None:
    channels = x.shape[1] if x.shape is not None and len(x.shape) > 1 else None
    return channels if isinstance(channels, int) else None


def _reduced_axes(x: ir.Value, axes: ir.Value) -> list[int] | None:
    """The axes of a reduction, non-negative and sorted."""
    rank, found = _rank(x), constant_array(axes)
    return None if rank is None or found is None else sorted(int(a) % rank for a in found.reshape(-1))


def _reduced_last_axes(x: ir.Value, axes: ir.Value, cast: ir.Node | None) -> int:
    """The number of reduced axes if these are the last ones and the operator computes in the same precision; otherwise 0."""
    rank, over = _rank(x), _reduced_axes(x, axes)
    if rank is None or not over or over != list(range(rank - len(over), rank)):
        return 0
    if cast is None:
        return len(over) if x.dtype == ir.DataType.FLOAT else 0
    return len(over) if x.dtype in _HALVES and cast.attributes["to"].as_int() == x.dtype else 0


def _features(x: ir.Value, count: int) -> list[int]:
    return [d for d in (x.shape or ())[-count:] if isinstance(d, int)]


def _is_per_feature(value: ir.Value, x: ir.Value, count: int) -> bool:
    """Whether a value has an element for each normalized position; a constant may have leading axes of size 1."""
    features, dims = _features(x, count), list(value.shape or ())
    before = dims[: len(dims) - count]
    extra = not before or (value.const_value is not None and all(d == 1 for d in before) and len(dims) <= (_rank(x) or 0))
    return len(features) == count and dims[-count:] == features and extra and value.dtype == x.dtype


def _is_per_channel(value: ir.Value, channels: int, rank: int) -> bool:
    """Whether a constant has an element for each channel and broadcasts over the spatial axes."""
    dims = [] if value.shape is None or value.const_value is None else list(value.shape)
    whole = [1] * (rank - len(dims)) + dims
    return len(dims) <= rank and math.prod(d for d in whole if isinstance(d, int)) == channels == whole[1]
