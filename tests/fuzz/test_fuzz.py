"""Some of the random graphs: what differs from ONNX Runtime or from the expansions has its row in docs/disagreements.md."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxbridge
from onnxbridge.errors import OnnxbridgeError
from tests.fuzz import compare as judge
from tests.fuzz import graphs
from tests.fuzz import known_disagreements as known
from tests.fuzz import opset_conversions as converted

TABLE = Path(__file__).parents[2] / "docs" / "disagreements.md"


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_random_graphs_agree(start):
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(start, start + 50):
            graph = graphs.drawn(seed)
            found += [(seed, d.whom, d.node.op_type, d.what) for d in judge.compare(graph)[0] if not known.reason(d, graph)]
    assert not found


@pytest.mark.parametrize("start", range(0, 160, 40))
def test_random_graphs_pass_the_full_check_at_other_opsets(start):
    found = []
    with np.errstate(all="ignore"):
        for seed in range(start, start + 40):
            found += [(seed, d.what) for d in converted.refused(graphs.drawn(seed), seed)]
    assert not found


def test_every_reason_is_in_the_table():
    text = TABLE.read_text()
    assert all(f"| {row}" in text or f"| {row.split(':')[0]}" in text for *_, row in known.ROWS)


def verified(tmp_path, seeds, check):
    """What is said of graphs that ONNX Runtime runs, of fixed sizes, since random ones need not fit together."""
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in seeds:
            model = converted.fixed(graphs.drawn(seed), seed)
            if model is None:
                continue
            path = tmp_path / f"{seed}.onnx"
            onnx.save(model, path)
            try:
                said = check(path)
            except OnnxbridgeError as e:
                said = str(e)
            if said:
                found.append((seed, said))
    return found


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_random_graphs_are_verified_against_themselves(tmp_path, start):
    def check(path):
        report = onnxbridge.verify(path, path)
        return "" if report.agrees else str(report)

    assert not verified(tmp_path, range(start, start + 40), check)


def test_random_graphs_agree_when_they_are_converted_to_onnx(tmp_path):
    def check(path):
        return "" if onnxbridge.convert(path, to="onnx").report.agrees else "it differs"

    assert not verified(tmp_path, range(200, 260), check)
