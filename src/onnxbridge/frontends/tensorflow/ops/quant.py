"""Simulated quantization, as QuantizeLinear and DequantizeLinear where the range is known, and stored 8-bit values."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import known_array, known_ints
from onnxbridge.hub.ir.values import cast, rank

D = ir.DataType
_STORED = {(8, True): np.int8, (8, False): np.uint8, (16, True): np.int16, (16, False): np.uint16}


def _range_of(num_bits, signed, narrow):
    """The lowest and the highest quantized value."""
    if not signed:
        return 0, (1 << num_bits) - 1
    return -(1 << (num_bits - 1)) + int(narrow), (1 << (num_bits - 1)) - 1



def _scale(op, low, high, lowest, highest):
    """The number of quantized steps in one, its inverse, and the range that these steps cover; the wider side decides."""
    largest = np.array(np.finfo(low.dtype.numpy()).max)
    number = lambda v: np.array(v, low.dtype.numpy())  # noqa: E731

    def side(bound, step):
        used = op.Greater(op.Mul(bound, number(step)), number(0))
        return op.Where(used, op.Div(number(step), op.Where(used, bound, number(1))), largest)

    at_low = side(low, lowest) if lowest else op.Expand(largest, op.Shape(low))
    at_high = side(high, highest)
    by_low = op.Less(at_low, at_high)
    inverse = op.Div(high, number(highest))
    inverse = op.Where(by_low, op.Div(low, number(lowest)), inverse) if lowest else inverse
    return op.Where(by_low, at_low, at_high), inverse, op.Mul(inverse, number(lowest)), op.Mul(inverse, number(highest))


def _along(op, x, bound, axis):
    """A bound per channel, shaped to broadcast along the axis."""
    if axis == -1 or not bound.shape:
        return op.Reshape(bound, []) if axis == -1 else bound
    return op.Reshape(bound, [-1 if i == axis else 1 for i in range(rank(x))])


@rule("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantize_and_dequantize_v2(
    op, input, input_min, input_max, *, signed_input=True, num_bits=8, range_given=False, round_mode="HALF_TO_EVEN",
    narrow_range=False, axis=-1,
):  # fmt: skip
    lowest, highest = _range_of(num_bits, signed_input, narrow_range)
    if not range_given:
        axes = None if axis == -1 else [i for i in range(rank(input)) if i != axis]
        input_min, input_max = (op.call(f"Reduce{m}", input, axes, keepdims=0) for m in ("Min", "Max"))
    even = round_mode == "HALF_TO_EVEN"
    scale, inverse, low, high = _scale(op, input_min, input_max, lowest, highest)
    stored = _STORED.get((num_bits, signed_input))
    steps = known_array(inverse)
    if even and range_given and stored is not None and steps is not None and (steps > 0).all() and input.dtype == D.FLOAT:
        x = op.Max(input, _along(op, input, low, axis)) if narrow_range and signed_input else input
        return _quantized(op, x, inverse, np.zeros(steps.shape, stored), axis)
    x = input
    scale, inverse, low, high = (_along(op, x, v, axis) for v in (scale, inverse, low, high))
    x = op.Max(op.Min(x, high), low) if range_given else x
    scaled = op.Mul(x, scale)
    rounded = op.Round(scaled) if even else op.Floor(op.Add(scaled, np.array(0.5, x.dtype.numpy())))
    return op.Mul(rounded, inverse)


def _quantized(op, x, scale, zero_point, axis):
    """QuantizeLinear and DequantizeLinear: with one scale, or one for each channel of the axis."""
    scalar = axis == -1
    scale = op.Reshape(scale, []) if scalar else scale
    zero_point = op.constant(np.reshape(zero_point, ()) if scalar else zero_point)
    attrs = {} if scalar else {"axis": axis}
    return op.DequantizeLinear(op.QuantizeLinear(x, scale, zero_point, **attrs), scale, zero_point, **attrs)


@rule("QuantizeAndDequantizeV3")
def quantize_and_dequantize_v3(
    op, input, input_min, input_max, num_bits, *, signed_input=True, range_given=True, narrow_range=False, axis=-1
):
    bits = known_ints(num_bits)
    if bits is None:
        raise Unsupported("a number of bits that is known only when the model runs")
    return quantize_and_dequantize_v2(
        op, input, input_min, input_max, signed_input=signed_input, num_bits=bits[0], range_given=range_given,
        narrow_range=narrow_range, axis=axis,
    )  # fmt: skip


def _fake_quantized(op, inputs, low, high, num_bits, narrow_range, axis):
    """The range is moved so that 0 is one of the quantized values."""
    lowest, highest = int(narrow_range), (1 << num_bits) - 1
    lo, hi = np.float32(lowest), np.float32(highest)
    zero_range = op.And(op.Equal(low, 0.0), op.Equal(high, 0.0))
    scale = op.Div(op.Sub(high, low), op.constant(hi - lo))
    from_low = op.Sub(lo, op.Div(low, op.Where(zero_range, np.float32(1), scale)))
    zero_point = op.Min(op.Max(op.Floor(op.Add(from_low, np.float32(0.5))), lo), hi)
    known = [known_array(v) for v in (scale, zero_point)]
    if num_bits == 8 and all(k is not None for k in known) and (known[0] > 0).all():
        x = inputs
        if narrow_range:
            x = op.Max(x, op.Mul(op.Sub(lo, zero_point), scale))
        return _quantized(op, x, scale, known[1].astype(np.uint8), axis)
    least, most = (op.Mul(op.Sub(v, zero_point), scale) for v in (lo, hi))
    clamped = op.Sub(op.Max(op.Min(inputs, most), least), least)
    safe = op.Where(zero_range, np.float32(1), scale)
    steps = op.Floor(op.Add(op.Mul(clamped, op.Reciprocal(safe)), np.float32(0.5)))
    return op.Where(zero_range, np.float32(0), op.Add(op.Mul(steps, scale), least))


HALVES = "with a constant range, halves of a step are rounded to even, as QuantizeLinear does"


@rule("FakeQuantWithMinMaxArgs", limits=HALVES)
def fake_quant_with_min_max_args(op, inputs, *, min=-6.0, max=6.0, num_bits=8, narrow_range=False):
    bounds = [op.constant(np.float32(v)) for v in (min, max)]
    return _fake_quantized(op, inputs, *bounds, num_bits, narrow_range, -1)


@rule("FakeQuantWithMinMaxVars", limits=HALVES)
def fake_quant_with_min_max_vars(op, inputs, min, max, *, num_bits=8, narrow_range=False):
    return _fake_quantized(op, inputs, min, max, num_bits, narrow_range, -1)


@rule("FakeQuantWithMinMaxVarsPerChannel", limits=HALVES)
def fake_quant_with_min_max_vars_per_channel(op, inputs, min, max, *, num_bits=8, narrow_range=False):
    return _fake_quantized(op, inputs, min, max, num_bits, narrow_range, rank(inputs) - 1)


def _limits(dtype, narrow=False):
    info = np.iinfo(dtype.numpy())
    return float(info.min) + narrow, float(info.max)


def _like(x, number):
    return np.array(number, x.dtype.numpy())


def _nearest(op, x):
    """Rounded, halves away from zero."""
    return op.Mul(op.Sign(x), op.Floor(op.Add(op.Abs(x), _like(x, 0.5))))


def _steps(op, low, high, lowest, highest):
    """The size of a step of a range, 0 for an empty one, and its lowest number in steps."""
    size = op.Div(op.Sub(high, low), _like(low, highest - lowest))
    empty = op.Equal(size, _like(size, 0))
    return size, op.Where(empty, _like(size, 0), _nearest(op, op.Div(low, op.Where(empty, _like(size, 1), size))))


def _channels(op, x, bound, axis):
    return op.Reshape(bound, [-1 if i == axis else 1 for i in range(rank(x))]) if axis != -1 else op.Reshape(bound, [])


@rule("Dequantize")
def dequantize(op, input, min_range, max_range, *, mode="MIN_COMBINED", narrow_range=False, axis=-1, dtype=D.FLOAT):
    lowest, highest = _limits(input.dtype, narrow_range and mode == "SCALED")
    low, high = (_channels(op, input, v, axis) for v in (min_range, max_range))
    x = op.Cast(input, to=D.FLOAT)
    if mode == "SCALED":
        scale = op.Div(high, np.float32(highest))
        y = op.Mul(x, op.Max(scale, op.Div(low, np.float32(lowest))) if lowest else scale)
    elif mode == "MIN_FIRST":
        size, first = _steps(op, low, high, lowest, highest)
        start = op.Where(op.Equal(size, np.float32(0)), low, op.Mul(first, size))
        y = op.Add(op.Mul(op.Sub(x, np.float32(lowest)), size), start)
    else:
        half = (highest - lowest + 1) / 2 if lowest else 0.0
        scale = op.Div(op.Sub(high, low), np.float32(highest - lowest))
        y = op.Add(op.Mul(op.Add(x, np.float32(half)), scale), low)
    return cast(op, y, dtype)


@rule("QuantizeV2", limits="as TensorFlow computes it without oneDNN, whose kernels of 8 bits differ")
def quantize_v2(
    op, input, min_range, max_range, *, T, mode="MIN_COMBINED", round_mode="HALF_AWAY_FROM_ZERO", narrow_range=False, axis=-1,
    ensure_minimum_range=0.01,
):  # fmt: skip
    """The quantized values, and the range that they cover."""
    zero, one = np.float32(0), np.float32(1)
    lowest, highest = _limits(T, narrow_range and mode == "SCALED")
    widest = op.Max(op.Max(op.Abs(min_range), op.Abs(max_range)), one)
    low = op.Min(min_range, zero)
    high = op.Max(op.Max(max_range, op.Add(low, op.Mul(widest, np.float32(ensure_minimum_range)))), zero)
    round_ = op.Round if round_mode == "HALF_TO_EVEN" else lambda x: _nearest(op, x)
    if mode == "SCALED":
        scale, _, low, high = _scale(op, low, high, lowest, highest)
        low, high = op.Div(np.float32(lowest), scale), op.Div(np.float32(highest), scale)
        least, most, scale = (_channels(op, input, v, axis) for v in (low, high, scale))
        steps = round_(op.Mul(op.Max(op.Min(input, most), least), scale))
    else:
        least, most = (_channels(op, input, v, axis) for v in (low, high))
        scale = op.Div(np.float32(highest - lowest), op.Sub(most, least))
        if mode == "MIN_FIRST":
            first = op.Sub(_nearest(op, op.Mul(least, scale)), np.float32(lowest))
            steps = op.Sub(_nearest(op, op.Mul(input, scale)), first)
            steps = op.Min(op.Max(steps, np.float32(lowest)), np.float32(highest))
        else:
            steps = op.Mul(op.Sub(op.Max(op.Min(input, most), least), least), scale)
            half = np.float32((highest - lowest + 1) / 2)
            steps = _nearest(op, op.Sub(steps, half)) if lowest else op.Floor(op.Add(steps, np.float32(0.5)))
    return op.Cast(steps, to=T), low, high
