"""Normalizations written out in means, squares and roots: by the last axes, by channel, and by groups of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.fold import sizes, static
from onnxbridge.hub.patterns.forms import form
from onnxbridge.hub.patterns.match import Either, Number, Op, Pattern, Power, Product, Value

X, AXES, SCALE, SHIFT, EPSILON = Value("x"), Value("axes"), Value("scale"), Value("shift"), Number("epsilon")
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_KEEPS: dict[str, Any] = {"keepdims": lambda keepdims: keepdims in (None, 1)}


def _deviation(squares: Pattern) -> Power:
    """1 / sqrt(mean of squares + epsilon), as a factor."""
    return Power(Op("Add", Op("ReduceMean", squares, AXES, **_KEEPS), EPSILON), -0.5)


def _centred(x: Pattern) -> Pattern:
    return Op("Sub", x, Op("ReduceMean", x, AXES, **_KEEPS))


def _factors(x: Pattern) -> tuple[Pattern, Power]:
    """x without its mean, and by what it is divided."""
    return _centred(x), _deviation(Product(Power(_centred(x), 2.0)))


_WIDE = Op("Cast", X, to=ir.DataType.FLOAT.value)


def _narrowed(*factors: Pattern | Power) -> Pattern:
    """What was computed of a half-precision value in float32, cast back to half precision."""
    return Op("Cast", Product(*factors), node="cast")


_MEAN = Op("ReduceMean", X, AXES, **_KEEPS)
_SQUARED = _factors(X)[1]
# x f + (shift - mean f) with f = scale / sqrt(variance + epsilon), as tf.nn.batch_normalization writes it.
_AFFINE = Op(
    "Add",
    Product(X, SCALE, _SQUARED),
    Either((Op("Sub", SHIFT, Product(_MEAN, SCALE, _SQUARED)), Op("Add", SHIFT, Product(-1.0, _MEAN, SCALE, _SQUARED)))),
)


@form("InstanceNormalization", Op("Add", Product(*_factors(X), SCALE), SHIFT), _AFFINE)
def instance(op: Builder, x: ir.Value, axes: ir.Value, epsilon: float, scale: ir.Value, shift: ir.Value) -> Any:
    """Each channel by its mean and variance over the axes after it."""
    rank, channels = _rank(x), _channels(x)
    if x.dtype != ir.DataType.FLOAT or not rank or rank < 3 or _over(x, axes) != list(range(2, rank)):
        return None
    if channels is None or not all(_by_channel(v, channels, rank) for v in (scale, shift)):
        return None
    return op.InstanceNormalization(x, op.Reshape(scale, [channels]), op.Reshape(shift, [channels]), epsilon=epsilon)


@form("LayerNormalization", _AFFINE, Product(*_factors(X), SCALE), Product(_narrowed(*_factors(_WIDE)), SCALE))
def layer(
    op: Builder, x: ir.Value, axes: ir.Value, epsilon: float, scale: ir.Value, shift: ir.Value | None = None,
    cast: ir.Node | None = None,
) -> Any:  # fmt: skip
    """The last axes by their mean and variance, times a scale."""
    count = _last(x, axes, cast)
    if not count or not all(v is None or _by_feature(v, x, count) for v in (scale, shift)):
        return None
    weights = [op.Reshape(v, _features(x, count)) if _rank(v) != count else v for v in (scale, shift) if v is not None]
    return op.LayerNormalization(x, *weights, axis=-count, epsilon=epsilon)


@form("LayerNormalization", Op("Add", Op("LayerNormalization", X, SCALE, node="norm", axis=lambda axis: True), SHIFT))
def shifted(op: Builder, x: ir.Value, scale: ir.Value, norm: ir.Node, shift: ir.Value) -> Any:
    """A shift added to a normalization without one."""
    count = _rank(scale)
    if shift.const_value is None or not count or not _by_feature(shift, x, count) or norm.attributes.get("stash_type"):
        return None
    shift = op.Reshape(shift, _features(x, count)) if _rank(shift) != count else shift
    return op.LayerNormalization(x, scale, shift, axis=-count, epsilon=norm.attributes["epsilon"].as_float())


def _squares(x: Pattern) -> Pattern:
    return Product(Power(x, 2.0))


@form(
    "RMSNormalization",
    Product(X, _deviation(_squares(X)), SCALE),
    Product(_narrowed(_WIDE, _deviation(_squares(_WIDE))), SCALE),
)
def root_mean_square(
    op: Builder, x: ir.Value, axes: ir.Value, epsilon: float, scale: ir.Value, cast: ir.Node | None = None
) -> Any:
    """The last axes by the root of the mean of their squares, times a scale."""
    count = _last(x, axes, cast)
    if not count or scale.dtype != x.dtype or not _by_feature(scale, x, count):
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
    """Groups of channels as the channels of an InstanceNormalization: so torch.onnx writes it."""
    rank, channels, shape, after = _rank(x), _channels(x), sizes(rows), sizes(back)
    if not rank or rank < 3 or channels is None or shape is None or len(shape) != 3 or shape[2] != -1:
        return None
    groups, gain, offset, dims = shape[1], static(ones), static(zeros), [d if isinstance(d, int) else None for d in x.shape or ()]
    batch = shape[0] == 0 or (shape[0] is not None and shape[0] == dims[0])
    if not batch or not groups or groups < 1 or channels % groups or not _shape_of(x, back, after, dims):
        return None
    if gain is None or offset is None or (gain != 1).any() or (offset != 0).any():
        return None
    if not all(_by_channel(v, channels, rank) and v.dtype == x.dtype for v in (scale, shift)):
        return None
    epsilon = norm.attributes.get("epsilon")
    weights = op.Reshape(scale, [channels]), op.Reshape(shift, [channels])
    return op.GroupNormalization(x, *weights, epsilon=epsilon.as_float() if epsilon else 1e-5, num_groups=groups)


def _shape_of(x: ir.Value, back: ir.Value, after: Sequence[int | None] | None, dims: Sequence[int | None]) -> bool:
    """Whether a Reshape to `back` gives the shape that x has."""
    node = back.producer()
    if node is not None and node.op_type == "Shape" and node.inputs[0] is x and not node.attributes:
        return True
    if after is None or len(after) != len(dims):
        return False
    fits = [a is not None and a == d for a, d in zip(after, dims, strict=True)]
    return fits.count(False) <= 1 and all(ok or a == -1 for ok, a in zip(fits, after, strict=True))


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _channels(x: ir.Value) -> int | None:
    channels = x.shape[1] if x.shape is not None and len(x.shape) > 1 else None
    return channels if isinstance(channels, int) else None


def _over(x: ir.Value, axes: ir.Value) -> list[int] | None:
    """The axes of a reduction, from the front, in their order."""
    rank, found = _rank(x), static(axes)
    return None if rank is None or found is None else sorted(int(a) % rank for a in found.reshape(-1))


def _last(x: ir.Value, axes: ir.Value, cast: ir.Node | None) -> int:
    """How many axes a reduction is over, if these are the last ones, in the precision that the operator has; otherwise 0."""
    rank, over = _rank(x), _over(x, axes)
    if rank is None or not over or over != list(range(rank - len(over), rank)):
        return 0
    if cast is None:
        return len(over) if x.dtype == ir.DataType.FLOAT else 0
    return len(over) if x.dtype in _HALVES and cast.attributes["to"].as_int() == x.dtype else 0


def _features(x: ir.Value, count: int) -> list[int]:
    return [d for d in (x.shape or ())[-count:] if isinstance(d, int)]


def _by_feature(value: ir.Value, x: ir.Value, count: int) -> bool:
    """Whether a value has a number for each position that is normalized; a constant may have more axes before them."""
    features, dims = _features(x, count), list(value.shape or ())
    before = dims[: len(dims) - count]
    extra = not before or (value.const_value is not None and all(d == 1 for d in before) and len(dims) <= (_rank(x) or 0))
    return len(features) == count and dims[-count:] == features and extra and value.dtype == x.dtype


def _by_channel(value: ir.Value, channels: int, rank: int) -> bool:
    """Whether a constant has a number for each channel, and broadcasts over the axes after it."""
    dims = [] if value.shape is None or value.const_value is None else list(value.shape)
    whole = [1] * (rank - len(dims)) + dims
    return len(dims) <= rank and math.prod(d for d in whole if isinstance(d, int)) == channels == whole[1]
