"""Values of interest: constants that the graph compares an input with, such as thresholds and vocabulary words.

Random elements never equal a word and are seldom close to a threshold, so these branches would stay untested.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.runtime.verify.samples.input_uses import COMPARISONS, constant_of, position_count, uses

MOST_CONSTANTS = 64
"""The number of constants used of one operator, spread evenly over all of its constants."""
_ORDERED = frozenset({*COMPARISONS, "Clip", "Max", "Min"})
_COMPARED_ATTRIBUTES = {
    "StringNormalizer": ("stopwords",), "TfIdfVectorizer": ("pool_strings", "pool_int64s"),
    "LabelEncoder": ("keys_strings", "keys_int64s", "keys_floats", "keys_tensor", "classes_strings"),
    "CategoryMapper": ("cats_strings", "cats_int64s"), "OneHotEncoder": ("cats_strings", "cats_int64s"),
    "Imputer": ("replaced_value_float", "replaced_value_int64"), "RegexFullMatch": ("pattern",),
}  # fmt: skip
_THRESHOLDS = {"Binarizer": "threshold", "ThresholdedRelu": "alpha", "Clip": "min"}
_TREES = {"TreeEnsembleRegressor": "nodes_values", "TreeEnsembleClassifier": "nodes_values", "TreeEnsemble": "nodes_splits"}


def values_of_interest(value: ir.Value) -> list[Any]:
    """Elements to include in an input: the constants that it is compared with, and numbers on both sides of thresholds."""
    exact: list[Any] = []
    thresholds: list[Any] = []
    for node, i in uses(value):
        if node.op_type == "Equal":
            exact += _elements(constant_of(node.inputs[1 - i]))
        elif node.op_type in COMPARISONS and position_count(node.inputs[1 - i]) is not None:
            continue  # the input holds lengths, which are drawn from all of these positions
        elif node.op_type in _ORDERED:
            for k, other in enumerate(node.inputs):
                thresholds += _elements(constant_of(other)) if k != i else []
        elif i == 0:
            exact += [v for name in _COMPARED_ATTRIBUTES.get(node.op_type, ()) for v in _attribute(node, name)]
            thresholds += _attribute(node, _THRESHOLDS.get(node.op_type, ""))
    dtype = value.dtype
    if dtype is None:
        return []
    if dtype == ir.DataType.STRING:
        return list(dict.fromkeys(text for v in exact for text in _spellings(v)))
    if dtype.is_integer():
        return _integers(dtype, exact, thresholds)
    return _numbers(dtype, [*exact, *thresholds]) if dtype.is_floating_point() else []


def vocabulary(value: ir.Value) -> list[str]:
    """Strings that the graph of an input compares anything with."""
    found: list[Any] = []
    for node in value.graph.all_nodes() if isinstance(value.graph, ir.Graph) else ():
        if node.op_type == "Equal":
            found += [v for other in node.inputs for v in _elements(constant_of(other))]
        for name in _COMPARED_ATTRIBUTES.get(node.op_type, ()):
            found += _attribute(node, name) if node.op_type != "RegexFullMatch" else []
    texts = (v.decode(errors="replace") if isinstance(v, bytes) else v for v in found)
    return list(dict.fromkeys(v for v in texts if isinstance(v, str) and v.strip()))


def thresholds_by_column(value: ir.Value) -> dict[int, list[Any]]:
    """The values of interest of each column (feature) of an input of tree ensembles."""
    found: dict[int, list[Any]] = {}
    if value.dtype is None or not value.dtype.is_floating_point():
        return found
    for node, i in uses(value):
        if i or node.op_type not in _TREES:
            continue
        values, columns = _attribute_values(node, _TREES[node.op_type]), _attribute_values(node, "nodes_featureids")
        for column in dict.fromkeys(columns):
            splits = [v for v, c in zip(values, columns, strict=False) if c == column]
            found[int(column)] = _numbers(value.dtype, _spread(splits))
    return found


def _elements(array: np.ndarray[Any, Any] | None) -> list[Any]:
    return [] if array is None else _spread(array.reshape(-1).tolist())


def _attribute(node: ir.Node, name: str) -> list[Any]:
    return _spread(_attribute_values(node, name))


def _attribute_values(node: ir.Node, name: str) -> list[Any]:
    attribute = node.attributes.get(name)
    if attribute is None or attribute.is_ref():
        return []
    found = attribute.value
    if isinstance(found, ir.TensorProtocol):
        return list(found.numpy().reshape(-1).tolist())
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _spread(values: Iterable[Any]) -> list[Any]:
    different = list(dict.fromkeys(values))
    step = -(-len(different) // MOST_CONSTANTS) or 1
    return different[::step]


def _spellings(text: Any) -> Iterator[str]:
    """A string as the constant has it, and with its case swapped."""
    word = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    yield word
    literal = word.strip("^$")
    if literal != word and re.escape(literal) == literal:
        yield literal
    yield word.swapcase()


def _integers(dtype: ir.DataType, exact: Iterable[Any], thresholds: Iterable[Any]) -> list[int]:
    info = np.iinfo(dtype.numpy()) if dtype.numpy().kind in "iu" else None
    low, high = (0, 1) if info is None else (info.min, info.max)
    found = [int(v) for v in exact if _finite(v)]
    for v in thresholds:
        found += [int(np.floor(v)) + d for d in (-1, 0, 1)] if _finite(v) else []
    return sorted({n for n in found if low <= n <= high})


def _numbers(dtype: ir.DataType, thresholds: Iterable[Any]) -> list[Any]:
    """Each number, and numbers on both sides of it; the nearest still differ from it in float16."""
    found: list[float] = []
    for v in thresholds:
        if _finite(v):
            number, scale = float(v), max(abs(float(v)), 0.125)
            found += [number + scale * step for step in (0, -1 / 512, 1 / 512, -1 / 32, 1 / 32)]
    with np.errstate(over="ignore"):
        made = np.array(sorted(set(found)), np.float64).astype(dtype.numpy())
    return [v for v in made if np.isfinite(v)]


def _finite(v: Any) -> bool:
    return isinstance(v, (bool, int, float, np.number)) and bool(np.isfinite(float(v))) and abs(float(v)) < 1e18
