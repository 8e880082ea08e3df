"""A backend that writes Python source code with NumPy, for the few operators that polynomials need."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from onnxbridge import lowering
from onnxbridge.hub.decompositions import lookup
from onnxbridge.hub.ir import fold, graph_reader
from onnxbridge.lowering import Ref, lower, resolve
from onnxbridge.plugins import Backend
from onnxbridge.rules import Rules

rule = Rules("backends.numpy-source", writer=True)


class Source:
    """Collects lines of code; values are variable names."""

    def __init__(self):
        self.lines = []

    def assign(self, expression):
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name


@rule("Add")
def add(write, A, B):
    return write.assign(f"{A} + {B}")


@rule("Mul")
def mul(write, A, B):
    return write.assign(f"{A} * {B}")


class Target(lowering.Target):
    direction = "ONNX to NumPy source"

    def __init__(self):
        self.writer = Source()

    def static(self, key, value):
        return fold.constant_array(key)

    def decompose(self, call):
        return lookup.decomposition_of(call)


def _constant(value):
    array = value.const_value.numpy()
    return f"np.array({array.tolist()!r}, {str(array.dtype)!r})"


class NumpySourceBackend(Backend):
    """Writes Python source."""

    name = "numpy-source"
    title = "NumPy source"
    rules = rule

    def from_hub(self, model):
        target = Target()
        values = graph_reader.HubValues(_constant)
        names = [f"x{i}" for i in range(len(model.graph.inputs))]
        values.update(zip(model.graph.inputs, names, strict=True))
        lower(graph_reader.calls_of(model.graph), rule, values, target)
        results = resolve([Ref(v) for v in model.graph.outputs], values)
        body = "".join(f"    {line}\n" for line in target.writer.lines)
        head = f"import numpy as np\n\n\ndef model({', '.join(names)}):\n"
        source = f"{head}{body}    return ({', '.join(results)},)\n"
        return source, [v.name for v in model.graph.inputs], [v.name for v in model.graph.outputs]

    def native(self, artifact):
        return artifact[0]

    def save(self, artifact, path):
        Path(path).write_text(artifact[0])
        return [path]

    def runner(self, artifact, device="auto"):
        source, inputs, outputs = artifact
        scope = {}
        exec(compile(source, "<model>", "exec"), scope)  # noqa: S102  source that this plugin wrote
        return lambda feeds: dict(zip(outputs, scope["model"](*(np.asarray(feeds[n]) for n in inputs)), strict=True))

    def filename(self, stem):
        return f"{stem}.py"


backend = NumpySourceBackend()
