"""Transposes between channels-first and channels-last layouts."""

from __future__ import annotations

from onnxbridge.hub.decompositions.microsoft import rank_of


def to_first(op, x):
    rank = rank_of(x)
    return op.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def to_last(op, x):
    rank = rank_of(x)
    return op.Transpose(x, perm=[0, *range(2, rank), 1])
