"""Windows over (batch, row, column, channel), with channels in the innermost loop."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry
from onnxbridge.runtime.executor.kernels.numba.memory import floats, longs

_F = np.float32


@entry("pppu")
def maximum(source, target, spec, unit, thread):
    """The largest element of each window, one row of windows; padding never wins, NaN does."""
    s = longs(spec)
    h, w, c, kh, kw, sh, sw = s[1], s[2], s[3], s[4], s[5], s[6], s[7]
    dh, dw, top, left, oh, ow = s[8], s[9], s[10], s[11], s[12], s[13]
    b, oy = unit // oh, unit % oh
    for ox in range(ow):
        y = floats(target + 4 * ((b * oh + oy) * ow + ox) * c)
        begun = False
        for ky in range(kh):
            iy = oy * sh - top + ky * dh
            if iy < 0 or iy >= h:
                continue
            for kx in range(kw):
                ix = ox * sw - left + kx * dw
                if ix < 0 or ix >= w:
                    continue
                x = floats(source + 4 * ((b * h + iy) * w + ix) * c)
                if begun:
                    for i in range(c):
                        t, m = x[i], y[i]
                        y[i] = m if t <= m or m != m else t
                else:
                    for i in range(c):
                        y[i] = x[i]
                    begun = True
        if not begun:
            for i in range(c):
                y[i] = -np.inf


@entry("pppu")
def mean(source, target, spec, unit, thread):
    """The mean of each window; whether padding counts is s[16], s[14] and s[15] are the padding at the end."""
    s = longs(spec)
    h, w, c, kh, kw, sh, sw = s[1], s[2], s[3], s[4], s[5], s[6], s[7]
    top, left, oh, ow = s[10], s[11], s[12], s[13]
    b, oy = unit // oh, unit % oh
    for ox in range(ow):
        y = floats(target + 4 * ((b * oh + oy) * ow + ox) * c)
        for i in range(c):
            y[i] = _F(0.0)
        y0, x0 = oy * sh - top, ox * sw - left
        first, end, begin, stop = max(0, y0), min(h, y0 + kh), max(0, x0), min(w, x0 + kw)
        for iy in range(first, end):
            for ix in range(begin, stop):
                x = floats(source + 4 * ((b * h + iy) * w + ix) * c)
                for i in range(c):
                    y[i] += x[i]
        count = (end - first) * (stop - begin)
        if s[16] != 0:
            count = (min(h + s[14], y0 + kh) - y0) * (min(w + s[15], x0 + kw) - x0)
        for i in range(c):
            y[i] /= _F(count)


@entry("pppiiiiiffu")
def lrn(source, target, scratch, pixels, channels, chunk, before, after, bias, alpha, unit, thread):
    """LRN with the exponent 3/4: x / (bias + alpha * sum of the squares of the neighbouring channels)^(3/4)."""
    squares = floats(scratch + thread * 4 * (channels + before + after + 16))
    for i in range(before + after + channels):
        squares[i] = _F(0.0)
    for p in range(unit * chunk, min(pixels, (unit + 1) * chunk)):
        x, y = floats(source + 4 * p * channels), floats(target + 4 * p * channels)
        for i in range(channels):
            squares[before + i] = x[i] * x[i]
        for i in range(channels):
            y[i] = squares[i]
        for k in range(1, before + after + 1):
            for i in range(channels):
                y[i] += squares[i + k]
        for i in range(channels):
            root = np.sqrt(bias + alpha * y[i])
            y[i] = x[i] / (root * np.sqrt(root))


@entry("ppiiippffu")
def affine(source, target, pixels, channels, chunk, scale, shift, low, high, unit, thread):
    """x * scale + shift for each channel, clipped."""
    a, b = floats(scale), floats(shift)
    for p in range(unit * chunk, min(pixels, (unit + 1) * chunk)):
        x, y = floats(source + 4 * p * channels), floats(target + 4 * p * channels)
        for i in range(channels):
            t = x[i] * a[i] + b[i]
            t = low if t < low else t
            y[i] = high if t > high else t
