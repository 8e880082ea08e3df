"""LabelEncoder, CategoryMapper and OneHotEncoder by comparing with every key."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose


def _matches(op, X, keys):
    """Mask of the key that each element equals, (..., keys)."""
    x = op.Unsqueeze(X, [len(X.shape)])
    if X.dtype.name == "STRING":
        return op.Equal(x, op.constant(np.asarray(keys, object)))
    keys = np.asarray(keys)
    matches = op.Equal(x, op.constant(keys, dtype=X.dtype))
    return op.Or(matches, op.And(op.IsNaN(x), np.isnan(keys))) if keys.dtype.kind == "f" and np.isnan(keys).any() else matches


def _look_up(op, X, keys, values, default):
    """The value of the last key that equals each element, or the default."""
    if not len(keys):
        raise Unsupported("a lookup table without keys")
    matches = op.Cast(_matches(op, X, keys), to=1)
    table = np.concatenate((values[::-1], [default])).astype(values.dtype)
    # keys in reverse, because ArgMax returns the first of several matches; elements without a match get the index of the default
    reversed_matches = op.Slice(matches, [-1], [np.iinfo(np.int64).min], [-1], [-1])
    has_match = op.ReduceMax(matches, [-1], keepdims=0)
    index = op.Where(op.Greater(has_match, 0.5), op.ArgMax(reversed_matches, axis=-1, keepdims=0), np.int64(len(keys)))
    return op.Gather(op.constant(table), index, axis=0)


@decompose("ai.onnx.ml::LabelEncoder")
def label_encoder(
    op, X, *, default_float=-0.0, default_int64=-1, default_string="_Unused", default_tensor=None, keys_floats=None,
    keys_int64s=None, keys_strings=None, keys_tensor=None, values_floats=None, values_int64s=None, values_strings=None,
    values_tensor=None,
):  # fmt: skip
    keys = next((k for k in (keys_floats, keys_int64s, keys_strings, keys_tensor) if k is not None), ())
    if values_tensor is not None:
        values = np.asarray(values_tensor)
        default = np.zeros(1, values.dtype) if default_tensor is None else np.asarray(default_tensor).reshape(-1)
        return _look_up(op, X, keys, values, default[0])
    if values_strings is not None:
        return _look_up(op, X, keys, np.array(values_strings, object), default_string)
    if values_int64s is not None:
        return _look_up(op, X, keys, np.array(values_int64s, np.int64), default_int64)
    return _look_up(op, X, keys, np.array(values_floats, np.float32), default_float)


@decompose("ai.onnx.ml::CategoryMapper")
def category_mapper(op, X, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"):
    if X.dtype.name == "STRING":
        return _look_up(op, X, cats_strings, np.array(cats_int64s, np.int64), default_int64)
    return _look_up(op, X, cats_int64s, np.array(cats_strings, object), default_string)


@decompose("ai.onnx.ml::OneHotEncoder")
def one_hot_encoder(op, X, *, cats_int64s=None, cats_strings=None, zeros=1):
    """Elements of no category become zeros; a graph cannot raise the error that zeros=0 requires."""
    if not zeros:
        raise Unsupported("zeros=0, which requires an error for unknown categories")
    x = X if X.dtype.name == "STRING" else op.Cast(X, to=7)
    return op.Cast(_matches(op, x, cats_strings or cats_int64s), to=1)
