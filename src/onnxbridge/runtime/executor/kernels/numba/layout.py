"""Conversion of memory layouts."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.memory import floats, longs, uint8s


@helper
def interleave_rgb(x, stride, y, count):
    """Interleave three rows of `count` elements that are `stride` elements apart, as of an RGB image."""
    a, b, c, to = floats(x), floats(x + 4 * stride), floats(x + 8 * stride), floats(y)
    for i in range(count):
        to[3 * i] = a[i]
        to[3 * i + 1] = b[i]
        to[3 * i + 2] = c[i]


@entry("ppi")
def copy_bytes(source, target, size):
    """Copy `size` bytes."""
    x, y = uint8s(source), uint8s(target)
    for i in range(size):
        y[i] = x[i]


@entry("ppiiiiu")
def channels_last(source, target, samples, channels, pixels, chunk, unit, thread):
    """(samples, channels, pixels) to (samples, pixels, channels), in blocks that stay in the cache."""
    pieces = (pixels + chunk - 1) // chunk
    n, begin = unit // pieces, unit % pieces * chunk
    x = floats(source + 4 * n * channels * pixels)
    y = floats(target + 4 * n * channels * pixels)
    end = min(pixels, begin + chunk)
    if channels == 3:
        at = 4 * (n * 3 * pixels + begin)
        interleave_rgb(source + at, pixels, target + at + 8 * begin, end - begin)
        return
    for c in range(0, channels, 16):
        for p in range(begin, end, 16):
            for i in range(p, min(p + 16, end)):
                for j in range(c, min(c + 16, channels)):
                    y[i * channels + j] = x[j * pixels + i]


@entry("pppu")
def copy_strided(source, target, spec, unit, thread):
    """Copy four axes of float32: the spec has the sizes, the strides of the source, and those of the target."""
    s = longs(spec)
    for a in range(unit * s[12], min(s[0], (unit + 1) * s[12])):
        for b in range(s[1]):
            for c in range(s[2]):
                x = floats(source + 4 * (a * s[4] + b * s[5] + c * s[6]))
                y = floats(target + 4 * (a * s[8] + b * s[9] + c * s[10]))
                if s[7] == 1 and s[11] == 1:
                    for d in range(s[3]):
                        y[d] = x[d]
                else:
                    for d in range(s[3]):
                        y[d * s[11]] = x[d * s[7]]


@entry("ppiiiipiu")
def pad_channels_last(source, target, samples, channels, height, width, spec, chunk, unit, thread):
    """(sample, channel, row, column) with the strides spec[0:4] to (sample, row, column, channel) with zero padding.

    spec[4:8] is the padding above, below, left and right. A piece is `chunk` rows of the result.
    """
    s = longs(spec)
    top, left, right = s[4], s[6], s[7]
    high, wide = height + top + s[5], left + width + right
    for at in range(unit * chunk, min(samples * high, (unit + 1) * chunk)):
        n, row = at // high, at % high - top
        line = target + 4 * at * wide * channels
        y = floats(line)
        if row < 0 or row >= height:
            for i in range(wide * channels):
                y[i] = 0.0
        else:
            for i in range(left * channels):
                y[i] = 0.0
            for i in range((left + width) * channels, wide * channels):
                y[i] = 0.0
            x = source + 4 * (n * s[0] + row * s[2])
            if channels == 3 and s[3] == 1:
                interleave_rgb(x, s[1], line + 4 * left * 3, width)
            else:
                for c in range(channels):
                    given = floats(x + 4 * c * s[1])
                    for i in range(width):
                        y[(left + i) * channels + c] = given[i * s[3]]


@entry("ppiiiiu")
def shuffle_channels(source, target, pixels, groups, each, chunk, unit, thread):
    """Channels (groups, each) of every pixel as (each, groups)."""
    for p in range(unit * chunk, min(pixels, (unit + 1) * chunk)):
        x, y = floats(source + 4 * p * groups * each), floats(target + 4 * p * groups * each)
        if groups == 2:
            for i in range(each):
                y[2 * i] = x[i]
                y[2 * i + 1] = x[each + i]
        elif groups == 3:
            for i in range(each):
                y[3 * i] = x[i]
                y[3 * i + 1] = x[each + i]
                y[3 * i + 2] = x[2 * each + i]
        elif groups == 4:
            for i in range(each):
                y[4 * i] = x[i]
                y[4 * i + 1] = x[each + i]
                y[4 * i + 2] = x[2 * each + i]
                y[4 * i + 3] = x[3 * each + i]
        else:
            for g in range(groups):
                for i in range(each):
                    y[i * groups + g] = x[g * each + i]
