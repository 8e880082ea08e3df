"""Small ONNX files, and factories that crash, hang and take all memory."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

BAD = "tests.pipeline.models"


def write_net(path: Path, seed: int = 0, op: str = "Relu", domain: str = "") -> Path:
    """A product, an activation and another product."""
    rng = np.random.default_rng(seed)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("W", (6, 5)), ("V", (5, 3)))]
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["a"]), helper.make_node(op, ["a"], ["b"], domain=domain),
        helper.make_node("MatMul", ["b", "V"], ["y"]),
    ]  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size]) for name, size in (("x", 6), ("y", 3)))
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", [x], [y], weights), opset_imports=opsets, ir_version=8), path)
    return path


def crash():
    ctypes.string_at(0)


def hang():
    time.sleep(10_000)


def eat():
    taken = []
    while True:
        taken.append(np.ones(5_000_000))
        time.sleep(0.01)


def threads_of(job):
    """An outcome with the threads that runs of models use in this process."""
    from onnxbridge.runtime.executor.kernels.run.thread_pool import threads

    return {"reused": False, "threads": {"ours": threads(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}}
