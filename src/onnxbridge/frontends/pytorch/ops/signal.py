"""Fourier transforms, from ONNX's DFT along one axis."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx import complex_pairs as pairs
from onnxbridge.frontends.pytorch.fx.complex_pairs import Complex, on_each_part
from onnxbridge.frontends.pytorch.fx.promotion import DEFAULT, cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.complex_numbers import scale
from onnxbridge.frontends.pytorch.ops.shape import swap_axes

D = ir.DataType


def _size(op, x, axes):
    """The number of elements along the axes, as a float or a double value."""
    found = [x.shape[a] for a in axes]
    if all(isinstance(n, int) for n in found):
        return float(math.prod(found))
    total = op.constant(np.float64(1))
    for a in axes:
        n = op.size(x.real if isinstance(x, Complex) else x, a)
        total = op.Mul(total, op.Cast(n, to=D.DOUBLE) if isinstance(n, ir.Value) else float(n))
    return total


def _normalize(op, x, count, normalization):
    """Normalize: by 1, the square root of the count, or the count."""
    if normalization == 0:
        return x
    part = x.real.dtype if isinstance(x, Complex) else x.dtype
    if isinstance(count, float):
        factor = op.constant(np.asarray(count ** (-0.5 if normalization == 1 else -1), part.numpy()))
    else:
        factor = cast(op, op.Reciprocal(op.Sqrt(count) if normalization == 1 else count), part)
    return scale(op, x, factor) if isinstance(x, Complex) else op.Mul(x, factor)


def _transform(op, x, axes, forward):
    """The transform along the axes, without normalization in either direction."""
    pair = pairs.join(op, x)
    for axis in axes:
        pair = _in_double(op, pair, x.shape[axis], lambda p, a=axis: op.DFT(p, None, np.int64(a), inverse=int(not forward)))
    y = pairs.split(op, pair)
    return y if forward else _normalize(op, y, _reciprocal(op, _size(op, x, axes)), 2)


def _in_double(op, x, size, function):
    """Compute a transform in double unless its size is a power of two: for others, runtimes lose precision in float32."""
    if x.dtype == D.DOUBLE or isinstance(size, int) and size & (size - 1) == 0:
        return function(x)
    return op.Cast(function(op.Cast(x, to=D.DOUBLE)), to=x.dtype)


def _reciprocal(op, count):
    return 1 / count if isinstance(count, float) else op.Reciprocal(count)


def _axes(x, dim):
    return [d % len(x.shape) for d in dim]


@rule("complex::_fft_c2c")
def fft_c2c(op, self, dim, normalization, forward):
    axes = _axes(self, dim)
    return _normalize(op, _transform(op, self, axes, forward), _size(op, self, axes), normalization)


@rule("complex::_fft_r2c")
def fft_r2c(op, self, dim, normalization, onesided):
    axes = _axes(self, dim)
    count = _size(op, self, axes)
    last = axes[-1]
    transform = lambda x: op.DFT(x, None, np.int64(last), onesided=int(onesided))  # noqa: E731
    pair = _in_double(op, op.Unsqueeze(self, [-1]), self.shape[last], transform)
    y = _zero_real_frequencies(op, pairs.split(op, pair), self.shape[last], last, onesided)
    y = _transform(op, y, axes[:-1], forward=True) if axes[:-1] else y
    return _normalize(op, y, count, normalization)


def _zero_real_frequencies(op, y, size, axis, onesided):
    """Set the imaginary parts that are exactly 0 for a real signal (mean and Nyquist frequency): with rounding errors, their sign
    would decide between the angles pi and -pi."""
    if not isinstance(size, int):
        return y
    real = np.zeros(size // 2 + 1 if onesided else size, bool)
    real[[0, size // 2] if size % 2 == 0 else [0]] = True
    return Complex(y.real, op.Where(real.reshape(-1, *[1] * (len(y.imag.shape) - 1 - axis)), 0.0, y.imag))


@rule("complex::_fft_c2r")
def fft_c2r(op, self, dim, normalization, last_dim_size):
    axes, n = _axes(self, dim), last_dim_size
    last = axes[-1]
    known = isinstance(n, int)
    half, middle = (n // 2 + 1, (n - 1) // 2) if known else (op.Add(op.Div(n, 2), 1), op.Div(op.Sub(n, 1), 2))
    x = _transform(op, self, axes[:-1], forward=False) if axes[:-1] else self
    x = on_each_part(lambda op, x: op.Slice(x, [0], op.dims([half]), [last]))(op, x)
    # the spectrum of a real signal is conjugate symmetric
    mirrored_half = on_each_part(lambda op, x: op.Slice(x, op.dims([middle]), [0], [last], [-1]))(op, x)
    full_spectrum = x if known and n < 3 else Complex(
        op.Concat(x.real, mirrored_half.real, axis=last), op.Concat(x.imag, op.Neg(mirrored_half.imag), axis=last)
    )  # fmt: skip
    y = _transform(op, full_spectrum, [last], forward=False).real
    return _normalize(op, y, _size(op, full_spectrum, axes), normalization)


@rule("complex::fft_c2c")
def prims_c2c(op, *, self, dim, forward):
    return fft_c2c(op, self, dim, 0, forward)


@rule("complex::fft_r2c")
def prims_r2c(op, *, self, dim, onesided):
    return fft_r2c(op, self, dim, 0, onesided)


@rule("complex::fft_c2r")
def prims_c2r(op, *, self, dim, last_dim_size):
    return fft_c2r(op, self, dim, 0, last_dim_size)


@rule("aten::stft", "complex::stft")
def stft(op, self, n_fft, hop_length=None, win_length=None, window=None, normalized=False, onesided=None, return_complex=None,
         align_to_window=None):  # fmt: skip
    if align_to_window:
        raise Unsupported("stft aligned to its window")
    hop, width = hop_length or n_fft // 4, win_length or n_fft
    if isinstance(self, Complex) or isinstance(window, Complex):
        raise Unsupported("stft of complex tensors")
    length = op.size(self, -1)
    if isinstance(length, int):
        starts = op.constant(np.arange((length - n_fft) // hop + 1, dtype=np.int64) * hop)
    else:
        starts = op.Range(np.int64(0), op.Add(op.Sub(length, n_fft), 1), np.int64(hop))
    positions = op.Add(op.Unsqueeze(starts, [1]), np.arange(n_fft, dtype=np.int64))
    frames = op.Gather(self, positions, axis=-1)
    if window is not None:
        before = (n_fft - width) // 2
        window = op.Pad(window, [before, n_fft - width - before]) if width < n_fft else window
        frames = op.Mul(frames, window)
    elif width < n_fft:
        before = (n_fft - width) // 2
        ones = np.zeros(n_fft, self.dtype.numpy())
        ones[before : before + width] = 1
        frames = op.Mul(frames, ones)
    y = fft_r2c(op, frames, [-1], int(normalized), onesided is None or onesided)
    y = on_each_part(swap_axes)(op, y, -1, -2)
    return y if return_complex else pairs.join(op, y)


def _window(name, *parameters):
    """The rule of a window function of constant length, computed by PyTorch."""

    def lower(op, window_length, **options):
        if not isinstance(window_length, int):
            raise Unsupported("a window of dynamic length", "fix that length")
        torch = frameworks.torch()
        dtype = options.pop("dtype", None) or DEFAULT
        window = getattr(torch, name)(window_length, *(options[p] for p in parameters), dtype=torch.float64)
        return op.constant(window.numpy().astype(dtype.numpy()))

    return lower


for _name, _options in {
    "hann_window": ("periodic",), "blackman_window": ("periodic",), "bartlett_window": ("periodic",),
    "hamming_window": ("periodic", "alpha", "beta"), "kaiser_window": ("periodic", "beta"),
}.items():  # fmt: skip
    for _count in range(len(_options) + 1):
        _overload = {0: "", 1: ".periodic", 2: ".periodic_alpha", 3: ".periodic_alpha_beta"}[_count]
        _overload = ".beta" if _options[:_count] == ("periodic", "beta") else _overload
        rule(f"aten::{_name}{_overload}")(_window(_name, *_options[:_count]))
