"""Strings. PyTorch has no string tensors; in a module they are NumPy arrays of Python strings."""

from __future__ import annotations

import re

import numpy as np
import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.tracer import data_dependent_call
from onnxbridge.errors import Unsupported


@data_dependent_call
def to_string(input, source):
    """Numbers as strings with the fewest digits that round-trip, as ONNX specifies."""
    kind = {"FLOAT": np.float32, "DOUBLE": np.float64, "FLOAT16": np.float16}.get(source)
    if kind is None:
        return np.array([str(int(v)) for v in input.reshape(-1).tolist()], dtype=object).reshape(tuple(input.shape))
    strings = [_float_string(kind(v)) for v in input.reshape(-1).tolist()]
    return np.array(strings, dtype=object).reshape(tuple(input.shape))


def _float_string(value):
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(value)


@data_dependent_call
def from_string(input, dtype):
    strings = np.asarray(input)
    parse = float if dtype.is_floating_point else int
    return torch.tensor([parse(str(t)) for t in strings.reshape(-1)], dtype=dtype).reshape(strings.shape)


@data_dependent_call
def string_concat(X, Y):
    return np.asarray(np.char.add(np.asarray(X).astype(str), np.asarray(Y).astype(str))).astype(object)


rule.table(StringConcat=string_concat)


@data_dependent_call
def _split(X, delimiter, maxsplit):
    strings = [str(t) for t in np.asarray(X).reshape(-1)]
    parts = [t.split(delimiter or None, -1 if maxsplit is None else maxsplit) if t else [] for t in strings]
    width = max(map(len, parts), default=0)
    padded = np.array([p + [""] * (width - len(p)) for p in parts], dtype=object).reshape((*np.shape(X), width))
    return padded, torch.tensor([len(p) for p in parts], dtype=torch.int64).reshape(np.shape(X))


@rule("StringSplit")
def string_split(X, *, delimiter=None, maxsplit=None):
    both = _split(X, delimiter, maxsplit)
    return both[0], both[1]


@data_dependent_call
def _matches(X, pattern):
    found = [re.fullmatch(pattern, str(t)) is not None for t in np.asarray(X).reshape(-1)]
    return torch.tensor(found, dtype=torch.bool).reshape(np.shape(X))


@rule("RegexFullMatch")
def regex_full_match(X, *, pattern=None):
    if pattern is None:
        raise Unsupported("RegexFullMatch without a pattern")
    return _matches(X, pattern)


@data_dependent_call
def _normalized(X, case, is_case_sensitive, stopwords):
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case, str)
    stops = {w if is_case_sensitive else w.lower() for w in stopwords}
    strings = np.asarray(X)
    rows = [[str(t) for t in row] for row in (strings if strings.ndim == 2 else strings[None])]
    filtered = [[change(t) for t in row if (t if is_case_sensitive else t.lower()) not in stops] or [""] for row in rows]
    result = np.array(filtered, dtype=object)
    return result if strings.ndim == 2 else result[0]


@rule("StringNormalizer")
def string_normalizer(X, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=()):
    return _normalized(X, case_change_action, is_case_sensitive, stopwords or ())
