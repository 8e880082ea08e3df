"""Runs an ONNX model in ONNX Runtime, and counts its nodes."""

from __future__ import annotations


class Session:
    """A converted model, called with its inputs in order; `facts` are its numbers of nodes and of Transposes."""

    def __init__(self, model):
        import onnxruntime

        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"], disabled_optimizers=["Pad_Fusion"]
        )
        operators = [n.op_type for n in model.graph.node]
        self.facts = {"nodes": len(operators), "transposes": operators.count("Transpose")}

    def __call__(self, inputs):
        names = [i.name for i in self.session.get_inputs()]
        if len(names) == len(inputs):
            return self.session.run(None, dict(zip(names, inputs, strict=True)))
        return self.session.run(None, {name: inputs[int(name[1:])] for name in names})  # x0, x1, ... without unused ones
