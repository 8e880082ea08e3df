"""Suppression of boxes: MXNet's exact choices among ties, its speed with many boxes, and the other frameworks."""

from __future__ import annotations

import time

import numpy as np
import pytest

import onnxbridge
from onnxbridge.frontends.mxnet import frontend
from tests.frontends.mxnet.build import single
from tests.frontends.mxnet.samples_detection import rows
from tests.frontends.mxnet.test_operators import run_onnxruntime


def attributes(r):
    return {
        "overlap_thresh": float(r.choice([0, 0.25, 0.5, 1.0])), "valid_thresh": float(r.choice([0, 0.25, -1])),
        "topk": int(r.choice([-1, 1, 5, 400])), "id_index": int(r.choice([-1, 0])), "background_id": int(r.choice([-1, 1])),
        "force_suppress": bool(r.rand() < 0.5), "in_format": str(r.choice(["corner", "center"])),
        "out_format": str(r.choice(["corner", "center"])),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_choices_among_ties(seed, tmp_path):
    r = np.random.RandomState(seed)
    data = rows(r, int(r.choice([1, 3])), 40, grid=True)
    files, feeds = single(tmp_path, "_contrib_box_nms", [data], attributes(r))
    shape = data.shape if seed % 2 else ("B", "N", 6)
    found = run_onnxruntime(frontend.to_hub(files, {"data0": (shape, data.dtype)}), feeds)
    expected = frontend.runner(files)(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_topk_bounds_the_work(tmp_path):
    """MXNet needs some 0.05 s for the boxes of SSD-512."""
    data = rows(np.random.RandomState(0), 1, 122_640, grid=False)
    files, feeds = single(tmp_path, "_contrib_box_nms", [data], {"id_index": 0, "topk": 400, "overlap_thresh": 0.45})
    model = frontend.to_hub(files, {"data0": (data.shape, data.dtype)})
    assert {n.op_type for n in model.graph}.isdisjoint({"Loop", "Scan"})
    start = time.monotonic()
    (found,) = run_onnxruntime(model, feeds).values()
    assert time.monotonic() - start < 20  # a loop over all boxes takes minutes
    np.testing.assert_array_equal(found, *frontend.runner(files)(feeds).values())


@pytest.mark.parametrize("target", ["pytorch", "tensorflow", "coreml"])
@pytest.mark.parametrize("by_class", [True, False])
def test_other_frameworks(target, by_class, tmp_path):
    pytest.importorskip({"pytorch": "torch", "coreml": "coremltools"}.get(target, target))
    attrs = {"id_index": 0, "topk": 20, "overlap_thresh": 0.4} if by_class else {"topk": 20, "overlap_thresh": 0.6}
    files, _ = single(tmp_path, "_contrib_box_nms", [rows(np.random.RandomState(1), 1, 50, grid=False)], attrs)
    made = onnxbridge.convert(files, to=target, inputs={"data0": ((1, 50, 6), "float32")})
    assert made.report.agrees
    made.save(tmp_path / {"pytorch": "net.pt2", "tensorflow": "net.keras", "coreml": "net.mlpackage"}[target])
