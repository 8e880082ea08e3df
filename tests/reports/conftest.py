"""Documents of real commands: agreement, a difference, a weak verification, an operator without a rule, an error, a batch."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

HOSTILE = "<img src=x onerror=alert(1)>\"'&</script><script>alert(2)</script>|`{{7*7}}\n::error::\x1b[31m"


def write_net(path, scale=1.0, name="y", op="Relu", domain=""):
    """Two products with an activation between; `scale` changes a weight, `name` is that of the output and of the nodes."""
    rng = np.random.default_rng(0)
    w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (5, 3)))
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"], name=f"first {name}"),
        helper.make_node(op, ["a"], ["b"], name=f"act {name}", domain=domain),
        helper.make_node("MatMul", ["b", "V"], [name], name=f"second {name}"),
    ]
    weights = [numpy_helper.from_array(w, "W"), numpy_helper.from_array(v * np.float32(scale), "V")]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", size]) for n, size in (("x", 6), (name, 3)))
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", [x], [y], weights), opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """Files in an empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    write_net("net.onnx")
    write_net("wrong.onnx", scale=1.5)
    write_net("hostile.onnx", name=HOSTILE)
    write_net("hostile_wrong.onnx", scale=1.5, name=HOSTILE)
    write_net("unknown.onnx", op="Mystery", domain="com.example")
    constant = helper.make_node("Mul", ["x", "zero"], ["y"])
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    zero = numpy_helper.from_array(np.zeros(2, np.float32), "zero")
    graph = helper.make_graph([constant], "weak", [x], [y], [zero])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "weak.onnx")
    return tmp_path


COMMANDS = {
    "passed": ["convert", "net.onnx", "-o", "out.onnx"],
    "failed": ["verify", "net.onnx", "wrong.onnx"],
    "weak": ["convert", "weak.onnx", "-o", "out.onnx"],
    "strict": ["convert", "weak.onnx", "-o", "out.onnx", "--strict"],
    "bisected": ["bisect", "net.onnx", "wrong.onnx"],
    "bisected_at_once": ["verify", "net.onnx", "wrong.onnx", "--bisect"],
    "metrics": ["verify", "net.onnx", "net.onnx", "--metric", "cosine", "--metric", "p99"],
    "unsupported": ["check", "unknown.onnx", "--to", "onnx", "--to", "coreml"],
    "not_converted": ["convert", "unknown.onnx", "-o", "out.onnx"],
    "supported": ["check", "net.onnx", "--to", "onnx"],
    "error": ["verify", "net.onnx", "missing.onnx"],
    "round_trip": ["verify", "net.onnx", "--via", "onnx,onnx"],
    "hostile": ["bisect", "hostile.onnx", "hostile_wrong.onnx"],
    "batch": ["batch", "jobs.jsonl", "-o", "converted", "--jobs", "1"],
}
FAIL = {"failed", "strict", "bisected", "bisected_at_once", "unsupported", "not_converted", "error", "hostile", "batch"}
"""Those after which CI is red."""


@pytest.fixture
def written(cli, nets):
    """Run one of `COMMANDS` with reports in some formats; returns their texts by suffix, and the exit code."""

    def run(name, *suffixes):
        jobs = [{"source": "net.onnx", "to": ["onnx"]}, {"source": "unknown.onnx"}, {"source": "broken.onnx"}]
        (nets / "broken.onnx").write_text("hello")
        (nets / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
        files = [f"report{suffix}" for suffix in suffixes]
        ran = cli(*COMMANDS[name], *[word for file in files for word in ("--report", file)], "--force")
        return {suffix: (nets / file).read_text() for suffix, file in zip(suffixes, files, strict=True)}, ran.code

    return run
