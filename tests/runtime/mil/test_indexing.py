"""Scatter, gather, rearrange and slice operators, compared with TensorFlow and NumPy."""

import numpy as np
import pytest

from onnxbridge.errors import OnnxbridgeError
from onnxbridge.frameworks import tensorflow
from tests.runtime.mil.build import compute, ct, mb, run

tf = tensorflow()
rng = np.random.default_rng(2)
SCATTER_MODES = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "mul": lambda old, new: old * new,
    "div": lambda old, new: old / new,
    "max": max,
    "min": min,
}


def draw(*shape):
    return rng.uniform(0.5, 2, shape).astype(np.float32)


def channels_last(x):
    return np.moveaxis(x, 1, -1)


def channels_first(x):
    return np.moveaxis(np.asarray(x), -1, 1)


def same(got, want):
    np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-5)
    assert got.shape == np.asarray(want).shape


@pytest.mark.parametrize("mode", SCATTER_MODES)
def test_scatter(mode):
    data, updates, indices = draw(2, 4), draw(2, 3), np.array([2, 0, 2] if mode != "update" else [2, 0, 1], np.int32)
    want = data.copy()
    for i in range(2):
        for j, place in enumerate(indices):
            want[i, place] = SCATTER_MODES[mode](want[i, place], updates[i, j])
    same(run("scatter", parameters={"axis": 1, "mode": mode}, data=data, indices=indices, updates=updates), want)


@pytest.mark.parametrize("mode", SCATTER_MODES)
def test_scatter_along_axis(mode):
    data, updates, indices = draw(3, 4), draw(2, 4), np.array([[0, 1, 2, 1], [2, 1, 0, 0]], np.int32)
    if mode == "update":
        indices[1, 1] = 0
    want = data.copy()
    for i in range(2):
        for j in range(4):
            want[indices[i, j], j] = SCATTER_MODES[mode](want[indices[i, j], j], updates[i, j])
    same(run("scatter_along_axis", parameters={"axis": 0, "mode": mode}, data=data, indices=indices, updates=updates), want)


@pytest.mark.parametrize("mode", SCATTER_MODES)
def test_scatter_nd(mode):
    data, updates, indices = draw(3, 4, 2), draw(2, 2), np.array([[1, 2], [0, 3]], np.int32)
    want = data.copy()
    for place, update in zip(indices, updates, strict=True):
        for k in range(2):
            want[(*place, k)] = SCATTER_MODES[mode](want[(*place, k)], update[k])
    same(run("scatter_nd", parameters={"mode": mode}, data=data, indices=indices, updates=updates), want)


def test_gather_nd():
    x, indices = draw(2, 3, 4), np.array([[[1, 2], [0, 3]], [[2, 0], [1, 1]]], np.int32)
    same(run("gather_nd", parameters={"batch_dims": 1}, x=x, indices=indices), tf.gather_nd(x, indices, batch_dims=1))
    flat = np.array([[1, 2], [0, 1]], np.int32)
    same(run("gather_nd", x=x, indices=flat), tf.gather_nd(x, flat))


def test_validate_indices_raises():
    x, indices = draw(2, 3), np.array([0, 5], np.int32)
    with pytest.raises(OnnxbridgeError, match=r"gather.*out of bounds \[0, 2\)"):
        run("gather", parameters={"validate_indices": True}, x=x, indices=indices)


def test_negative_indices_before_ios17():
    x = draw(3, 2)
    same(run("gather", ct.target.iOS16, x=x, indices=np.array([-1, 0], np.int32)), x[[2, 0]])


def test_one_hot():
    indices = np.array([[0, 2, 3], [1, 3, 0]], np.int32)
    parameters = {"one_hot_vector_size": 4, "axis": 1, "on_value": np.float32(5), "off_value": np.float32(-1)}
    same(run("one_hot", parameters=parameters, indices=indices), tf.one_hot(indices, 4, 5.0, -1.0, axis=1))
    assert run("one_hot", parameters={"one_hot_vector_size": 4}, indices=indices).dtype == np.int32


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_cumsum(exclusive, reverse):
    x = draw(2, 5)
    got = run("cumsum", parameters={"axis": 1, "exclusive": exclusive, "reverse": reverse}, x=x)
    same(got, tf.cumsum(x, axis=1, exclusive=exclusive, reverse=reverse))


def test_exclusive_cumsum_keeps_small_numbers():
    got = run("cumsum", parameters={"axis": 0, "exclusive": True, "reverse": False}, x=np.float32([0.25, 0.5, 3e38, np.inf]))
    assert np.asarray(got).tolist() == [0, 0.25, 0.75, np.float32(3e38)]


