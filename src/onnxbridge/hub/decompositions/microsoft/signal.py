"""Fourier transforms of signals of real numbers, of whose spectrum half is kept."""

from __future__ import annotations

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of


def _only_plain(normalized, onesided, signal_ndim):
    if normalized or not onesided or signal_ndim != 1:
        raise Unsupported("transforms that are normalized, two-sided, or of more than one axis")


@contrib(MICROSOFT + "Rfft")
def rfft(op, X, *, normalized=0, onesided=1, signal_ndim=1):
    """The last axis to its first half of frequencies, with the real and the imaginary parts as one more axis."""
    _only_plain(normalized, onesided, signal_ndim)
    rank = rank_of(X)
    return op.DFT(op.Unsqueeze(X, [-1]), None, rank - 1, onesided=1)


@contrib(MICROSOFT + "Irfft")
def irfft(op, X, *, normalized=0, onesided=1, signal_ndim):
    """Back to an even number of elements: the frequencies that are left out are those that are there, mirrored and conjugate."""
    _only_plain(normalized, onesided, signal_ndim)
    axis = rank_of(X) - 2
    inner = op.Slice(X, [1], [-1], [axis])
    mirrored = op.Mul(op.Slice(inner, [-1], [-(2**62)], [axis], [-1]), op.CastLike([1.0, -1.0], X))
    whole = op.Concat(_real_ends(op, X, axis), mirrored, axis=axis)
    real = op.Slice(op.DFT(whole, None, axis, inverse=1), [0], [1], [axis + 1])
    return op.Squeeze(real, [axis + 1])


def _real_ends(op, X, axis):
    """The first and the last frequency of real numbers are real, whatever is there."""
    first, last = op.Slice(X, [0], [1], [axis]), op.Slice(X, [-1], [2**62], [axis])
    keep = op.CastLike([1.0, 0.0], X)
    return op.Concat(op.Mul(first, keep), op.Slice(X, [1], [-1], [axis]), op.Mul(last, keep), axis=axis)
