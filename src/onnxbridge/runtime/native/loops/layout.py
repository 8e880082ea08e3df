"""Moving the channel axis."""

from __future__ import annotations

from onnxbridge.runtime.native.loops.data import floats, longs


def channels_last(source, target, samples, channels, pixels):
    """(samples, channels, pixels) to (samples, pixels, channels), in squares that stay in the cache."""
    for n in range(samples):
        x = floats(source + 4 * n * channels * pixels)
        y = floats(target + 4 * n * channels * pixels)
        for c in range(0, channels, 16):
            for p in range(0, pixels, 16):
                for i in range(p, min(p + 16, pixels)):
                    for j in range(c, min(c + 16, channels)):
                        y[i * channels + j] = x[j * pixels + i]


def framed(source, target, samples, channels, height, width, spec):
    """Any (sample, channel, row, column) at the distances spec[0:4] to (sample, row, column, channel) in a frame of zeros.

    spec[4:8] tells how wide the frame is above, below, left and right.
    """
    s = longs(spec)
    top, below, left, right = s[4], s[5], s[6], s[7]
    high, wide = height + top + below, width + left + right
    y = floats(target)
    for n in range(samples):
        for row in range(high):
            line = (n * high + row) * wide * channels
            if row < top or row >= top + height:
                for i in range(wide * channels):
                    y[line + i] = 0.0
                continue
            for i in range(left * channels):
                y[line + i] = 0.0
            line += left * channels
            for c in range(channels):
                x = floats(source + 4 * (n * s[0] + c * s[1] + (row - top) * s[2]))
                for i in range(width):
                    y[line + i * channels + c] = x[i * s[3]]
            line += width * channels
            for i in range(right * channels):
                y[line + i] = 0.0


def interleaved(source, target, pixels, groups, each):
    """Channels (groups, each) of every pixel as (each, groups)."""
    for p in range(pixels):
        x, y = floats(source + 4 * p * groups * each), floats(target + 4 * p * groups * each)
        for i in range(each):
            for g in range(groups):
                y[i * groups + g] = x[g * each + i]
