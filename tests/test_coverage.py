"""The coverage tables, and the documents that are generated from them."""

from __future__ import annotations

from pathlib import Path

from onnxbridge import coverage

ROOT = Path(__file__).parents[1]


def test_every_cell_is_read_off_a_table():
    back = coverage.backends()
    assert set(back) >= {"coreml", "mxnet", "pytorch", "tensorflow", "executor"}
    assert back["pytorch"]["Softmax"].state == coverage.NATIVE
    assert all(len(cells) == len(coverage.operators()) for cells in back.values())
    assert "aten::conv2d" in coverage.frontends()["pytorch"]


def test_the_documents_are_in_step():
    hint = "run `make docs`"
    assert (ROOT / "docs" / "coverage.md").read_text() == coverage.page(), hint
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("<!-- coverage -->\n")[2].partition("<!-- /coverage -->")[0]
    assert table.strip() == coverage.summary(), hint
