"""A sample of the random graphs: every disagreement has a row in docs/disagreements.md."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxbridge
from onnxbridge.errors import OnnxbridgeError
from tests.fuzz import compare, graphs, known_disagreements, opset_conversions
from tests.fuzz.operators import GENERATORS

TABLE = Path(__file__).parents[2] / "docs" / "disagreements.md"


def test_every_generator_module_is_registered():
    """Modules register their generators on import; graphs.py imports them."""
    modules = {path.stem for path in Path(__file__).parent.glob("*.py") if "\n@generator(" in path.read_text()}
    assert {g.__module__.rpartition(".")[2] for g in GENERATORS} == modules


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_random_graphs_agree(start):
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(start, start + 50):
            graph = graphs.random_graph(seed)
            found += [
                (seed, d.checker, d.node.op_type, d.difference)
                for d in compare.compare(graph)[0]
                if not known_disagreements.reason(d, graph)
            ]
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 160, 40))
def test_random_graphs_pass_the_full_check_at_other_opsets(start):
    found = []
    with np.errstate(all="ignore"):
        for seed in range(start, start + 40):
            found += [(seed, d.difference) for d in opset_conversions.check_other_opsets(graphs.random_graph(seed), seed)]
    assert not found


def test_every_reason_is_in_the_table():
    text = TABLE.read_text()
    assert all(f"| {row}" in text or f"| {row.split(':')[0]}" in text for *_, row in known_disagreements.ROWS)


def messages_of(tmp_path, seeds, check):
    """Runs `check` on the graphs with static shapes that ONNX Runtime runs; returns the messages that it returns or raises."""
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in seeds:
            model = opset_conversions.runnable_model(graphs.random_graph(seed), seed)
            if model is None:
                continue
            path = tmp_path / f"{seed}.onnx"
            onnx.save(model, path)
            try:
                message = check(path)
            except OnnxbridgeError as e:
                message = str(e)
            if message:
                found.append((seed, message))
    return found


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_random_graphs_are_verified_against_themselves(tmp_path, start):
    def check(path):
        report = onnxbridge.verify(path, path)
        return "" if report.agrees else str(report)

    assert not messages_of(tmp_path, range(start, start + 40), check)


def test_random_graphs_are_unchanged_by_conversion_to_onnx(tmp_path):
    def check(path):
        return "" if onnxbridge.convert(path, to="onnx").report.agrees else "outputs differ"

    assert not messages_of(tmp_path, range(200, 260), check)
