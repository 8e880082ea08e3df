"""Fourier transforms and windows."""

import numpy as np
import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx import complex_pairs as pairs
from onnxbridge.frontends.pytorch.fx.complex_pairs import Complex, on_each_part
from onnxbridge.frontends.pytorch.fx.promotion import DEFAULT
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.shape import swap_axes
from onnxbridge.hub.decompositions.complex_numbers import fourier

D = ir.DataType


def _normalize(op, x, count, normalization):
    """Normalize: by 1, the square root of the count, or the count."""
    return x if normalization == 0 else fourier.divide_by_count(op, x, count, 0.5 if normalization == 1 else 1.0)


def _axes(x, dim):
    return [d % len(x.shape) for d in dim]


@rule("complex::_fft_c2c")
def fft_c2c(op, self, dim, normalization, forward):
    axes = _axes(self, dim)
    y = fourier.transform(op, self, axes, inverse=not forward)
    return _normalize(op, y, fourier.element_count(op, self, axes), normalization)


@rule("complex::_fft_r2c")
def fft_r2c(op, self, dim, normalization, onesided):
    axes = _axes(self, dim)
    y = fourier.real_transform(op, self, axes, onesided=onesided)
    return _normalize(op, y, fourier.element_count(op, self, axes), normalization)


@rule("complex::_fft_c2r")
def fft_c2r(op, self, dim, normalization, last_dim_size):
    axes = _axes(self, dim)
    y = fourier.inverse_real_transform(op, self, axes, last_dim_size)
    return _normalize(op, y, fourier.element_count(op, y, axes), normalization)


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
