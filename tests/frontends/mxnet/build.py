"""Builds small symbols and their files for tests."""

from __future__ import annotations

import json

from onnxbridge.formats.mxnet import write_params


def variable(name, **attrs):
    return {"op": "null", "name": name, "inputs": [], "attrs": {k: str(v) for k, v in attrs.items()}}


def operator(op, name, inputs, attrs=None):
    texts = {k: str(v) for k, v in (attrs or {}).items()}
    return {"op": op, "name": name, "inputs": [[*i, 0] for i in inputs], "attrs": texts}


def save(folder, nodes, heads, arrays=None, np_shape=False, version=10901):
    """Write a symbol and its parameters; return the two paths."""
    graph = {
        "nodes": nodes,
        "arg_nodes": [i for i, n in enumerate(nodes) if n["op"] == "null"],
        "node_row_ptr": list(range(len(nodes) + 1)),
        "heads": [[*h, 0] for h in heads],
        "attrs": {"mxnet_version": ["int", version]} | ({"is_np_shape": ["int", 1]} if np_shape else {}),
    }
    symbol, values = folder / "net-symbol.json", folder / "net-0000.params"
    symbol.write_text(json.dumps(graph))
    write_params.write(values, arrays or {})
    return symbol, values


def single(folder, op, inputs, attrs, heads=1, known=(), np_shape=False, version=10901):
    """One operator on arrays; those at positions `known` are parameters, the others inputs. Returns the files and the feeds."""
    names = [f"data{i}" for i in range(len(inputs))]
    nodes = [variable(n) for n in names]
    nodes.append(operator(op, "it", [(i, 0) for i in range(len(inputs))], attrs))
    arrays = {f"arg:{n}": a for i, (n, a) in enumerate(zip(names, inputs, strict=True)) if i in known}
    files = save(folder, nodes, [(len(inputs), h) for h in range(heads)], arrays, np_shape, version)
    return files, {n: a for i, (n, a) in enumerate(zip(names, inputs, strict=True)) if i not in known}
