"""The coverage tables."""

from __future__ import annotations

from onnxbridge import coverage


def test_every_cell_is_read_off_a_table():
    back = coverage.backends()
    assert set(back) >= {"coreml", "mxnet", "pytorch", "tensorflow", "executor"}
    assert back["pytorch"]["Softmax"].state == coverage.NATIVE
    assert all(len(cells) == len(coverage.operators()) for cells in back.values())
    assert "aten::conv2d" in coverage.frontends()["pytorch"]
