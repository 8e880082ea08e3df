"""NumPy kernels shared by the executor and the MIL interpreter: cases that MIL does not cover."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onnxbridge.runtime.executor.numpy.kernels import conv, pooling, recurrent, resize, special, windows

rng = np.random.default_rng(5)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def close(got, want):
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


def test_pad_adds_a_value_or_crops():
    x = np.arange(12).reshape(1, 3, 4)
    assert windows.pad(x, [(1, 0), (0, 2)], 7).tolist() == np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=7).tolist()
    assert windows.pad(x, [(-1, 0), (1, -2)]).tolist() == np.pad(x[:, 1:, :2], [(0, 0), (0, 0), (1, 0)]).tolist()
    assert windows.pad(x, [(0, 0), (0, 0)]) is x


def test_a_large_convolution_in_blocks_gives_the_same_result(monkeypatch):
    x, w = draw(2, 3, 9, 8), draw(4, 3, 3, 3)
    expected = conv.conv(x, w, strides=[1, 1], pads=[(1, 1), (1, 1)], dilations=[1, 1])
    for size in (1, 3000):
        monkeypatch.setattr(conv, "BLOCK_BYTES", size)
        close(conv.conv(x, w, strides=[1, 1], pads=[(1, 1), (1, 1)], dilations=[1, 1]), expected)


def test_blocks_partition_an_array_in_memory_order():
    for most in (1, 2, 4, 7, 12, 100):
        cuts = list(windows.blocks((2, 3, 4), most))
        array = np.arange(24).reshape(2, 3, 4)
        assert np.concatenate([array[cut].ravel() for cut in cuts]).tolist() == list(range(24))
        assert all(array[cut].size <= most for cut in cuts)
    assert list(windows.blocks((0, 3), 5)) == []


WIDE = [
    ((2, 3, 24, 23), (20, 3, 3, 3), 1, (1, 1), ((1, 2), (0, 1)), (1, 1)),  # few channels: a row of the kernel is unfolded at once
    ((1, 18, 30, 31), (33, 18, 3, 2), 1, (1, 2), ((1, 1), (2, 0)), (2, 1)),
    ((1, 12, 26, 25), (12, 1, 3, 3), 12, (1, 1), ((1, 1), (1, 1)), (1, 2)),  # depthwise
    ((2, 12, 26, 25), (8, 6, 1, 3), 2, (1, 1), ((0, 0), (1, 1)), (1, 1)),
    ((1, 6, 26, 25), (12, 1, 2, 2), 6, (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((1, 5, 1200), (7, 5, 4), 1, (2,), ((3, 1),), (1,)),
    ((1, 17, 30, 30), (5, 17, 1, 1), 1, (1, 1), ((-1, 0), (0, -2)), (1, 1)),
]


@pytest.mark.parametrize(("x", "w", "groups", "strides", "pads", "dilations"), WIDE)
def test_convolutions_in_float64(x, w, groups, strides, pads, dilations):
    x, w, bias = (rng.standard_normal(shape) for shape in (x, w, w[0]))
    got = conv.conv(x, w, bias, strides=strides, pads=pads, dilations=dilations, groups=groups)
    padded = F.pad(torch.tensor(x), [n for pair in reversed(pads) for n in pair])
    function = F.conv2d if x.ndim == 4 else F.conv1d
    want = function(padded, torch.tensor(w), torch.tensor(bias), strides, 0, dilations, groups).numpy()
    assert got.dtype == np.float64 and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


def test_convolution_of_integers_is_exact():
    x, w = rng.integers(-9, 9, (1, 4, 6)), rng.integers(-9, 9, (2, 2, 3))
    got = conv.conv(x, w, strides=[1], pads=[(0, 0)], dilations=[1], groups=2)
    want = F.conv1d(torch.tensor(x, dtype=torch.float64), torch.tensor(w, dtype=torch.float64), groups=2)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, want.numpy())


def test_dilated_max_pool():
    x = draw(2, 3, 9, 8)
    got = pooling.max_pool(x, [3, 2], strides=[2, 1], pads=[(1, 1), (0, 0)], dilations=[2, 3])
    close(got, F.max_pool2d(torch.tensor(x), (3, 2), (2, 1), (1, 0), (2, 3)))


def test_max_pool_of_integers_ignores_padding():
    x = np.full((1, 1, 2, 2), -100, np.int8)
    got = pooling.max_pool(x, [2, 2], strides=[1, 1], pads=[(1, 1), (1, 1)], dilations=[1, 1])
    assert (got == -100).all()


def test_lp_pool_with_another_power():
    x = draw(1, 2, 6, 6)
    got = pooling.lp_pool(x, [2, 2], p=3, strides=[2, 2], pads=[(0, 0), (0, 0)], dilations=[1, 1])
    close(got, (np.abs(x) ** 3).reshape(1, 2, 3, 2, 3, 2).sum((3, 5)) ** (1 / 3))


@pytest.mark.parametrize("reverse", [False, True])
def test_sequences_of_unequal_lengths(reverse):
    steps, sizes, hidden = 5, np.array([3, 5, 1]), 4
    layer = torch.nn.LSTM(2, hidden, bidirectional=True)
    tail = "l0_reverse" if reverse else "l0"
    order = np.r_[0:4, 12:16, 4:8, 8:12]  # PyTorch stacks i f z o, the kernel i o f z
    w, r, b, rb = (
        getattr(layer, f"{n}_{tail}").detach().numpy()[order] for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    x = draw(steps, 3, 2)
    h = c = np.zeros((3, hidden), np.float32)
    sigmoid = torch.sigmoid
    y, h, c = recurrent.lstm(
        x,
        h,
        c,
        w,
        r,
        b + rb,
        f=lambda v: sigmoid(torch.tensor(v)).numpy(),
        g=np.tanh,
        out=np.tanh,
        reverse=reverse,
        lengths=sizes,
    )
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), sizes, enforce_sorted=False)
    want, (want_h, want_c) = layer(packed)
    want = torch.nn.utils.rnn.pad_packed_sequence(want)[0].detach().numpy()
    close(y, want[..., hidden:] if reverse else want[..., :hidden])
    close(h, want_h[int(reverse)].detach())
    close(c, want_c[int(reverse)].detach())


def test_linear_resize_at_integer_points_copies_elements():
    x = draw(2, 3, 4)
    np.testing.assert_array_equal(resize.linear(x, 1, np.array([2.0, 0.0, 1.0])), x[:, [2, 0, 1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf(dtype):
    x = np.concatenate([np.linspace(-7, 7, 2001), [0.0, np.inf, -np.inf]]).astype(dtype)
    want = np.array([math.erf(v) for v in x])
    units = 8 if dtype == np.float32 else 2  # in the last place: the documented error bound
    np.testing.assert_allclose(special.erf(x), want, rtol=units * np.finfo(dtype).eps, atol=units * np.finfo(dtype).tiny)
    assert np.isnan(special.erf(np.array([np.nan], dtype))).all()
    assert special.erf(x).dtype == dtype
