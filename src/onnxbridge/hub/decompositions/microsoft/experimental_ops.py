"""Experimental operators of early ONNX versions that were removed; old image models contain them."""

from __future__ import annotations

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import contrib


@contrib("Affine")
def affine(op, X, *, alpha=1.0, beta=0.0):
    return op.Add(op.Mul(X, alpha), beta)


@contrib("Scale")
def scale_(op, input, *, scale=1.0):
    return op.Mul(input, scale)


@contrib("ImageScaler")
def image_scaler(op, input, *, bias=(), scale=1.0):
    """Scales, then adds a bias per channel."""
    y = op.Mul(input, scale)
    return op.Add(y, op.Reshape(op.CastLike([float(b) for b in bias], input), [-1, 1, 1])) if bias else y


@contrib("Crop")
def crop(op, input, *, border, scale=()):
    """Crops an image by `border` (left, top, right, bottom), or to size `scale` from (left, top)."""
    left, top, right, bottom = border
    if scale:
        return op.Slice(input, [top, left], [top + scale[0], left + scale[1]], [2, 3])
    ends = [-n if n else 2**62 for n in (bottom, right)]
    return op.Slice(input, [top, left], ends, [2, 3])


@contrib("ParametricSoftplus")
def parametric_softplus(op, X, *, alpha, beta):
    return op.Mul(op.Softplus(op.Mul(X, beta)), alpha)


@contrib("ScaledTanh")
def scaled_tanh(op, input, *, alpha, beta):
    return op.Mul(op.Tanh(op.Mul(input, beta)), alpha)


@contrib("DynamicSlice")
def dynamic_slice(op, data, starts, ends, axes=None):
    if data.shape is None and axes is None:
        raise Unsupported("DynamicSlice of an input of unknown rank without axes")
    return op.Slice(data, starts, ends, axes)
