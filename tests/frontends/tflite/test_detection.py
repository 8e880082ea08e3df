"""Post-processing of detectors, compared with the kernel of TensorFlow Lite."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, model
from tests.frontends.tflite.compare import agree, hub_of, saved

OPTIONS = {
    "max_detections": 6, "max_classes_per_detection": 1, "detections_per_class": 4, "use_regular_nms": False,
    "nms_score_threshold": 0.3, "nms_iou_threshold": 0.4, "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0,
    "w_scale": 5.0,
}  # fmt: skip


def _source(tmp_path, background=1, **options):
    rng = np.random.default_rng(4)
    chosen = OPTIONS | options
    anchors = np.concatenate([rng.uniform(0.2, 0.8, (20, 2)), rng.uniform(0.1, 0.5, (20, 2))], 1).astype(np.float32)
    feeds = {
        "boxes": rng.normal(size=(1, 20, 4)).astype(np.float32),
        "scores": rng.uniform(0, 1, (1, 20, chosen["num_classes"] + background)).astype(np.float32),
    }
    inputs = [T(v, name=n) for n, v in feeds.items()]
    count = chosen["max_detections"] * (1 if chosen["use_regular_nms"] else chosen["max_classes_per_detection"])
    shapes = [(1, count, 4), (1, count), (1, count), (1,)]
    outputs = [T(type="FLOAT32", shape=s, name=n) for n, s in zip(("found", "classes", "values", "number"), shapes, strict=True)]
    content = bytes(flexbuffers.Dumps(chosen))
    made = Op("TFLite_Detection_PostProcess", [*inputs, T(anchors, constant=True)], outputs, custom_options=content)
    return saved(tmp_path, model(G(inputs, outputs, [made]))), feeds


@pytest.mark.parametrize("options", [
    {}, {"max_classes_per_detection": 2}, {"max_detections": 15}, {"nms_score_threshold": 0.9}, {"background": 0},
    {"use_regular_nms": True}, {"use_regular_nms": True, "nms_score_threshold": 0.95},
], ids=str)  # fmt: skip
def test_detections(tmp_path, options):
    source, feeds = _source(tmp_path, **options)
    agree(source, feeds)


def test_damaged_options_are_refused(tmp_path):
    inputs = [T(np.ones((1, 2, n), np.float32), name=f"x{n}") for n in (4, 3)]
    y = T(type="FLOAT32", name="y", shape=(1, 2, 4))
    made = Op("TFLite_Detection_PostProcess", [*inputs, T(np.ones((2, 4), np.float32), constant=True)], [y], custom_options=b"\1")
    with pytest.raises(ConversionError, match="options that are"):
        hub_of(saved(tmp_path, model(G(inputs, [y], [made]))))
