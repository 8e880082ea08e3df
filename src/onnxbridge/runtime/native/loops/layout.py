"""Moving the channel axis."""

from __future__ import annotations

from onnxbridge.runtime.native.loops.data import floats


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
