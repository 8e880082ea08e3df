"""Reductions over all pixels of (batch, pixel, channel): means, and normalization of channels or groups of them.

Sums are taken over blocks of pixels and then added, so that the rounding error does not grow with the number of pixels.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.memory import floats, longs

_F = np.float32
SOME = 128  # pixels of a block


@helper
def summed(source, total, some, mean, pixels, channels, width):
    """The sum over pixels of `width` of the channels, or of the squared distances from each channel's mean (0 for none).

    `some` is scratch memory of the same size.
    """
    y, t, m = floats(total), floats(some), floats(mean)
    for i in range(width):
        y[i] = _F(0.0)
    for first in range(0, pixels, SOME):
        for i in range(width):
            t[i] = _F(0.0)
        for p in range(first, min(pixels, first + SOME)):
            x = floats(source + 4 * p * channels)
            if mean == 0:
                for i in range(width):
                    t[i] += x[i]
            else:
                for i in range(width):
                    d = x[i] - m[i]
                    t[i] += d * d
        for i in range(width):
            y[i] += t[i]


@entry("pppiiiu")
def average(source, target, scratch, pixels, channels, chunk, unit, thread):
    """The mean over all pixels; a piece is `chunk` channels of a sample."""
    pieces = (channels + chunk - 1) // chunk
    n, begin = unit // pieces, unit % pieces * chunk
    width = min(channels, begin + chunk) - begin
    to = target + 4 * (n * channels + begin)
    summed(source + 4 * (n * pixels * channels + begin), to, scratch + 4 * thread * chunk, 0, pixels, channels, width)
    y = floats(to)
    for i in range(width):
        y[i] /= _F(pixels)


@entry("ppppppfu")
def normalize(source, target, scale, shift, scratch, spec, epsilon, unit, thread):
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, with the mean and the variance of each group of channels.

    The spec has pixels, channels, channels of a group, groups of a piece, and floats of scratch memory.
    """
    s = longs(spec)
    pixels, channels, each, chunk = s[0], s[1], s[2], s[3]
    pieces = (channels // each + chunk - 1) // chunk
    n, begin = unit // pieces, unit % pieces * chunk * each
    width = min(channels, begin + chunk * each) - begin
    x = source + 4 * (n * pixels * channels + begin)
    total = scratch + 4 * thread * s[4]
    some, mean = total + 4 * width, total + 8 * width
    sums, means = floats(total), floats(mean)
    count = _F(pixels * each)
    summed(x, total, some, 0, pixels, channels, width)
    for g in range(0, width, each):
        whole = _F(0.0)
        for i in range(g, g + each):
            whole += sums[i]
        whole = whole / count
        for i in range(g, g + each):
            means[i] = whole
    summed(x, total, some, mean, pixels, channels, width)
    a, b = floats(scale + 4 * begin), floats(shift + 4 * begin)
    for g in range(0, width, each):
        whole = _F(0.0)
        for i in range(g, g + each):
            whole += sums[i]
        whole = _F(1.0) / np.sqrt(whole / count + epsilon)
        for i in range(g, g + each):
            sums[i] = whole * a[i]
    for p in range(pixels):
        u, y = floats(x + 4 * p * channels), floats(target + 4 * ((n * pixels + p) * channels + begin))
        for i in range(width):
            y[i] = (u[i] - means[i]) * sums[i] + b[i]
