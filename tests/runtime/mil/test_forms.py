"""Documented parameter values of MIL operators, compared with PyTorch, TensorFlow, or NumPy code from the documentation."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onnxbridge.errors import ConversionError, OnnxbridgeError
from onnxbridge.frontends.coreml import frontend
from onnxbridge.hub import passes
from onnxbridge.runtime import devices
from tests.runtime.mil.build import compute, ct, mb, program, run

rng = np.random.default_rng(12)
FLOAT = np.float32


def draw(*shape):
    return rng.standard_normal(shape).astype(FLOAT)


def close(result, expected):
    expected = np.asarray(expected)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-5)


def reference(function, *arrays, **options):
    return function(*(torch.tensor(a).double() for a in arrays), **options).numpy()


SAME = [(size, kernel, stride) for size in (5, 6, 7) for kernel in (2, 3) for stride in (1, 2, 3)]


@pytest.mark.parametrize(("size", "kernel", "stride"), SAME)
@pytest.mark.parametrize("pad_type", ["same", "same_lower"])
def test_same_padding(pad_type, size, kernel, stride):
    """`same` gives size ceil(size / stride) and pads one more after if the padding is odd, `same_lower` one more before."""
    x, weight = draw(1, 2, size), draw(3, 2, kernel)
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    pads = (total // 2, total - total // 2)[:: 1 if pad_type == "same" else -1]
    padded = np.pad(x, ((0, 0), (0, 0), pads))
    result = run("conv", ct.target.iOS16, {"weight": weight, "strides": [stride], "pad_type": pad_type}, x=x)
    close(result, reference(F.conv1d, padded, weight, stride=stride))
    parameters = {"kernel_sizes": [kernel], "strides": [stride], "pad_type": pad_type}
    close(run("avg_pool", ct.target.iOS16, parameters, x=x), reference(F.avg_pool1d, padded, kernel_size=kernel, stride=stride))
    ones = np.pad(np.ones_like(x), ((0, 0), (0, 0), pads))
    inside = [reference(F.avg_pool1d, v, kernel_size=kernel, stride=stride) for v in (padded, ones)]
    result = run("avg_pool", ct.target.iOS16, parameters | {"exclude_padding_from_average": True}, x=x)
    close(result, inside[0] / inside[1])
    low = np.pad(x, ((0, 0), (0, 0), pads), constant_values=-np.inf)
    close(run("max_pool", ct.target.iOS16, parameters, x=x), reference(F.max_pool1d, low, kernel_size=kernel, stride=stride))


@pytest.mark.parametrize(("size", "kernel", "stride"), [(4, 3, 2), (5, 4, 2), (3, 3, 1), (4, 2, 3)])
def test_conv_transpose_same_padding(size, kernel, stride):
    """The result has size * stride: the transpose of a convolution with `same`."""
    x, weight = draw(1, 2, size), draw(2, 3, kernel)
    result = run("conv_transpose", parameters={"weight": weight, "strides": [stride], "pad_type": "same"}, x=x)
    full = reference(F.conv_transpose1d, x, weight, stride=stride)
    surplus = max(kernel - stride, 0)
    full = np.pad(full, ((0, 0), (0, 0), (0, max(stride - kernel, 0))))
    close(result, full[:, :, surplus // 2 : surplus // 2 + size * stride])


@pytest.mark.parametrize(("pad_type", "pad"), [("valid", None), ("custom", [1, 1]), ("custom", [1, 0])])
def test_l2_pool(pad_type, pad):
    x = draw(1, 2, 7)
    padded = np.pad(x, ((0, 0), (0, 0), tuple(pad or (0, 0))))
    parameters = {"kernel_sizes": [3], "strides": [2], "pad_type": pad_type} | ({"pad": pad} if pad else {})
    windows = np.lib.stride_tricks.sliding_window_view(padded.astype(np.float64), 3, 2)[:, :, ::2]
    close(run("l2_pool", parameters=parameters, x=x), np.sqrt((windows**2).sum(-1)))


FRACTIONS = np.array([[1.7, -1.2, 3.0], [100.9, 0.0, -7.6]], FLOAT)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("source", [np.float32, np.float16, np.int32])
def test_casts_to_integers(dtype, source):
    """Fractions are truncated."""
    x = np.abs(FRACTIONS).astype(source)
    result = compute(lambda x: mb.cast(x=mb.cast(x=x, dtype=dtype), dtype="fp32"), ct.target.iOS17, x=x)
    np.testing.assert_array_equal(result, np.trunc(x.astype(FLOAT)))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantize_and_dequantize(dtype, axis):
    """round(x / scale) + zero_point with saturation, and its inverse."""
    x, limits = draw(4, 3) * 20, np.iinfo(dtype)
    shape = {None: (), 0: (4, 1), -1: (1, 3)}[axis]
    scale = rng.uniform(0.1, 0.3, shape).astype(FLOAT)
    zero = rng.integers(0, 9, shape).astype(dtype)
    parameters = {"scale": scale if axis is None else scale.ravel(), "zero_point": zero if axis is None else zero.ravel()}
    parameters |= {} if axis is None else {"axis": axis}
    codes = np.clip(np.rint(x / scale) + zero, limits.min, limits.max)
    result = compute(
        lambda x: mb.dequantize(input=mb.quantize(input=x, output_dtype=dtype, **parameters), **parameters), ct.target.iOS17, x=x
    )
    close(result, (codes - zero) * scale)


@pytest.mark.parametrize("name", ["reduce_argmax", "reduce_argmin"])
@pytest.mark.parametrize("dtype", ["int32", "uint16"])
@pytest.mark.parametrize("keep", [True, False])
def test_argmax_and_argmin_dtypes(name, dtype, keep):
    x = draw(3, 4)
    result = compute(
        lambda x: mb.cast(x=getattr(mb, name)(x=x, axis=-1, keep_dims=keep, output_dtype=dtype), dtype="int32"),
        ct.target.iOS17, x=x,
    )  # fmt: skip
    np.testing.assert_array_equal(result, getattr(np, name[7:])(x, -1, keepdims=keep))


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("k", [2, -1])
def test_topk_without_sort_and_indices(sort, ascending, k):
    x = draw(3, 5)
    parameters = {"k": k, "axis": 1, "ascending": ascending, "sort": sort}
    expected = np.sort(x, 1)[:, :: 1 if ascending else -1][:, : 5 if k == -1 else k]
    values = run("topk", ct.target.iOS17, parameters | {"return_indices": False}, x=x)
    np.testing.assert_array_equal(values if sort else np.sort(values, 1), expected if sort else np.sort(expected, 1))

    def both(x):
        found, positions = mb.topk(x=x, output_indices_dtype="uint16", **parameters)
        return found, mb.cast(x=positions, dtype="int32")

    values, positions = compute(both, ct.target.iOS17, x=x)
    np.testing.assert_array_equal(np.take_along_axis(x, positions, 1), values)
    np.testing.assert_array_equal(np.sort(values, 1), np.sort(expected, 1))


MASKS = [
    ([True, False, False], [False, False, False], [False, False, False]),
    ([False, False, False], [False, True, True], [False, False, False]),
    ([True, True, True], [True, True, True], [False, False, False]),
    ([False, False, False], [False, False, False], [False, True, False]),
]


@pytest.mark.parametrize(("begin_mask", "end_mask", "squeeze_mask"), MASKS)
def test_slice_masks(begin_mask, end_mask, squeeze_mask):
    """A masked begin or end is that of the axis; a squeezed axis is an index."""
    x = draw(3, 4, 5)
    begin, end, stride = [1, 1, 0], [2, 2, 4], [1, 1, 2]
    place = tuple(
        begin[a] if squeeze_mask[a] else slice(None if begin_mask[a] else begin[a], None if end_mask[a] else end[a], stride[a])
        for a in range(3)
    )
    parameters = {
        "begin": begin, "end": end, "stride": stride, "begin_mask": begin_mask, "end_mask": end_mask,
        "squeeze_mask": squeeze_mask,
    }  # fmt: skip
    np.testing.assert_array_equal(run("slice_by_index", parameters=parameters, x=x), x[place])
    expected, update = x.copy(), draw(*x[place].shape)
    expected[place] = update
    np.testing.assert_array_equal(run("slice_update", parameters=parameters, x=x, update=update), expected)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_stack(axis):
    x, y = draw(2, 3), draw(2, 3)
    np.testing.assert_array_equal(compute(lambda x, y: mb.stack(values=(x, y), axis=axis), x=x, y=y), np.stack([x, y], axis))


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("whole", [True, False])
def test_rnn_and_gru_in_both_directions(direction, whole):
    """Compared with PyTorch's layers on the reversed sequence; the results of a reverse layer start with the last step."""
    x, h = draw(4, 2, 3), draw(2, 5)
    layer = torch.nn.RNN(3, 5, batch_first=False)
    with torch.no_grad():
        weights = {"weight_ih": layer.weight_ih_l0.numpy(), "weight_hh": layer.weight_hh_l0.numpy()}
        turned = torch.tensor(x[::-1].copy() if direction == "reverse" else x)
        sequence, last = layer(turned, torch.tensor(h)[None])
        bias = (layer.bias_ih_l0 + layer.bias_hh_l0).numpy()
    parameters = {"direction": direction, "output_sequence": whole, "bias": bias} | weights
    y, end = run("rnn", parameters=parameters, x=x, initial_h=h)
    close(y, sequence.numpy() if whole else last.numpy())
    close(end, last.numpy()[0])
    layer = torch.nn.GRU(3, 5)
    order = [0, 2, 1]  # PyTorch stacks reset, update, new; MIL reset, new, update
    with torch.no_grad():
        w_ih, w_hh, b_ih, b_hh = (
            np.concatenate([np.split(v.numpy(), 3)[i] for i in order])
            for v in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0)
        )
        sequence, last = layer(turned, torch.tensor(h)[None])
    parameters = {
        "direction": direction, "output_sequence": whole, "weight_ih": w_ih, "weight_hh": w_hh, "bias": b_hh, "input_bias": b_ih,
        "reset_after": True,
    }  # fmt: skip
    y, end = run("gru", parameters=parameters, x=x, initial_h=h)
    close(y, sequence.numpy() if whole else last.numpy())
    close(end, last.numpy()[0])


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "linear"])
def test_rnn_activations(activation):
    x, h, w, r, b = draw(3, 2, 3), draw(2, 4), draw(4, 3), draw(4, 4) / 4, draw(4)
    function = {
        "relu": lambda v: np.maximum(v, 0), "tanh": np.tanh, "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "linear": lambda v: v,
    }  # fmt: skip
    state, steps = h.astype(np.float64), []
    for step in x:
        state = function[activation](step @ w.T + b + state @ r.T)
        steps.append(state)
    parameters = {"weight_ih": w, "weight_hh": r, "bias": b, "activation": activation, "output_sequence": True}
    y, end = run("rnn", parameters=parameters, x=x, initial_h=h)
    close(y, np.stack(steps))
    close(end, state)