def test_reverse_sequence():
    x, lengths = draw(3, 2, 4), np.array([4, 0, 3], np.int32)
    got = run("reverse_sequence", parameters={"seq_axis": 2, "batch_axis": 0}, x=x, lengths=lengths)
    same(got, tf.reverse_sequence(x, lengths, seq_axis=2, batch_axis=0))


@pytest.mark.parametrize(("size", "stride"), [(2, 1), (3, 2)])
def test_sliding_windows(size, stride):
    x = draw(2, 7, 3)
    want = np.stack([x[:, i : i + size] for i in range(0, 7 - size + 1, stride)], 1)
    same(run("sliding_windows", parameters={"axis": 1, "size": size, "stride": stride}, x=x), want)


def test_space_and_depth_match_tensorflow():
    x = draw(4, 8, 4, 6)
    last = channels_last(x)
    same(run("depth_to_space", parameters={"block_size": 2}, x=x), channels_first(tf.nn.depth_to_space(last, 2)))
    same(run("space_to_depth", parameters={"block_size": 2}, x=x), channels_first(tf.nn.space_to_depth(last, 2)))
    got = run("space_to_batch", parameters={"block_shape": [2, 3], "paddings": [[1, 1], [0, 3]]}, x=x)
    same(got, channels_first(tf.space_to_batch_nd(last, [2, 3], [[1, 1], [0, 3]])))
    got = run("batch_to_space", parameters={"block_shape": [2, 2], "crops": [[1, 0], [0, 2]]}, x=x)
    same(got, channels_first(tf.batch_to_space(last, [2, 2], [[1, 0], [0, 2]])))


def test_crop():
    x = draw(1, 2, 5, 6)
    same(run("crop", parameters={"crop_height": [1, 0], "crop_width": [2, 1]}, x=x), x[:, :, 1:, 2:5])


def test_reshape_like():
    x, like, other = draw(4, 3), draw(2, 2, 5), draw(7, 3)

    def build(x, like, other):
        shape = {"begins": (0, 1), "ends": (2, 0), "end_masks": (False, True)}
        return mb.reshape_like(x=x, ref_tensors=(like, other), **shape), mb.fill_like(ref_tensor=like, value=np.int32(3))

    reshaped, filled = compute(build, x=x, like=like, other=other)
    same(reshaped, x.reshape(2, 2, 3))
    same(filled, np.full((2, 2, 5), 3, np.int32))


def test_fill_and_range_with_dynamic_values():
    size = np.array([2, 3], np.int32)
    same(run("fill", parameters={"value": np.float32(2.5)}, shape=size), np.full((2, 3), 2.5))
    end, start, step = (np.float32(v) for v in (1.0, 0.0, 0.1))
    got = compute(lambda n: mb.range_1d(end=mb.squeeze(x=n), start=start, step=step), n=np.array([end]))
    assert got.shape == (10,)
    np.testing.assert_allclose(got, np.arange(10) / 10, rtol=1e-6)


def test_interleaved_concat():
    x, y = draw(3, 2), draw(3, 2)
    got = compute(lambda x, y: mb.concat(values=(x, y), axis=0, interleave=True), x=x, y=y)
    same(got, np.stack([x, y], 1).reshape(6, 2))


def test_crop_resize_matches_tensorflow():
    x = draw(2, 3, 5, 6)
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0.5, 1.3, 1.0, 0.3], [0.9, 0.1, 0.2, 0.4]], np.float32)
    index = np.array([1, 0, 1], np.int32)
    parameters = {
        "target_height": 4,
        "target_width": 3,
        "normalized_coordinates": True,
        "sampling_mode": "ALIGN_CORNERS",
        "pad_value": np.float32(7),
        "box_indices": index,
    }
    want = tf.image.crop_and_resize(channels_last(x), boxes, index, (4, 3), extrapolation_value=7.0)
    same(run("crop_resize", parameters=parameters, x=x, boxes=boxes), channels_first(want))


def test_crop_resize_before_ios17_crops_every_image():
    x = draw(2, 3, 5, 6)
    box = np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4, 1, 1)
    parameters = {"target_height": 3, "target_width": 3, "sampling_mode": "ALIGN_CORNERS"}
    same(run("crop_resize", ct.target.iOS15, parameters, x=x, roi=box), x[None, :, :, 1:4, 2:5])
    one = np.array([0, 1, 2, 3, 4], np.float32).reshape(1, 1, 5, 1, 1)
    same(run("crop_resize", ct.target.iOS15, parameters, x=x[:1], roi=one), x[None, :1, :, 1:4, 2:5])


