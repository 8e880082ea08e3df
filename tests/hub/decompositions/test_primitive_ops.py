"""The list of primitive operators and its page in the documentation."""

from __future__ import annotations

from pathlib import Path

from onnxbridge.hub.decompositions import primitive_ops

ROOT = Path(__file__).parents[3]


def test_groups_contain_exactly_the_primitive_operators():
    assert sorted(op for ops in primitive_ops.GROUPS.values() for op in ops) == sorted(primitive_ops.primitive())


def test_docs_page_is_up_to_date():
    assert (ROOT / "docs" / "core.md").read_text() == primitive_ops.page(), "run `make generate`"


def test_decomposed_into_follows_helper_functions():
    assert primitive_ops.decomposed_into("Mish") == {"Mul", "Tanh", "Softplus"}
    assert {"MatMul", "Loop", "Sigmoid", "ScatterElements"} & primitive_ops.decomposed_into("LSTM") == {
        "MatMul",
        "Loop",
        "Sigmoid",
    }
    assert "Mod" in primitive_ops.decomposed_into("BitwiseOr")
    assert {"LessOrEqual", "Equal"} <= primitive_ops.decomposed_into("ai.onnx.ml::TreeEnsemble")
    assert primitive_ops.decomposed_into("Softsign") == {"Constant", "CastLike", "Abs", "Add", "Div"}


def test_decompositions_have_no_cycle():
    """No operator is decomposed, through any chain of decompositions, into itself."""
    graph = {op: primitive_ops.decomposed_into(op) for op in primitive_ops.operators() if op not in primitive_ops.primitive()}

    def reaches(start):
        seen, stack = set(), list(graph[start])
        while stack:
            op = stack.pop()
            if op not in seen:
                seen.add(op)
                stack += graph.get(op, ())
        return start in seen

    assert [op for op in graph if reaches(op)] == []