def grid(mode, start, end, count):
    """The sample positions that MIL documents for an interval from `start` to `end`, before clamping."""
    size, i = end - start + 1, np.arange(count)
    if mode == "ALIGN_CORNERS" and count == 1:
        return np.array([(start + end) / 2])
    if mode in ("ALIGN_CORNERS", "STRICT_ALIGN_CORNERS"):
        return start + i * (size - 1) / max(count - 1, 1)
    if mode == "DEFAULT":
        return start + i * (size - size / count) / max(count - 1, 1)
    if mode == "OFFSET_CORNERS":
        delta = max(1, size - 1) / count
        return start + 0.5 * delta + i * delta
    return start + i * size / count + 0.5 * size / count - 0.5


def bilinear(image, rows, columns):
    """The image (C, H, W) interpolated at each row and column, element by element."""
    height, width = image.shape[1:]
    found = np.zeros((len(image), len(rows), len(columns)))
    for i, r in enumerate(np.clip(rows, 0, height - 1)):
        for j, c in enumerate(np.clip(columns, 0, width - 1)):
            up, left = int(np.floor(r)), int(np.floor(c))
            down, right = min(up + 1, height - 1), min(left + 1, width - 1)
            above = image[:, up, left] * (1 - (c - left)) + image[:, up, right] * (c - left)
            below = image[:, down, left] * (1 - (c - left)) + image[:, down, right] * (c - left)
            found[:, i, j] = above * (1 - (r - up)) + below * (r - up)
    return found