@pytest.mark.parametrize(
    ("mode", "grid"),
    [
        ("UNALIGN_CORNERS", [0.0, 0.1, 0.5, 0.9, 1.0]),
        ("STRICT_ALIGN_CORNERS", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("ALIGN_CORNERS", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("DEFAULT", [0.0, 0.4, 0.8, 1.0, 1.0]),
        ("OFFSET_CORNERS", [0.1, 0.3, 0.5, 0.7, 0.9]),
    ],
)
def test_sampling_modes_at_documented_positions(mode, grid):
    x = np.array([0, 1], np.float32).reshape(1, 1, 2)
    parameters = {"target_size_height": 1, "target_size_width": 5, "sampling_mode": mode}
    same(run("resize_bilinear", parameters=parameters, x=x), np.array(grid).reshape(1, 1, 5))
    parameters = {"shape": [1, 5], "resized_dims": np.uint32(2), "sampling_mode": mode}
    same(run("resize", parameters=parameters, x=x), np.array(grid).reshape(1, 1, 5))


def corners(boxes):
    """Corners (y1, x1, y2, x2) of boxes given as center and size."""
    x, y, w, h = boxes.T
    return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)


@pytest.mark.parametrize("threshold", [0.0, 0.6])
def test_non_maximum_suppression(threshold):
    boxes = np.concatenate([rng.uniform(0, 4, (30, 2)), rng.uniform(1, 3, (30, 2))], 1).astype(np.float32)
    scores = rng.random((30, 1)).astype(np.float32)
    want = tf.image.non_max_suppression(corners(boxes), scores[:, 0], 8, 0.3, threshold).numpy()
    parameters = {"iou_threshold": np.float32(0.3), "score_threshold": np.float32(threshold), "max_boxes": 8}
    found = run("non_maximum_suppression", ct.target.iOS15, parameters, boxes=boxes[None], scores=scores[None])
    kept = len(want)
    assert found[3] == [kept]
    same(found[2][0], np.r_[want, np.full(8 - kept, -1)])
    same(found[0][0, :kept], boxes[want])
    same(found[1][0], np.r_[scores[want], np.zeros((8 - kept, 1))])
    del parameters["score_threshold"]
    columns = run("non_maximum_suppression", parameters=parameters, boxes=boxes.T[None].copy(), scores=scores.T[None].copy())
    first = tf.image.non_max_suppression(corners(boxes), scores[:, 0], 8, 0.3).numpy()
    same(columns[2][0, : len(first)], first)
    assert columns[0].shape == (1, 4, 8)


def test_per_class_suppression():
    boxes = np.array([[[0, 0, 2, 2], [0, 0, 2, 2], [0, 0, 2, 2]]], np.float32)
    scores = np.array([[[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]], np.float32)
    parameters = {
        "iou_threshold": np.float32(0.5),
        "score_threshold": np.float32(0),
        "max_boxes": 3,
        "per_class_suppression": True,
    }
    found = run("non_maximum_suppression", ct.target.iOS15, parameters, boxes=boxes, scores=scores)
    assert found[2].tolist() == [[0, 1, -1]]


def test_random_distributions():
    size = np.array([20000], np.int32)
    mean_error = 5 / np.sqrt(20000)  # five standard errors of a mean of numbers with variance one
    normal = run("random_normal", parameters={"mean": np.float32(2), "stddev": np.float32(3), "seed": 7}, shape=size, hub=False)
    assert abs(normal.mean() - 2) < 3 * mean_error and abs(normal.std() - 3) < 3 * mean_error
    uniform = run("random_uniform", parameters={"low": np.float32(-1), "high": np.float32(3), "seed": 7}, shape=size, hub=False)
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 4 * mean_error
    coin = run("random_bernoulli", parameters={"prob": np.float32(0.2), "seed": 7}, shape=size, hub=False)
    assert set(np.unique(coin)) == {0, 1} and abs(coin.mean() - 0.2) < mean_error
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    draws = run("random_categorical", parameters={"size": 20000, "seed": 7}, x=logits, hub=False)
    assert np.abs(np.bincount(draws[0].astype(int)) / 20000 - [0.1, 0.6, 0.3]).max() < mean_error
    again = run("random_normal", parameters={"mean": np.float32(2), "stddev": np.float32(3), "seed": 7}, shape=size, hub=False)
    np.testing.assert_array_equal(normal, again)
