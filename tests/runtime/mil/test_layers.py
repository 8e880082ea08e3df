"""Layers compared with PyTorch."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onnxbridge.errors import ConversionError
from tests.runtime.mil.build import compute, mb, run

rng = np.random.default_rng(1)


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def close(got, want):
    """float32 sums of at most a few hundred products of order one."""
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else want
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


def t(*arrays):
    return [torch.tensor(a) for a in arrays]


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize(("groups", "channels", "maps"), [(1, 4, 6), (2, 4, 6), (4, 4, 8)])
@pytest.mark.parametrize(("stride", "pad", "dilation", "kernel"), [(1, 0, 1, 3), (2, 1, 1, 3), (1, 2, 2, 2), (2, 0, 1, 1)])
def test_conv_and_conv_transpose(space, groups, channels, maps, stride, pad, dilation, kernel):
    x, bias = draw(2, channels, *[9, 8, 7][:space]), draw(maps)
    parameters = {
        "strides": [stride] * space,
        "pad_type": "custom",
        "pad": [pad] * (2 * space),
        "dilations": [dilation] * space,
        "groups": groups,
        "bias": bias,
    }
    options = {"stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
    weight = draw(maps, channels // groups, *[kernel] * space)
    got = run("conv", parameters=parameters | {"weight": weight}, x=x)
    close(got, getattr(F, f"conv{space}d")(*t(x, weight, bias), **options))
    weight = draw(channels, maps // groups, *[kernel] * space)
    got = run("conv_transpose", parameters=parameters | {"weight": weight}, x=x)
    close(got, getattr(F, f"conv_transpose{space}d")(*t(x, weight, bias), **options))


def test_conv_with_asymmetric_padding():
    x, weight = draw(1, 2, 6, 7), draw(3, 2, 3, 2)
    got = run("conv", parameters={"weight": weight, "pad_type": "custom", "pad": [2, 1, 0, 3]}, x=x)
    close(got, F.conv2d(F.pad(*t(x), (0, 3, 2, 1)), *t(weight)))


@pytest.mark.parametrize(("kind", "shift"), [("same", 0), ("same_lower", 1)])
def test_odd_same_padding(kind, shift):
    x, weight = draw(1, 1, 5), draw(1, 1, 2)
    got = run("conv", parameters={"weight": weight, "pad_type": kind}, x=x)
    close(got, F.conv1d(F.pad(*t(x), (shift, 1 - shift)), *t(weight)))


def test_conv_transpose_output_shape():
    x, weight = draw(1, 2, 5, 4), draw(2, 3, 3, 3)
    parameters = {"weight": weight, "strides": [2, 2], "pad_type": "custom", "pad": [1, 1, 1, 1], "output_shape": [1, 3, 10, 8]}
    close(
        run("conv_transpose", parameters=parameters, x=x),
        F.conv_transpose2d(*t(x, weight), stride=2, padding=1, output_padding=1),
    )


# MIL does not support ceil_mode in three dimensions.
@pytest.mark.parametrize(("space", "ceil_mode"), [(1, False), (1, True), (2, False), (2, True), (3, False)])
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 1, 1), (3, 2, 1), (2, 3, 1)])
def test_pools(space, ceil_mode, kernel, stride, pad):
    x = draw(2, 3, *[8, 7, 9][:space])
    setting = {"kernel_sizes": [kernel] * space, "strides": [stride] * space, "pad_type": "custom", "pad": [pad] * (2 * space)}
    setting["ceil_mode"] = ceil_mode
    close(
        run("max_pool", parameters=setting, x=x), getattr(F, f"max_pool{space}d")(*t(x), kernel, stride, pad, ceil_mode=ceil_mode)
    )
    for exclude in (True, False):
        got = run("avg_pool", parameters=setting | {"exclude_padding_from_average": exclude}, x=x)
        options = {"ceil_mode": ceil_mode, "count_include_pad": not exclude}
        close(got, getattr(F, f"avg_pool{space}d")(*t(x), kernel, stride, pad, **options))


def test_l2_pool():
    x = draw(2, 3, 8, 6)
    got = run("l2_pool", parameters={"kernel_sizes": [2, 3], "strides": [2, 1], "pad_type": "valid"}, x=x)
    close(got, F.lp_pool2d(*t(x), 2, (2, 3), (2, 1)))


def test_norms():
    x, gamma, beta, mean, variance = draw(2, 5, 4, 3), draw(5), draw(5), draw(5), np.abs(draw(5))
    eps = np.float32(1e-3)
    scaled = {"gamma": gamma, "beta": beta, "epsilon": eps}
    got = run("batch_norm", parameters=scaled | {"mean": mean, "variance": variance}, x=x)
    close(got, F.batch_norm(*t(x, mean, variance, gamma, beta), eps=float(eps)))
    close(run("batch_norm", parameters={"mean": mean, "variance": variance}, x=x), F.batch_norm(*t(x, mean, variance)))
    close(run("instance_norm", parameters=scaled, x=x), F.instance_norm(*t(x), None, None, *t(gamma, beta), eps=float(eps)))
    for size in (2, 3, 7):
        parameters = {"size": size, "alpha": np.float32(0.3), "beta": np.float32(0.6), "k": np.float32(1.5)}
        close(run("local_response_norm", parameters=parameters, x=x), F.local_response_norm(*t(x), size, 0.3, 0.6, 1.5))


def test_silu():
    x = draw(3, 4)
    close(run("silu", x=x), F.silu(*t(x)))


@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_scaled_dot_product_attention(mask):
    q, k, v = draw(2, 3, 5, 4), draw(2, 3, 6, 4), draw(2, 3, 6, 7)
    masks = {"none": {}, "bool": {"attn_mask": np.tri(5, 6, dtype=bool)}, "float": {"attn_mask": draw(5, 6)}}[mask]
    got = run("scaled_dot_product_attention", query=q, key=k, value=v, **masks)
    close(got, F.scaled_dot_product_attention(*t(q, k, v), attn_mask=torch.tensor(masks["attn_mask"]) if masks else None))


def test_pixel_shuffle():
    x = draw(2, 8, 4, 6)
    close(run("pixel_shuffle", parameters={"upscale_factor": 2}, x=x), F.pixel_shuffle(*t(x), 2))
    close(run("pixel_unshuffle", parameters={"downscale_factor": np.uint32(2)}, x=x), F.pixel_unshuffle(*t(x), 2))


def test_einsum_broadcasts_the_batch():
    x, y = draw(1, 3, 4, 5), draw(2, 5, 1, 6)
    got = compute(lambda x, y: mb.einsum(values=(x, y), equation="nchw,nwhu->nchu"), x=x, y=y)
    close(got, np.einsum("nchw,nwhu->nchu", np.repeat(x, 2, 0), np.repeat(y, 4, 2)))


STEPS, BATCH, SIZE, HIDDEN = 5, 2, 3, 4


def gates(v, order):
    """The gates of a PyTorch weight in another order."""
    parts = np.split(v.detach().numpy(), len(order))
    return np.concatenate([parts[i] for i in order])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_lstm(bidirectional, whole):
    layer = torch.nn.LSTM(SIZE, HIDDEN, bidirectional=bidirectional)
    ways = 2 if bidirectional else 1
    x, h, c = draw(STEPS, BATCH, SIZE), draw(ways, BATCH, HIDDEN), draw(ways, BATCH, HIDDEN)
    parameters = {"direction": "bidirectional" if bidirectional else "forward", "output_sequence": whole}
    for tail, source in (("", "l0"), ("_back", "l0_reverse"))[:ways]:
        for name, stored in (("weight_ih", "weight_ih"), ("weight_hh", "weight_hh")):
            parameters[name + tail] = gates(getattr(layer, f"{stored}_{source}"), (0, 1, 3, 2))
        both = getattr(layer, f"bias_ih_{source}") + getattr(layer, f"bias_hh_{source}")
        parameters["bias" + tail] = gates(both, (0, 1, 3, 2))
    joined = {"initial_h": np.concatenate(h, -1), "initial_c": np.concatenate(c, -1)}
    y, last_h, last_c = run("lstm", parameters=parameters, x=x, **joined)
    want, (want_h, want_c) = layer(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))
    close(last_h, np.concatenate(want_h.detach().numpy(), -1))
    close(last_c, np.concatenate(want_c.detach().numpy(), -1))
    close(y, want.detach().numpy() if whole else last_h[None])


def test_reverse_sequence_starts_with_the_last_step():
    layer = torch.nn.RNN(SIZE, HIDDEN)
    x, h = draw(STEPS, BATCH, SIZE), draw(BATCH, HIDDEN)
    parameters = {"weight_ih": layer.weight_ih_l0.detach().numpy(), "weight_hh": layer.weight_hh_l0.detach().numpy()}
    parameters["bias"] = (layer.bias_ih_l0 + layer.bias_hh_l0).detach().numpy()
    for direction, fed in (("forward", x), ("reverse", x[::-1])):
        y, last = run("rnn", parameters=parameters | {"direction": direction, "output_sequence": True}, x=fed.copy(), initial_h=h)
        want, want_h = layer(torch.tensor(x), torch.tensor(h)[None])
        close(y, want)
        close(last, want_h[0])


def test_gru_reset_after_matches_pytorch():
    layer = torch.nn.GRU(SIZE, HIDDEN)
    x, h = draw(STEPS, BATCH, SIZE), draw(BATCH, HIDDEN)
    order = (0, 2, 1)  # PyTorch stacks reset, update, new
    parameters = {
        "weight_ih": gates(layer.weight_ih_l0, order),
        "weight_hh": gates(layer.weight_hh_l0, order),
        "input_bias": gates(layer.bias_ih_l0, order),
        "bias": gates(layer.bias_hh_l0, order),
        "reset_after": True,
        "output_sequence": True,
    }
    y, last = run("gru", parameters=parameters, x=x, initial_h=h)
    want, want_h = layer(torch.tensor(x), torch.tensor(h)[None])
    close(y, want)
    close(last, want_h[0])


def test_gru_reset_before_is_the_default():
    x, h, w, r, b = draw(1, 1, 2), draw(1, 2), draw(6, 2), draw(6, 2), draw(6)
    y, _ = run("gru", parameters={"weight_ih": w, "weight_hh": r, "bias": b}, x=x, initial_h=h)
    v = x[0, 0]

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    reset = sigmoid(w[:2] @ v + r[:2] @ h[0] + b[:2])
    update = sigmoid(w[4:] @ v + r[4:] @ h[0] + b[4:])
    new = np.tanh(w[2:4] @ v + r[2:4] @ (reset * h[0]) + b[2:4])
    close(y[0, 0], (1 - update) * new + update * h[0])


def test_lstm_with_clip_and_peepholes():
    x, h, c, w, r, p = draw(2, 1, 3), draw(1, 2), 3 * draw(1, 2), draw(8, 3), draw(8, 2), draw(6)
    got = run(
        "lstm", parameters={"weight_ih": w, "weight_hh": r, "peephole": p, "clip": np.float32(0.5)},
        x=x, initial_h=h, initial_c=c,
    )  # fmt: skip
    hidden, cell = h[0], c[0]

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    for v in x[:, 0]:
        i, f, o, z = np.split(w @ v + r @ hidden, 4)
        i, f = sigmoid(i + p[:2] * cell), sigmoid(f + p[2:4] * cell)
        cell = np.clip(f * cell + i * np.tanh(z), -0.5, 0.5)
        hidden = sigmoid(o + p[4:] * cell) * np.tanh(cell)
    close(got[1][0], hidden)
    close(got[2][0], cell)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        ("scaled_tanh", np.tanh),
        ("sigmoid_hard", lambda v: np.clip(0.2 * v + 0.5, 0, 1)),
        ("relu", lambda v: np.maximum(v, 0)),
        ("linear", lambda v: v),
    ],
)
def test_activations_of_recurrent_layers(activation, function):
    x, h, w, r = draw(1, 1, 2), draw(1, 2), draw(2, 2), draw(2, 2)
    _, last = run("rnn", parameters={"weight_ih": w, "weight_hh": r, "activation": activation}, x=x, initial_h=h)
    close(last[0], function(w @ x[0, 0] + r @ h[0]))


def test_unknown_activation_raises():
    x, h, w, r = draw(1, 1, 2), draw(1, 2), draw(2, 2), draw(2, 2)
    with pytest.raises(ConversionError, match="the activation swish"):
        run("rnn", parameters={"weight_ih": w, "weight_hh": r, "activation": "swish"}, x=x, initial_h=h)


def test_lrn_of_rank_three():
    x = draw(6, 3, 4)
    parameters = {"size": 3, "alpha": np.float32(0.3), "beta": np.float32(0.6), "k": np.float32(1.5)}
    want = F.local_response_norm(torch.tensor(x)[None], 3, 0.3, 0.6, 1.5)[0]
    close(run("local_response_norm", parameters=parameters, x=x), want)


SAMPLING_MODES = list(itertools.product(("bilinear", "nearest"), ("zeros", "border", "reflection"), (True, False)))


@pytest.mark.parametrize(("mode", "padding", "corners"), SAMPLING_MODES)
def test_resample(mode, padding, corners):
    x = draw(2, 3, 5, 7)
    grid = rng.uniform(-1.6, 1.6, (2, 4, 6, 2)).astype(np.float32)
    names = {"zeros": "constant", "border": "border", "reflection": "reflection" if corners else "symmetric"}
    parameters = {
        "sampling_mode": mode,
        "padding_mode": names[padding],
        "padding_value": np.float32(0),
        "coordinates_mode": "normalized_minus_one_to_one",
        "align_corners": corners,
    }
    got = run("resample", parameters=parameters, x=x, coordinates=grid)
    close(got, F.grid_sample(*t(x, grid), mode=mode, padding_mode=padding, align_corners=corners))


def test_affine():
    x, matrix = draw(2, 3, 5, 7), rng.uniform(-1, 1, (2, 6)).astype(np.float32)
    parameters = {
        "output_height": 4,
        "output_width": 6,
        "sampling_mode": "bilinear",
        "padding_mode": "constant",
        "padding_value": np.float32(0),
        "coordinates_mode": "normalized_minus_one_to_one",
        "align_corners": True,
    }
    grid = F.affine_grid(torch.tensor(matrix.reshape(2, 2, 3)), (2, 3, 4, 6), align_corners=True)
    close(run("affine", parameters=parameters, x=x, transform_matrix=matrix), F.grid_sample(*t(x), grid, align_corners=True))


@pytest.mark.parametrize("corners", [True, False])
def test_upsample_bilinear(corners):
    x = draw(1, 2, 3, 4)
    parameters = {"scale_factor_height": 3, "scale_factor_width": 2, "align_corners": corners}
    want = F.interpolate(*t(x), size=(9, 8), mode="bilinear", align_corners=corners)
    close(run("upsample_bilinear", parameters=parameters, x=x), want)
    mode = "STRICT_ALIGN_CORNERS" if corners else "UNALIGN_CORNERS"
    parameters = {"target_size_height": 5, "target_size_width": 3, "sampling_mode": mode}
    want = F.interpolate(*t(x), size=(5, 3), mode="bilinear", align_corners=corners)
    close(run("resize_bilinear", parameters=parameters, x=x), want)


def test_upsample_nearest():
    x = draw(1, 2, 3, 4)
    parameters = {"scale_factor_height": 2.5, "scale_factor_width": 2.0}
    close(run("upsample_nearest_neighbor", parameters=parameters, x=x), F.interpolate(*t(x), size=(7, 8), mode="nearest"))
    parameters = {"target_size_height": 7, "target_size_width": 3}
    close(run("resize_nearest_neighbor", parameters=parameters, x=x), F.interpolate(*t(x), size=(7, 3), mode="nearest-exact"))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("sequence", [False, True])
def test_lstm_with_clip_becomes_a_loop(direction, sequence):
    """The interpreter runs the operator itself; with inputs of this magnitude the cell is clipped in most steps."""
    rng, ways = np.random.default_rng(3), 2 if direction == "bidirectional" else 1
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    given = {"weight_ih": draw(8, 3), "weight_hh": draw(8, 2), "bias": draw(8), "peephole": draw(6)}
    given |= {f"{k}_back": draw(*v.shape) for k, v in given.items()} if ways == 2 else {}

    def build(x, h, c):
        return mb.lstm(
            x=x, initial_h=h, initial_c=c, direction=direction, output_sequence=sequence, clip=np.float32(0.2),
            recurrent_activation="hard_sigmoid", **given,
        )  # fmt: skip

    y, h, c = compute(build, x=5 * draw(6, 2, 3), h=draw(2, 2 * ways), c=draw(2, 2 * ways))  # ONNX Runtime assert_hub_matches
    assert (np.abs(c) == np.float32(0.2)).any() and np.abs(c).max() <= np.float32(0.2)