MODES = ["ALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS"]
BOXES = ["CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST"]


@pytest.mark.parametrize("boxes", BOXES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("opset", [ct.target.iOS15, ct.target.iOS16, ct.target.iOS17])
def test_crop_resize_boxes_in_all_modes(opset, mode, boxes):
    """Corners (top, left, bottom, right), scaled; all positions are inside of the image, so there is no padding."""
    x = draw(2, 3, 7, 9)
    corners = np.array([[1, 2, 5, 7.5], [0.5, 0, 6, 8], [2, 1, 4.5, 5]])
    images, (height, width) = [1, 0, 1], (3, 4)
    top, left, bottom, right = corners.T * 2  # spatial_scale halves them
    if boxes.startswith("CENTER"):
        top, left, bottom, right = (top + bottom) / 2, (left + right) / 2, bottom - top, right - left
    boxes_or_points = np.stack([top, left, bottom, right] if "HEIGHT" in boxes else [left, top, right, bottom], 1).astype(FLOAT)
    expected = np.stack([
        [bilinear(image, grid(mode, t, b, height), grid(mode, le, r, width)) for image in x] for t, le, b, r in corners
    ])  # fmt: skip
    parameters = {
        "target_height": height, "target_width": width, "spatial_scale": FLOAT(0.5), "box_coordinate_mode": boxes,
        "sampling_mode": mode,
    }  # fmt: skip
    if opset is ct.target.iOS17:
        result = run("crop_resize", opset, parameters | {"box_indices": np.array(images, np.int32)}, x=x, boxes=boxes_or_points)
        close(result, expected[np.arange(3), images])
        return
    close(
        run("crop_resize", opset, parameters, x=x, roi=boxes_or_points.reshape(3, 1, 4, 1, 1)), expected
    )  # each box of each image
    roi = np.concatenate([np.zeros((3, 1), FLOAT), boxes_or_points], 1).reshape(3, 1, 5, 1, 1)
    close(run("crop_resize", opset, parameters, x=x[:1], roi=roi), expected[:, :1])


@pytest.mark.parametrize("mode", ["ALIGN_CORNERS", "STRICT_ALIGN_CORNERS"])
def test_reversed_box_flips_the_crop(mode):
    """As in Apple's test of ALIGN_CORNERS, and in TensorFlow."""
    x, box = draw(1, 2, 5, 6), np.array([[3, 4, 1, 0.5]], FLOAT)
    parameters = {"target_height": 4, "target_width": 3, "sampling_mode": mode}
    expected = bilinear(x[0], np.linspace(3, 1, 4), np.linspace(4, 0.5, 3))[None]
    close(run("crop_resize", parameters=parameters, x=x, boxes=box), expected)


@pytest.mark.parametrize("mode", ["DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS"])
def test_reversed_box_is_unsupported_if_undefined(mode):
    x, box = draw(1, 2, 5, 6), np.array([[3, 4, 1, 0.5]], FLOAT)
    parameters = {"target_height": 4, "target_width": 3, "sampling_mode": mode}
    with pytest.raises(ConversionError, match="whose end is before its start"):
        run("crop_resize", parameters=parameters, hub=False, x=x, boxes=box)
    with pytest.raises(ConversionError, match="whose end is before its start"):
        frontend.to_hub(program(lambda x: mb.crop_resize(x=x, boxes=box, **parameters), x=x))


@pytest.mark.parametrize("mode", ["DEFAULT", "OFFSET_CORNERS", "UNALIGN_CORNERS"])
@pytest.mark.parametrize("opset", [ct.target.iOS15, ct.target.iOS17])
def test_dynamic_undefined_box_gives_nan_in_the_hub(opset, mode):
    """ONNX has no operator that raises an error at run time."""
    x = draw(2, 2, 5, 6)
    good, turned, outside = [1, 1, 3, 4], [3, 4, 1, 0.5], [1, 1, 3, 7]
    parameters = {"target_height": 2, "target_width": 3, "sampling_mode": mode}

    def crops(*boxes):
        boxes_or_points = np.array(boxes, FLOAT)
        boxes_or_points = (
            {"boxes": boxes_or_points} if opset is ct.target.iOS17 else {"roi": boxes_or_points.reshape(-1, 1, 4, 1, 1)}
        )
        built = program(lambda x, **v: mb.crop_resize(x=x, **v, **parameters), opset, x=x, **boxes_or_points)
        return next(
            iter(devices.run(devices.session(passes.clean(frontend.to_hub(built)), "cpu"), {"x": x, **boxes_or_points}).values())
        )

    usual, found = crops(good, good), crops(good, turned)
    assert np.isnan(found[1]).all() and np.array_equal(found[0], usual[0]) and np.isfinite(usual).all()
    assert np.isnan(crops(good, outside)[1]).all() == (opset is ct.target.iOS15)  # from iOS16 on it is padded


def test_corner_outside_of_the_image_by_rounding():
    x = draw(1, 2, 5, 6)
    roi = np.array([0, 0, np.nextafter(FLOAT(1), FLOAT(2)), 1], FLOAT).reshape(1, 1, 4, 1, 1)
    parameters = {
        "target_height": 5, "target_width": 6, "sampling_mode": "ALIGN_CORNERS", "normalized_coordinates": True,
    }  # fmt: skip
    close(run("crop_resize", ct.target.iOS15, parameters, x=x, roi=roi), x[None])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [(1, 5), (4, 3), (9, 8)])
