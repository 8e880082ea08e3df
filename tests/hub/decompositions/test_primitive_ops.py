"""The core set, and the page about it."""

from __future__ import annotations

from pathlib import Path

from onnxbridge.hub.decompositions import primitive_ops

ROOT = Path(__file__).parents[3]


def test_the_groups_are_the_operators_without_an_expansion():
    assert sorted(op for ops in primitive_ops.GROUPS.values() for op in ops) == sorted(primitive_ops.core())


def test_the_page_is_in_step():
    assert (ROOT / "docs" / "core.md").read_text() == primitive_ops.page(), "run `make docs`"


def test_what_an_expansion_is_written_in_is_read_through_its_helpers():
    assert primitive_ops.written_in("Mish") == {"Mul", "Tanh", "Softplus"}
    assert {"MatMul", "Loop", "Sigmoid", "ScatterElements"} & primitive_ops.written_in("LSTM") == {"MatMul", "Loop", "Sigmoid"}
    assert "Mod" in primitive_ops.written_in("BitwiseOr")
    assert {"LessOrEqual", "Equal"} <= primitive_ops.written_in("ai.onnx.ml::TreeEnsemble")
    assert primitive_ops.written_in("Softsign") == {"Constant", "CastLike", "Abs", "Add", "Div"}


def test_no_expansion_leads_back_to_itself_by_name():
    """Through any chain of helpers and expansions an operator is written in others, never in itself."""
    graph = {op: primitive_ops.written_in(op) for op in primitive_ops.operators() if op not in primitive_ops.core()}

    def reaches(start):
        seen, todo = set(), list(graph[start])
        while todo:
            op = todo.pop()
            if op not in seen:
                seen.add(op)
                todo += graph.get(op, ())
        return start in seen

    assert [op for op in graph if reaches(op)] == []
