"""Every code block of the documents is run, and prints what is shown there (see blocks.py)."""

from __future__ import annotations

import pytest

from tests.guides import files
from tests.guides.blocks import ROOT, Reader, blocks, differing_line

GENERATED = ("reference-api", "reference-cli")  # signatures and help texts; test_docs.py compares them with the code
PAGES = [p for p in sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]) if blocks(p) and p.stem not in GENERATED]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch):
    folder = tmp_path / page.stem
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    reader = Reader(folder, files.prepare(page.stem, folder))
    for block in blocks(page):
        reader.run(block)


def test_output_is_compared_but_for_its_numbers():
    printed = "PASSED  a against b: 3 samples, 0.4 s\n  ok   y float32[2, 3]: max abs 1.5e-08\nwrote net.onnx\n"
    assert differing_line(["PASSED  a against b: 4 samples, 11.5 s", "wrote net.onnx"], printed) is None
    assert differing_line(["wrote net.onnx", "PASSED  a against b: 3 samples, 0.4 s"], printed) is not None
    assert differing_line(["PASSED  a against b: 1 sample, 0.4 s"], printed) == "PASSED  a against b: 1 sample, 0.4 s"