def test_resize_at_documented_positions(mode, sizes):
    x = draw(2, 3, 5, 6)
    expected = np.stack([bilinear(v, grid(mode, 0, 4, sizes[0]), grid(mode, 0, 5, sizes[1])) for v in x])
    parameters = {"target_size_height": sizes[0], "target_size_width": sizes[1], "sampling_mode": mode}
    close(run("resize_bilinear", parameters=parameters, x=x), expected)
    parameters = {"shape": np.array([0, *sizes], np.int32), "resized_dims": np.uint32(2), "sampling_mode": mode}
    close(run("resize", ct.target.iOS17, parameters, x=x), expected)


@pytest.mark.parametrize("sizes", [(10, 3), (7, 12), (5, 6)])
def test_nearest_neighbor_takes_the_center_element(sizes):
    x = draw(1, 2, 5, 6)
    rows, columns = (np.floor((np.arange(n) + 0.5) * old / n).astype(int) for n, old in zip(sizes, (5, 6), strict=True))
    expected = x[:, :, rows][..., columns]
    parameters = {"shape": np.array(sizes, np.int32), "resized_dims": np.uint32(2), "interpolation_mode": "NEAREST_NEIGHBOR"}
    np.testing.assert_array_equal(run("resize", ct.target.iOS17, parameters, x=x), expected)
    parameters = {"target_size_height": sizes[0], "target_size_width": sizes[1]}
    np.testing.assert_array_equal(run("resize_nearest_neighbor", parameters=parameters, x=x), expected)


