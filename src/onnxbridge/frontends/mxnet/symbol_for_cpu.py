"""The symbol that MXNet runs on the CPU.

Operators whose results are undefined there are replaced by others, and float16 by float32 where an operator has no kernel for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from onnxbridge.formats.mxnet.read_symbol import Graph

Node = dict[str, Any]

NOT_IN_FLOAT16 = frozenset({
    "BatchNorm_v1", "Convolution", "Convolution_v1", "CTCLoss", "Deconvolution", "FullyConnected", "GridGenerator", "RNN",
    "SoftmaxActivation", "UpSampling", "argsort", "batch_dot", "ctc_loss", "dot", "khatri_rao", "sort", "topk",
    "_contrib_CTCLoss", "_contrib_ctc_loss", "_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution",
    "_contrib_interleaved_matmul_encdec_qk", "_contrib_interleaved_matmul_encdec_valatt",
    "_contrib_interleaved_matmul_selfatt_qk", "_contrib_interleaved_matmul_selfatt_valatt", "_npi_argsort", "_npi_sort",
    "_npi_einsum", "_npi_matmul", "_npi_tensordot", "_npi_tensordot_int_axes", "_np_dot", "_npx_batch_dot", "_npx_convolution",
    "_npx_deconvolution", "_npx_fully_connected", "_npx_rnn", "amp_multicast",
})  # fmt: skip
"""Operators of MXNet 1.9.1 that fail with float16 on a CPU, beside the family of linalg."""
_LINALG = ("linalg_", "_linalg_")


def without_float16(graph: Graph, params: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """The first operator that MXNet's CPU cannot run because the symbol computes in float16; "" if there is none."""
    narrow = any(p.dtype == np.float16 for p in params.values()) or _casts(graph)
    if not narrow:
        return ""
    return next((n.op for n in graph.nodes if n.op in NOT_IN_FLOAT16 or n.op.startswith(_LINALG)), "")


_INTEGER_PRODUCTS = frozenset({
    "_contrib_quantized_conv", "_contrib_quantized_fully_connected", "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected",
    "_sg_mkldnn_selfatt_qk", "_sg_mkldnn_selfatt_valatt",
})  # fmt: skip


def multiplies_integers(graph: Graph) -> bool:
    """Whether a layer multiplies bytes: a quantized one, or a fused one that is quantized."""
    return any(
        n.op in _INTEGER_PRODUCTS and (n.op.startswith("_contrib") or n.attrs.get("quantized", "").lower() == "true")
        for n in graph.nodes
    )


def adds_in_16_bits() -> bool:
    """Whether MXNet adds products of bytes in 16 bits, which overflow: on x86 processors without VNNI. Unknown ones have it."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "sse2" in flags and "avx512_vnni" not in flags and "avx_vnni" not in flags


def _casts(graph: Graph) -> bool:
    """Whether a value is made float16, in this symbol or a subgraph."""
    return any(n.attrs.get("dtype") == "float16" or any(map(_casts, n.subgraphs)) for n in graph.nodes)


def _in_float32(graph: Node) -> Node:
    """The symbol that computes in float32 where it computed in float16."""
    for node in graph["nodes"]:
        for key in ("attrs", "attr", "param"):
            attrs = node.get(key, {})
            for name, narrow, wide in (("dtype", "float16", "float32"), ("__dtype__", "2", "0")):
                if attrs.get(name) == narrow:
                    attrs[name] = wide
        for inner in node.get("subgraphs", []):
            _in_float32(inner)
    return graph


@contextmanager
def runnable(symbol: Path, graph: Graph, in_float32: bool = False) -> Iterator[Path]:
    """The path of a symbol, which is read as `graph`, or that of a temporary copy whose results are all defined.

    For regions with a negative index of their image, as FPN detectors write for those of other levels, ROIAlign gives zeros on
    a GPU. On a CPU it leaves the memory as it was.
    """
    pools = any(node.op == "_contrib_ROIAlign" for node in graph.nodes)
    if not pools and not in_float32:
        yield symbol
        return
    changed = json.loads(symbol.read_text(encoding="utf-8"))
    if pools:
        changed = _with_zeros(changed)
    if in_float32:
        changed = _in_float32(changed)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / symbol.name
        copy.write_text(json.dumps(changed), encoding="utf-8")
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
