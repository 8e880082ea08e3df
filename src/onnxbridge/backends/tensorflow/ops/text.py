"""Strings."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import rank
from onnxbridge.errors import Unsupported


@rule("StringConcat")
def string_concat(X, Y):
    return X + Y


@rule("RegexFullMatch")
def regex_full_match(X, *, pattern=None):
    if pattern is None:
        raise Unsupported("RegexFullMatch without a pattern")
    return tf.strings.regex_full_match(X, pattern)


@rule("StringSplit")
def string_split(X, *, delimiter=None, maxsplit=None):
    flat = tf.reshape(X, [-1])
    parts = tf.strings.split(flat, delimiter or None, maxsplit=-1 if maxsplit is None else maxsplit)
    if delimiter:
        counts = tf.where(flat == "", tf.constant(0, tf.int64), tf.cast(parts.row_lengths(), tf.int64))
    else:  # TensorFlow adds an empty part where `maxsplit` equals the number of splits
        counts = tf.reduce_sum(tf.cast(parts != "", tf.int64), axis=1)
    dense = parts.to_tensor("")[:, : tf.reduce_max(tf.concat([counts, [0]], 0))]
    shape = tf.shape(X)
    return tf.reshape(dense, tf.concat([shape, tf.shape(dense)[1:]], 0)), tf.reshape(counts, shape)


@rule("StringNormalizer")
def string_normalizer(X, *, case_change_action="NONE", is_case_sensitive=0, locale=None, stopwords=()):
    strings = tf.reshape(X, [-1])
    if rank(X) == 2 and X.shape[0] != 1:
        raise Unsupported("StringNormalizer of several rows")
    if stopwords:
        compared = strings if is_case_sensitive else tf.strings.lower(strings, "utf-8")
        stops = [w if is_case_sensitive else w.lower() for w in stopwords]
        strings = tf.boolean_mask(strings, tf.reduce_all(compared[:, None] != tf.constant(stops)[None], 1))
    if case_change_action != "NONE":
        strings = (tf.strings.lower if case_change_action == "LOWER" else tf.strings.upper)(strings, "utf-8")
    # an empty result is one empty string
    strings = tf.cond(tf.size(strings) > 0, lambda: strings, lambda: tf.constant([""]))
    return strings[None] if rank(X) == 2 else strings