@pytest.mark.parametrize(("align", "half", "mode"), [
    (True, False, "STRICT_ALIGN_CORNERS"), (False, False, "DEFAULT"), (False, True, "UNALIGN_CORNERS"),
])  # fmt: skip
@pytest.mark.parametrize("factors", [(2.0, 3.0), (1.5, 0.5)])
def test_upsample_with_and_without_half_pixel_centers(align, half, mode, factors):
    x = draw(2, 3, 4, 6)
    sizes = [int(n * f) for n, f in zip((4, 6), factors, strict=True)]
    parameters = {"scale_factor_height": factors[0], "scale_factor_width": factors[1], "align_corners": align}
    expected = np.stack([bilinear(v, grid(mode, 0, 3, sizes[0]), grid(mode, 0, 5, sizes[1])) for v in x])
    close(run("upsample_bilinear", parameters=parameters | {"half_pixel_centers": half}, x=x), expected)


@pytest.mark.parametrize("coordinates", ["unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one"])
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["constant", "border", "reflection", "symmetric"])
def test_resample_coordinate_modes(coordinates, align, padding):
    """Positions in pixels, converted to each mode; normalized corners are pixel centers (`align`) or pixel edges."""
    x, sizes = draw(2, 3, 5, 7), np.array([7, 5])
    positions = rng.uniform(-3, 1.3, (2, 4, 6, 2)) * sizes * 0.5 + sizes * 0.5
    normalized = positions / (sizes - 1) if align else (positions + 0.5) / sizes
    boxes_or_points = {
        "unnormalized": positions,
        "normalized_zero_to_one": normalized,
        "normalized_minus_one_to_one": 2 * normalized - 1,
    }[coordinates]
    modes = {"constant": "constant", "border": "edge", "reflection": "reflect", "symmetric": "symmetric"}
    value = {"constant_values": 0.7} if padding == "constant" else {}
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (20, 20), (20, 20)), modes[padding], **value)
    expected = np.zeros((2, 3, 4, 6))
    for n, i, j in np.ndindex(2, 4, 6):
        expected[n, :, i, j] = bilinear(padded[n], [positions[n, i, j, 1] + 20], [positions[n, i, j, 0] + 20])[:, 0, 0]
    parameters = {
        "sampling_mode": "bilinear", "padding_mode": padding, "padding_value": FLOAT(0.7), "coordinates_mode": coordinates,
        "align_corners": align,
    }  # fmt: skip
    result = run("resample", ct.target.iOS16, parameters, x=x, coordinates=boxes_or_points.astype(FLOAT))
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("opset", [ct.target.iOS16, ct.target.iOS17])
@pytest.mark.parametrize("op", ["gather", "gather_along_axis", "gather_nd"])
def test_validate_indices(op, opset):
    x = draw(3, 4)
    good, bad = {
        "gather": (np.array([2, 0]), np.array([3])), "gather_along_axis": (np.array([[0, 2, 1, 1]]), np.array([[0, 3, 0, 0]])),
        "gather_nd": (np.array([[2, 3], [0, 0]]), np.array([[0, 4]])),
    }[op]  # fmt: skip
    expected = {
        "gather": lambda i: x[i], "gather_along_axis": lambda i: np.take_along_axis(x, i, 0),
        "gather_nd": lambda i: x[tuple(i.T)],
    }[op]  # fmt: skip
    options = {"validate_indices": True} if opset is ct.target.iOS17 else {}
    np.testing.assert_array_equal(run(op, opset, options, x=x, indices=good.astype(np.int32)), expected(good))
    if options:
        with pytest.raises(OnnxbridgeError, match="out of bounds"):
            run(op, opset, options, hub=False, x=x, indices=bad.astype(np.int32))
