"""Moving the channel axis."""

from __future__ import annotations

from onnxbridge.runtime.native.compiler.kinds import entry
from onnxbridge.runtime.native.loops.data import floats, longs


@entry("ppiiiiu")
def channels_last(source, target, samples, channels, pixels, chunk, unit, part):
    """(samples, channels, pixels) to (samples, pixels, channels), in squares that stay in the cache."""
    pieces = (pixels + chunk - 1) // chunk
    n, begin = unit // pieces, unit % pieces * chunk
    x = floats(source + 4 * n * channels * pixels)
    y = floats(target + 4 * n * channels * pixels)
    end = min(pixels, begin + chunk)
    for c in range(0, channels, 16):
        for p in range(begin, end, 16):
            for i in range(p, min(p + 16, end)):
                for j in range(c, min(c + 16, channels)):
                    y[i * channels + j] = x[j * pixels + i]


@entry("pppu")
def copied(source, target, spec, unit, part):
    """Four axes of float32 at any distances: spec has the sizes, the distances in the source, those in the target."""
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


@entry("ppiiiip")
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


@entry("ppiiiiu")
def interleaved(source, target, pixels, groups, each, chunk, unit, part):
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
