"""The first sample of every operator in PyTorch's operator database, as a module, to ONNX; ONNX Runtime computes it."""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from session import Session
from torch.utils import _pytree as pytree

_RANDOM = (
    "rand", "dropout", "bernoulli", "multinomial", "normal", "uniform", "exponential", "geometric", "cauchy", "poisson", "empty",
)  # fmt: skip


@dataclass
class Case:
    """A module with its arguments, and what PyTorch computes."""

    module: torch.nn.Module
    inputs: tuple
    expected: list


def _operators():
    from torch.testing._internal.common_methods_invocations import op_db

    found = {}
    for op in op_db:
        name = f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''}"
        dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if d in op.supported_dtypes("cpu")), None)
        if dtype is not None and not any(word in name for word in _RANDOM):
            found[name] = (op, dtype)
    return found


def prepare(folder, match):
    """The names of the operators whose first sample is made of plain tensors, and which give some."""
    return [name for name in sorted(_operators()) if match in name and case(name, folder) is not None]


def case(name, folder):
    op, dtype = _operators()[name]
    torch.manual_seed(0), random.seed(0), np.random.seed(0)  # noqa: NPY002  # as PyTorch's samples are drawn
    try:
        with torch.no_grad():
            sample = next(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 1))
            leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
            at = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
            tensors = tuple(leaves[i].detach() for i in at)
            if not at or any(t.layout != torch.strided or t.is_complex() or t.is_nested for t in tensors):
                return None
            module = _module(op.op, leaves, spec, at)
            found = module(*(t.clone() for t in tensors))
            expected = [y.detach().numpy() for y in (found if isinstance(found, tuple) else (found,))]
    except Exception:  # what it takes or gives is no plain tensor
        return None
    return Case(module, tensors, expected) if expected and not any(map(np.iscomplexobj, expected)) else None


def _module(function, leaves, spec, at):
    """A module whose arguments are the sample's tensors, by name."""

    def body(*tensors):
        filled = list(leaves)
        for i, t in zip(at, tensors, strict=True):
            filled[i] = t
        first, rest, named = pytree.tree_unflatten(filled, spec)
        found = [t for t in pytree.tree_leaves(function(first, *rest, **named)) if isinstance(t, torch.Tensor)]
        return found[0] if len(found) == 1 else tuple(found)

    names = ", ".join(f"x{i}" for i in range(len(at)))
    space = {"body": body}
    exec(f"def forward(self, {names}):\n    return body({names})\n", space)  # noqa: S102  # exporters read the signature
    return type("Operator", (torch.nn.Module,), {"forward": space["forward"]})().eval()


def _session(model):
    found = Session(model)

    def run(inputs):
        return found([t.numpy() for t in inputs])

    return run


def onnxbridge(one):
    import onnxbridge

    return _session(onnxbridge.convert(one.module, to="onnx", inputs=one.inputs, verify=False).model)


def torch_onnx(one):
    program = torch.onnx.export(one.module, one.inputs, dynamo=True, verbose=False)
    return _session(program.model_proto)


def torch_onnx_torchscript(one):
    file = io.BytesIO()
    torch.onnx.export(one.module, one.inputs, file, dynamo=False, input_names=[f"x{i}" for i in range(len(one.inputs))])
    return _session(onnx.load_from_string(file.getvalue()))


ENGINES = {"onnxbridge": onnxbridge, "torch.onnx": torch_onnx, "torch.onnx-torchscript": torch_onnx_torchscript}
