"""Strings, which PyTorch has no tensors for: in a module they are NumPy arrays of Python strings."""

from __future__ import annotations

import re

import numpy as np
import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.tracer import at_run_time
from onnxbridge.errors import Unsupported


@at_run_time
def to_text(input, source):
    """Numbers as the standard writes them: with the fewest digits that give the number back."""
    kind = {"FLOAT": np.float32, "DOUBLE": np.float64, "FLOAT16": np.float16}.get(source)
    if kind is None:
        return np.array([str(int(v)) for v in input.reshape(-1).tolist()], dtype=object).reshape(tuple(input.shape))
    texts = [_float_text(kind(v)) for v in input.reshape(-1).tolist()]
    return np.array(texts, dtype=object).reshape(tuple(input.shape))


def _float_text(value):
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    return str(value)


@at_run_time
def from_text(input, dtype):
    texts = np.asarray(input)
    read = float if dtype.is_floating_point else int
    return torch.tensor([read(str(t)) for t in texts.reshape(-1)], dtype=dtype).reshape(texts.shape)


@at_run_time
def string_concat(X, Y):
    return np.asarray(np.char.add(np.asarray(X).astype(str), np.asarray(Y).astype(str))).astype(object)


rule.table(StringConcat=string_concat)


@at_run_time
def _split(X, delimiter, maxsplit):
    texts = [str(t) for t in np.asarray(X).reshape(-1)]
    parts = [t.split(delimiter or None, -1 if maxsplit is None else maxsplit) if t else [] for t in texts]
    width = max(map(len, parts), default=0)
    padded = np.array([p + [""] * (width - len(p)) for p in parts], dtype=object).reshape((*np.shape(X), width))
    return padded, torch.tensor([len(p) for p in parts], dtype=torch.int64).reshape(np.shape(X))


@rule("StringSplit")
def string_split(X, *, delimiter=None, maxsplit=None):
    both = _split(X, delimiter, maxsplit)
    return both[0], both[1]


@at_run_time
def _matches(X, pattern):
    found = [re.fullmatch(pattern, str(t)) is not None for t in np.asarray(X).reshape(-1)]
    return torch.tensor(found, dtype=torch.bool).reshape(np.shape(X))


@rule("RegexFullMatch")
def regex_full_match(X, *, pattern=None):
    if pattern is None:
        raise Unsupported("RegexFullMatch without a pattern")
    return _matches(X, pattern)


@at_run_time
def _normalized(X, case, is_case_sensitive, stopwords):
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case, str)
    stops = {w if is_case_sensitive else w.lower() for w in stopwords}
    texts = np.asarray(X)
    rows = [[str(t) for t in row] for row in (texts if texts.ndim == 2 else texts[None])]
    kept = [[change(t) for t in row if (t if is_case_sensitive else t.lower()) not in stops] or [""] for row in rows]
    result = np.array(kept, dtype=object)
    return result if texts.ndim == 2 else result[0]


@rule("StringNormalizer")
def string_normalizer(X, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=()):
    return _normalized(X, case_change_action, is_case_sensitive, stopwords or ())
