"""Resizing and sampling."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import fixed, is_float, permuted, rank, within
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.fold import evaluate
from onnxbridge.rules import Floats, Ints


@rule("Resize")
def resize(
    sym, X, roi: Floats | None = None, scales: Floats | None = None, sizes: Ints | None = None, *, antialias=0, axes=None,
    coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch", mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Every mode is linear and separable: a product with a matrix for each resized axis."""
    if coordinate_transformation_mode == "tf_crop_and_resize":
        raise Unsupported("coordinate_transformation_mode='tf_crop_and_resize' is not supported")
    if keep_aspect_ratio_policy != "stretch":
        raise Unsupported(f"keep_aspect_ratio_policy={keep_aspect_ratio_policy!r} is not supported")
    chosen = [a % rank(X) for a in axes] if axes is not None else list(range(rank(X)))
    factors = dict(zip(chosen, scales or [], strict=False))
    if mode == "nearest" and _is_integer_repeat(X, factors, coordinate_transformation_mode, nearest_mode):
        return sym.UpSampling(X, scale=int(factors[3]), sample_type="nearest")
    if not is_float(X):
        raise Unsupported(f"resizing {X.dtype} is not supported")
    shared = {
        "antialias": antialias, "coordinate_transformation_mode": coordinate_transformation_mode, "cubic_coeff_a": cubic_coeff_a,
        "exclude_outside": exclude_outside, "mode": mode, "nearest_mode": nearest_mode,
    }  # fmt: skip
    if X.dtype == np.float16:  # MXNet has no float16 products on a CPU
        return within(sym, lambda x: _resized(sym, x, chosen, scales, sizes, shared), np.float32, X)
    return _resized(sym, X, chosen, scales, sizes, shared)


def _resized(sym, X, chosen, scales, sizes, shared):
    """Every axis by a product with the weights of the old pixels for the new ones."""
    y, current = X, list(X.shape)
    for i, axis in enumerate(chosen):
        (size,) = fixed(X, [axis])
        if (scales[i] == 1) if scales else (sizes[i] == size):
            continue
        matrix = _weights(size, scales[i] if scales else None, sizes[i] if not scales else None, shared).astype(X.dtype)
        last = rank(X) - 1
        order = [axis if d == last else last if d == axis else d for d in range(rank(X))]
        y = y if axis == last else permuted(sym, y, order)
        y = sym.FullyConnected(y, np.ascontiguousarray(matrix), num_hidden=len(matrix), no_bias=True, flatten=False)
        y = y if axis == last else permuted(sym, y, order)
        y.dtype = X.dtype
        current[axis] = len(matrix)
    return y


def _is_integer_repeat(x, factors, coordinates, nearest):
    """Whether this repeats each pixel an integer number of times, equally in both directions."""
    scale = factors.get(3, 0)
    same = rank(x) == 4 and scale == int(scale) > 0 and factors.get(2) == scale and factors.get(0, 1) == factors.get(1, 1) == 1
    return same and coordinates == "asymmetric" and nearest == "floor" and is_float(x)


def _weights(size, scale, out, shared):
    """The weights of the old pixels for each new one: ONNX's Resize of the identity."""
    eye = np.eye(size, dtype=np.float64)
    attributes = [_attribute(k, v) for k, v in shared.items()]
    arrays = [eye, None, np.array([scale, 1.0], np.float32)] if scale else [eye, None, None, np.array([out, size], np.int64)]
    values = [None if a is None else ir.Value(const_value=ir.tensor(a)) for a in arrays]
    found = evaluate(ir.Node("", "Resize", values, attributes), arrays)
    if found is None:
        raise Unsupported("the executor has no rule for Resize")
    return found[0]


def _attribute(name, value):
    if isinstance(value, str):
        return ir.AttrString(name, value)
    return ir.AttrFloat32(name, value) if isinstance(value, float) else ir.AttrInt64(name, value)


@rule("GridSample")
def grid_sample(sym, X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    if (align_corners, mode, padding_mode) != (1, "linear", "zeros") or rank(X) != 4:
        raise Unsupported("MXNet only supports two dimensions, linear mode, zero padding and align_corners=1")
    return sym.BilinearSampler(X, sym.transpose(grid, axes=(0, 3, 1, 2)))
