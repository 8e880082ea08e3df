"""Resize by PyTorch's own resampling, where that looks at the same places; the rest goes through products with weights.

PyTorch takes a place in float32. Where the scales are powers of two no digit of it is lost.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.errors import Unsupported

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
_CENTRED = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
_CUBIC = -0.75


@rule("Resize")
def resize(
    X, roi=None, scales=None, sizes=None, *, antialias=0, axes=None, coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=_CUBIC, exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch", mode="nearest",
    nearest_mode="round_prefer_floor",
):  # fmt: skip
    if scales is None or scales.constant is None or not X.is_known or X.ndim not in _LINEAR or antialias:
        raise Unsupported("sizes, or scales that are not known")
    if not X.dtype.is_floating_point:
        raise Unsupported("whole numbers")
    given = dict(zip(range(X.ndim) if axes is None else (a % X.ndim for a in axes), scales.constant.tolist(), strict=True))
    factors = [float(given.get(d, 1.0)) for d in range(X.ndim)]
    if factors[:2] != [1.0, 1.0]:
        raise Unsupported("a resized batch, or resized channels")
    factor = tuple(factors[2:])
    if mode == "nearest":
        if not all(map(_looks_alike, factor)) or (coordinate_transformation_mode, nearest_mode) not in _NEAREST:
            raise Unsupported("places that lie between two")
        return F.interpolate(X, scale_factor=factor, mode="nearest")
    if not all(math.frexp(f)[0] == 0.5 and _divides(n, f) for f, n in zip(factor, X.shape[2:], strict=True)):
        raise Unsupported("places that float32 rounds")
    if coordinate_transformation_mode not in _CENTRED or (min(factor) < 1 and coordinate_transformation_mode != "half_pixel"):
        raise Unsupported(f"places by {coordinate_transformation_mode}")
    if mode == "linear":
        return F.interpolate(X, scale_factor=factor, mode=_LINEAR[X.ndim], align_corners=False)
    if X.ndim != 4 or exclude_outside or cubic_coeff_a != _CUBIC:
        raise Unsupported("another cubic")
    return F.interpolate(X, scale_factor=factor, mode="bicubic", align_corners=False)


_ROUNDED = ("round_prefer_floor", "round_prefer_ceil")
_NEAREST = frozenset({("asymmetric", "floor"), *((centred, rounded) for centred in _CENTRED[:2] for rounded in _ROUNDED)})


def _looks_alike(factor):
    """Whether a place is the whole part of an element's index over a whole factor, in float32 as well."""
    return factor.is_integer() and factor >= 1 and Fraction(float(np.float32(1) / np.float32(factor))) >= Fraction(1, int(factor))


def _divides(size, factor):
    """Whether a size times a factor is whole for certain: a size that is cut off moves the places of some modes."""
    return factor >= 1 or (isinstance(size, int) and (size * factor).is_integer())
