"""Maps, which are Python dictionaries, and their conversion to tensors."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim, current
from onnxbridge.runtime.executor.numpy.cast import cast
from onnxbridge.runtime.executor.numpy.ops import rule


@rule("ai.onnx.ml::ZipMap")
def zip_map(X, *, classlabels_int64s=None, classlabels_strings=None):
    keys = classlabels_strings or classlabels_int64s
    rows = X.reshape(1, -1) if X.ndim == 1 else X
    if rows.shape[1] != len(keys):
        raise ValueError(f"{rows.shape[1]} columns for {len(keys)} keys")
    current().check_items(X.size)
    return [dict(zip(keys, row, strict=True)) for row in rows.tolist()]


@rule("ai.onnx.ml::CastMap")
def cast_map(X, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    """The values in the order of their keys; of a sparse map, each value is at the index of its key."""
    types = {"TO_FLOAT": np.float32, "TO_STRING": object, "TO_INT64": np.int64}
    if cast_to not in types or map_form not in ("DENSE", "SPARSE"):
        raise Unsupported(f"cast_to {cast_to!r} of a map_form {map_form!r}")
    to, keys = np.dtype(types[cast_to]), sorted(X)
    values = cast(_array([X[k] for k in keys]), to)
    if map_form == "DENSE":
        return values[None]
    if keys and not 0 <= keys[0] <= keys[-1] < max_map:
        raise ValueError(f"the keys {keys[0]} to {keys[-1]} exceed max_map={max_map}")
    claim((1, max_map), to)
    sparse = np.full((1, max_map), "" if to.kind == "O" else 0, to)
    sparse[0, keys] = values
    return sparse


@rule("ai.onnx.ml::DictVectorizer")
def dict_vectorizer(X, *, int64_vocabulary=None, string_vocabulary=None):
    """The value of each key of the vocabulary, 0 or an empty string where the map has none: (1, keys)."""
    keys = string_vocabulary or int64_vocabulary
    unknown = set(X) - set(keys)
    if unknown:
        raise ValueError(f"the vocabulary has no {min(unknown)!r}")
    values = _array(list(X.values()))
    return np.array([[X.get(k, "" if values.dtype == object else 0) for k in keys]], values.dtype)


def _array(values):
    """The values as a tensor; Python numbers become float32 or int64."""
    if values and isinstance(values[0], str):
        return np.array(values, object)
    if values and isinstance(values[0], (np.ndarray, np.generic)):
        return np.stack(values).reshape(len(values))
    return np.array(values, np.float32 if not values or isinstance(values[0], float) else np.int64)


@rule("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(*X, inputdimensions=None):
    """The concatenated columns of all inputs; an input of one dimension is a row."""
    rows = [x.reshape(1, -1) if x.ndim == 1 else x for x in X]
    if inputdimensions and [r.shape[1] for r in rows] != list(inputdimensions):
        raise ValueError(f"the inputs have {[r.shape[1] for r in rows]} columns, not {list(inputdimensions)}")
    claim((rows[0].shape[0], sum(r.shape[1] for r in rows)), np.float32)
    return np.concatenate([r.astype(np.float32) for r in rows], 1)
