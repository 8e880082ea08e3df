"""Colors of images, whose last axis is red, green and blue or hue, saturation and value."""

import numpy as np

from onnxbridge.frontends.tensorflow.ops import rule


def _channels(op, x):
    return op.Split(x, axis=-1, num_outputs=3, outputs=3)


def _number(x, value):
    return np.array(value, x.dtype.numpy())


@rule("RGBToHSV")
def rgb_to_hsv(op, images):
    r, g, b = _channels(op, images)
    zero, one = _number(images, 0), _number(images, 1)
    value = op.Max(r, op.Max(g, b))
    spread = op.Sub(value, op.Min(r, op.Min(g, b)))
    gray = op.LessOrEqual(spread, zero)
    saturation = op.Where(op.Greater(value, zero), op.Div(spread, op.Where(op.Greater(value, zero), value, one)), zero)
    unit = op.Reciprocal(op.Mul(op.Where(gray, one, spread), _number(images, 6)))
    green = op.Add(op.Mul(unit, op.Sub(b, r)), _number(images, 2 / 6))
    blue = op.Add(op.Mul(unit, op.Sub(r, g)), _number(images, 4 / 6))
    hue = op.Where(op.Equal(r, value), op.Mul(unit, op.Sub(g, b)), op.Where(op.Equal(g, value), green, blue))
    hue = op.Where(gray, zero, hue)
    hue = op.Where(op.Less(hue, zero), op.Add(hue, one), hue)
    return op.Concat(hue, saturation, value, axis=-1)


@rule("HSVToRGB")
def hsv_to_rgb(op, images):
    hue, saturation, value = _channels(op, images)
    zero, one, two = (_number(images, v) for v in (0, 1, 2))
    h = op.Mul(hue, _number(images, 6))

    def distance(center):
        return op.Abs(op.Sub(h, _number(images, center)))

    shares = op.Sub(distance(3), one), op.Sub(two, distance(2)), op.Sub(two, distance(4))
    shares = [op.Min(op.Max(s, zero), one) for s in shares]
    rest = op.Sub(one, saturation)
    return op.Concat(*(op.Mul(op.Add(rest, op.Mul(saturation, s)), value) for s in shares), axis=-1)


@rule("AdjustHue")
def adjust_hue(op, images, delta):
    hue, saturation, value = _channels(op, rgb_to_hsv(op, images))
    turned = op.Add(hue, op.CastLike(delta, hue))
    return hsv_to_rgb(op, op.Concat(op.Sub(turned, op.Floor(turned)), saturation, value, axis=-1))


@rule("AdjustSaturation")
def adjust_saturation(op, images, scale):
    hue, saturation, value = _channels(op, rgb_to_hsv(op, images))
    scaled = op.Min(op.Max(op.Mul(saturation, op.CastLike(scale, saturation)), _number(images, 0)), _number(images, 1))
    return hsv_to_rgb(op, op.Concat(hue, scaled, value, axis=-1))


@rule("AdjustContrastv2")
def adjust_contrastv2(op, images, contrast_factor):
    mean = op.ReduceMean(images, [-3, -2], keepdims=1)
    return op.Add(op.Mul(op.Sub(images, mean), op.CastLike(contrast_factor, images)), mean)
