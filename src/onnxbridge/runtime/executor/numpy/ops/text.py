"""Strings, which are Python objects, and vectorizers of them."""

from __future__ import annotations

import re
from string import ascii_letters

import numpy as np

from onnxbridge.errors import LimitError
from onnxbridge.hub.io.resource_limits import claim, claim_broadcast, current
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.regex_safety import may_be_exponential


def _strings(items, shape):
    out = np.empty(len(items), object)
    out[:] = items
    return out.reshape(shape)


@rule("StringConcat")
def string_concat(X, Y):
    claim_broadcast(X, Y)
    claim((int((_lengths(X) + _lengths(Y)).sum()),), np.uint8)
    return np.asarray(X + Y, object)


def _lengths(X):
    """The number of characters of each string."""
    return np.fromiter(map(len, X.reshape(-1)), np.int64, X.size).reshape(X.shape)


@rule("StringSplit")
def string_split(X, *, delimiter=None, maxsplit=None):
    """Without a delimiter splits at whitespace; shorter rows are padded with empty strings."""
    rows = [string.split(delimiter or None, -1 if maxsplit is None else maxsplit) for string in X.reshape(-1)]
    most = max(map(len, rows), default=0)
    claim((*X.shape, most), object)
    filled = [part for row in rows for part in (*row, *[""] * (most - len(row)))]
    return _strings(filled, (*X.shape, most)), np.array([len(r) for r in rows], np.int64).reshape(X.shape)


@rule("StringNormalizer")
def string_normalizer(X, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=None):
    def key(string):
        return string if is_case_sensitive else string.lower()

    stop = set(map(key, stopwords or ()))
    selected = [string for string in X.reshape(-1) if key(string) not in stop]
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case_change_action]
    if locale in ("C", "POSIX") and case_change_action != "NONE":  # letters of ASCII only
        table = {ord(c): change(c) for c in ascii_letters}
        selected = [string.translate(table) for string in selected]
    else:
        selected = [change(string) for string in selected]
    words = selected or [""]
    return _strings(words, (*X.shape[:-1], len(words)))


@rule("RegexFullMatch")
def regex_full_match(X, *, pattern=None):
    matches = re.compile(pattern or "").fullmatch
    longest = max(map(len, X.reshape(-1)), default=0)
    if longest > _EXPONENTIAL_LENGTH and may_be_exponential(pattern or ""):
        raise LimitError(f"the pattern of RegexFullMatch may take exponential time on a string of {longest} characters")
    return np.array([matches(string) is not None for string in X.reshape(-1)], bool).reshape(X.shape)


_EXPONENTIAL_LENGTH = 20  # characters up to which exponential time is acceptable


@rule("TfIdfVectorizer")
def tf_idf_vectorizer(
    X,
    *,
    max_gram_length,
    max_skip_count,
    min_gram_length,
    mode,
    ngram_counts,
    ngram_indexes,
    pool_int64s=None,
    pool_strings=None,
    weights=None,
):
    """Counts the pool's n-grams in each row, also those with up to `max_skip_count` elements skipped between two."""
    pool = pool_strings if pool_int64s is None else pool_int64s
    grams = {}
    for n, (start, end) in enumerate(zip(ngram_counts, (*ngram_counts[1:], len(pool)), strict=True), 1):
        for at in range(start, end, n):
            grams[tuple(pool[at : at + n])] = len(grams)
    rows = X.reshape(-1, X.shape[-1]).tolist() if X.ndim else [[X.item()]]
    width = max(ngram_indexes) + 1
    claim((len(rows), width), np.float32)
    counts = np.zeros((len(rows), width), np.float32)
    factor = np.ones(width, np.float32)
    if weights is not None:
        factor[list(ngram_indexes)] = weights
    for r, row in enumerate(rows):
        for found in _occurrences(row, grams, min_gram_length, max_gram_length, max_skip_count):
            counts[r, ngram_indexes[found]] += 1
    if mode != "TF":
        counts = np.where(counts > 0, 1 if mode == "IDF" else counts, 0).astype(np.float32) * factor
    return counts.reshape(*X.shape[:-1], width)


def _occurrences(row, grams, shortest, longest, most_skipped):
    for n in range(shortest, longest + 1):
        for step in range(1, 2 if n == 1 else min(most_skipped + 2, len(row))):
            current().check_time()
            for start in range(len(row) - (n - 1) * step):
                found = grams.get(tuple(row[start : start + n * step : step]))
                if found is not None:
                    yield found


def _first(*values):
    return next((v for v in values if v is not None), None)


@rule("ai.onnx.ml::LabelEncoder")
def label_encoder(
    X,
    *,
    default_float=-0.0,
    default_int64=-1,
    default_string="_Unused",
    default_tensor=None,
    keys_floats=None,
    keys_int64s=None,
    keys_strings=None,
    keys_tensor=None,
    values_floats=None,
    values_int64s=None,
    values_strings=None,
    values_tensor=None,
):
    """Looks up every element; NaN matches NaN, and the first of equal keys is used, as in ONNX Runtime."""
    keys = _first(keys_floats, keys_int64s, keys_strings, keys_tensor)
    if keys_floats is not None:
        keys = np.asarray(keys, np.float32)
    if values_tensor is not None:
        values, dtype = values_tensor, values_tensor.dtype
        other = np.zeros(1, dtype) if default_tensor is None else default_tensor
    elif values_strings is not None:
        values, dtype, other = values_strings, np.dtype(object), default_string
    elif values_int64s is not None:
        values, dtype, other = values_int64s, np.dtype(np.int64), default_int64
    else:
        values, dtype, other = values_floats, np.dtype(np.float32), default_float
    other = np.asarray(other, dtype).reshape(-1)[0]
    keys, values = np.asarray(keys), np.asarray(values, dtype)
    if keys.size and keys.size == values.size and X.dtype.kind in "iuf" and keys.dtype.kind in "iuf":
        return _looked_up(X, keys.reshape(-1), values.reshape(-1), other)
    table = {_key(k): v for k, v in zip(keys.tolist()[::-1], values[::-1], strict=True)}
    found = np.empty(X.size, dtype)
    found[:] = [table.get(_key(item), other) for item in X.reshape(-1).tolist()]
    return found.reshape(X.shape)


def _looked_up(x, keys, values, other):
    """The value of each number's key; NaN sorts last."""
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    at = np.minimum(np.searchsorted(sorted_keys, x), len(keys) - 1)
    hit = (sorted_keys[at] == x) | ((sorted_keys[at] != sorted_keys[at]) & (x != x))
    return np.where(hit, values[order][at], np.asarray(other, values.dtype))


def _key(item):
    return "NaN" if item != item else item


@rule("ai.onnx.ml::CategoryMapper")
def category_mapper(X, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"):
    to_string = X.dtype != object
    pairs = (cats_int64s, cats_strings) if to_string else (cats_strings, cats_int64s)
    table = dict(zip(*pairs, strict=True))
    found = np.empty(X.size, object if to_string else np.int64)
    found[:] = [table.get(item, default_string if to_string else default_int64) for item in X.reshape(-1).tolist()]
    return found.reshape(X.shape)
