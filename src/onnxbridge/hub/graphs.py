"""All graphs of a model: the main one, the functions' and those inside nodes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir


def every_graph(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph, each function's, and after each the graphs inside its nodes."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield graph
        yield from graph.subgraphs()
