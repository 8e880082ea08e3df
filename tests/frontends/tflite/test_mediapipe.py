"""MediaPipe's custom operators.

Its transposed convolution runs as TRANSPOSE_CONV in the interpreter, which has no kernels for the others: they are compared with
what MediaPipe's sources say, in NumPy.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from flatbuffers import flexbuffers

import onnxbridge
from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, model
from tests.frontends.tflite.compare import agree, hub_of, run, saved


@pytest.mark.parametrize("kind", [1, 2])
def test_a_transposed_convolution_runs_in_the_interpreter(tmp_path, kind):
    rng = np.random.default_rng(2)
    weights, bias = rng.normal(size=(3, 3, 3, 2)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    x = T(rng.normal(size=(1, 4, 5, 2)).astype(np.float32), name="x")
    y = T(type="FLOAT32", name="y", shape=(1, 8, 10, 3) if kind == 1 else (1, 9, 11, 3))
    options = b"".join(int(v).to_bytes(4, "little") for v in (kind, 2, 2))
    inputs = [x, T(weights, constant=True), T(bias, constant=True)]
    source = saved(tmp_path, model(G([x], [y], [Op("Convolution2DTransposeBias", inputs, [y], custom_options=options)])))
    agree(source, {"x": x.value})
    assert onnxbridge.convert(source).report.verdict == "PASSED"


def transform_of(points, left, right, subset, target, width, height, scale_x, scale_y):
    """As landmarks_to_transform_matrix.cc computes it, in double precision."""
    dx, dy = points[right, :2] - points[left, :2]
    r = target - math.atan2(dy, dx)
    turn = np.array([[math.cos(r), -math.sin(r)], [math.sin(r), math.cos(r)]])
    turned = points[subset, :2] @ turn.T
    low, high = turned.min(0), turned.max(0)
    center = np.linalg.inv(turn) @ ((low + high) / 2)

    def shift(x, y):
        return np.array([[1, 0, 0, x], [0, 1, 0, y], [0, 0, 1, 0], [0, 0, 0, 1]])

    back, scale = np.eye(4), np.eye(4)
    back[:2, :2] = np.linalg.inv(turn)
    scale[0, 0], scale[1, 1] = scale_x * (high - low)[0] / width, scale_y * (high - low)[1] / height
    return shift(*center) @ back @ scale @ shift(-width / 2, -height / 2)


def sampled(image, matrix, height, width):
    """As transform_tensor_bilinear.cc computes it: no pixel outside contributes."""
    result = np.zeros((height, width, image.shape[2]))
    for y in range(height):
        for x in range(width):
            at_x, at_y = (matrix @ [x + 0.5, y + 0.5, 0, 1])[:2] - 0.5
            if 0 <= at_x <= image.shape[1] - 1 and 0 <= at_y <= image.shape[0] - 1:
                left, top = int(at_x), int(at_y)
                for dy, dx in np.ndindex(2, 2):
                    if top + dy < image.shape[0] and left + dx < image.shape[1]:
                        weight = abs(1 - dy - (at_y - top)) * abs(1 - dx - (at_x - left))
                        result[y, x] += weight * image[top + dy, left + dx]
    return result


def of(tmp_path, op, inputs, shape, **options):
    y = T(type="FLOAT32", name="y", shape=shape)
    given = {"custom_options": bytes(flexbuffers.Dumps(options))} if options else {}
    return saved(tmp_path, model(G(inputs, [y], [Op(op, inputs, [y], version=2, **given)])))


@pytest.mark.parametrize("target", [0.0, 0.7, -2.0])
@pytest.mark.parametrize("ends", [(3, 8), (8, 3), (5, 5)])
def test_the_transform_of_landmarks(tmp_path, target, ends):
    points = np.random.default_rng(3).uniform(10, 90, (1, 12, 3)).astype(np.float32)
    subset = [1, 4, 5, 7, 11]
    source = of(
        tmp_path, "Landmarks2TransformMatrix", [T(points, name="x")], (1, 4, 4), left_rotation_idx=ends[0],
        right_rotation_idx=ends[1], subset_idxs=subset, target_rotation_radians=target, output_width=16, output_height=12,
        scale_x=1.5, scale_y=1.25,
    )  # fmt: skip
    [found] = run(hub_of(source), {"x": points})
    expected = transform_of(points[0].astype(np.float64), *ends, subset, target, 16, 12, 1.5, 1.25)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("axes", [2, 3])
def test_transformed_landmarks(tmp_path, axes):
    rng = np.random.default_rng(4)
    points, matrix = rng.normal(size=(1, 9, axes)).astype(np.float32), rng.normal(size=(1, 4, 4)).astype(np.float32)
    source = of(tmp_path, "TransformLandmarks", [T(points, name="x"), T(matrix, name="m")], points.shape)
    [found] = run(hub_of(source), {"x": points, "m": matrix})
    moved = points[0, :, :2] @ matrix[0, :2, :2].T + matrix[0, :2, 3]
    np.testing.assert_allclose(found[0], np.concatenate([moved, points[0, :, 2:]], 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [(0, 0), (-0.5, 1.0), (2.25, 1.75), (-3.0, 40.0)])
def test_pixels_of_a_transformed_region(tmp_path, shift):
    image = np.random.default_rng(5).normal(size=(1, 10, 8, 3)).astype(np.float32)
    matrix = np.eye(4, dtype=np.float32)[None]
    matrix[0, :2, :2] = [[0.75, -0.25], [0.25, 0.75]] if shift != (0, 0) else np.eye(2)
    matrix[0, :2, 3] = shift
    inputs = [T(image, name="x"), T(matrix, name="m")]
    source = of(tmp_path, "TransformTensorBilinear", inputs, (1, 6, 7, 3), output_height=6, output_width=7)
    [found] = run(hub_of(source), {"x": image, "m": matrix})
    np.testing.assert_allclose(found[0], sampled(image[0], matrix[0], 6, 7), rtol=1e-5, atol=1e-5)


def test_a_model_that_the_interpreter_cannot_run_is_weakly_verified(tmp_path):
    points, matrix = np.ones((1, 9, 2), np.float32), np.ones((1, 4, 4), np.float32)
    source = of(tmp_path, "TransformLandmarks", [T(points, name="x"), T(matrix, name="m")], points.shape)
    report = onnxbridge.convert(source).report
    assert report.verdict == "WEAK" and "its interpreter has no kernel for the custom operator TransformLandmarks" in str(report)


def test_version_1_and_damaged_options_are_refused(tmp_path):
    points, matrix = np.ones((1, 9, 3), np.float32), np.ones((1, 4, 4), np.float32)
    inputs = [T(points, name="x"), T(matrix, name="m")]
    with pytest.raises(ConversionError, match=r"version 1 of the operator \(dimensions\)"):
        hub_of(of(tmp_path, "TransformLandmarks", inputs, points.shape, dimensions=3, scale=1.0))
    options = {"left_rotation_idx": 0, "right_rotation_idx": 1, "subset_idxs": [99], "target_rotation_radians": 0.0}
    size = {"output_width": 16, "output_height": 12, "scale_x": 1.0, "scale_y": 1.0}
    with pytest.raises(ConversionError, match="options that do not fit its landmarks"):
        hub_of(of(tmp_path, "Landmarks2TransformMatrix", inputs[:1], (1, 4, 4), **options, **size))
    with pytest.raises(ConversionError, match="Landmarks2TransformMatrix"):
        hub_of(of(tmp_path, "Landmarks2TransformMatrix", inputs[:1], (1, 4, 4), **options))
