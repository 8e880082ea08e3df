"""Resize by PyTorch's interpolation, if it samples the same coordinates; other cases are decomposed into products with weights.

PyTorch computes coordinates in float32, which is exact if the scales are powers of two.
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
        raise Unsupported("sizes, or scales that are not constant")
    if not X.dtype.is_floating_point:
        raise Unsupported("integer inputs")
    scale_by_axis = dict(
        zip(range(X.ndim) if axes is None else (a % X.ndim for a in axes), scales.constant.tolist(), strict=True)
    )
    factors = [float(scale_by_axis.get(d, 1.0)) for d in range(X.ndim)]
    if factors[:2] != [1.0, 1.0]:
        raise Unsupported("resizing the batch or channel dimension")
    factor = tuple(factors[2:])
    if mode == "nearest":
        if not all(map(_same_nearest, factor)) or (coordinate_transformation_mode, nearest_mode) not in _NEAREST:
            raise Unsupported("nearest coordinates that differ from PyTorch's")
        return F.interpolate(X, scale_factor=factor, mode="nearest")
    if not all(math.frexp(f)[0] == 0.5 and _gives_integer_size(n, f) for f, n in zip(factor, X.shape[2:], strict=True)):
        raise Unsupported("scales that are not powers of two")
    if coordinate_transformation_mode not in _CENTRED or (min(factor) < 1 and coordinate_transformation_mode != "half_pixel"):
        raise Unsupported(f"coordinate_transformation_mode {coordinate_transformation_mode}")
    if mode == "linear":
        return F.interpolate(X, scale_factor=factor, mode=_LINEAR[X.ndim], align_corners=False)
    if X.ndim != 4 or exclude_outside or cubic_coeff_a != _CUBIC:
        raise Unsupported("exclude_outside or another cubic_coeff_a")
    return F.interpolate(X, scale_factor=factor, mode="bicubic", align_corners=False)


_ROUNDED = ("round_prefer_floor", "round_prefer_ceil")
_NEAREST = frozenset({("asymmetric", "floor"), *((centred, rounded) for centred in _CENTRED[:2] for rounded in _ROUNDED)})


def _same_nearest(factor):
    """Whether nearest indices are floor(i / factor) for an integer factor, also in float32."""
    return factor.is_integer() and factor >= 1 and Fraction(float(np.float32(1) / np.float32(factor))) >= Fraction(1, int(factor))


def _gives_integer_size(size, factor):
    """Whether a size times a factor is certainly an integer: rounding a size changes the coordinates of some modes."""
    return factor >= 1 or (isinstance(size, int) and (size * factor).is_integer())
