"""The symbol that MXNet runs on the CPU: operators whose results are undefined there are replaced by others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from onnxbridge.formats.mxnet.read_symbol import Graph

Node = dict[str, Any]


@contextmanager
def defined(symbol: Path, graph: Graph) -> Iterator[Path]:
    """The path of a symbol, which is read as `graph`, or that of a temporary copy whose results are all defined.

    For regions with a negative index of their image, as FPN detectors write for those of other levels, ROIAlign gives zeros on
    a GPU. On a CPU it leaves the memory as it was.
    """
    if all(node.op != "_contrib_ROIAlign" for node in graph.nodes):
        yield symbol
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / symbol.name
        copy.write_text(json.dumps(_with_zeros(json.loads(symbol.read_text(encoding="utf-8")))), encoding="utf-8")
        yield copy


def _with_zeros(graph: Node) -> Node:
    """The symbol in which regions with a negative index are pooled from the first image, and then multiplied by 0."""
    nodes: list[Node] = []
    moved: list[int] = []

    def add(op: str, name: str, inputs: list[list[int]], **attrs: str) -> list[int]:
        nodes.append({"op": op, "name": name, "inputs": inputs, "attrs": attrs})
        return [len(nodes) - 1, 0, 0]

    def at(entry: list[int]) -> list[int]:
        return [moved[entry[0]], *entry[1:]]

    for node in graph["nodes"]:
        inputs = [at(entry) for entry in node["inputs"]]
        if node["op"] == "_contrib_ROIAlign":
            name = node["name"]
            index = add("slice_axis", f"{name}_index", [inputs[1]], axis="1", begin="0", end="1")
            boxes = add("slice_axis", f"{name}_boxes", [inputs[1]], axis="1", begin="1", end="5")
            image = add("relu", f"{name}_image", [index])
            regions = add("Concat", f"{name}_regions", [image, boxes], dim="1", num_args="2")
            nodes.append({**node, "name": f"{name}_pooled", "inputs": [inputs[0], regions]})
            pooled = [len(nodes) - 1, 0, 0]
            used = add("_greater_equal_scalar", f"{name}_used", [index], scalar="0")
            used = add("Reshape", f"{name}_factor", [used], shape="(-1, 1, 1, 1)")
            add("broadcast_mul", name, [pooled, used])
        else:
            nodes.append({**node, "inputs": inputs})
        moved.append(len(nodes) - 1)
    variables = [i for i, node in enumerate(nodes) if node["op"] == "null"]
    changed = {"nodes": nodes, "arg_nodes": variables, "heads": [at(entry) for entry in graph["heads"]]}
    return {key: value for key, value in graph.items() if key != "node_row_ptr"} | changed
