"""Where a hub model's weights live in the module: which are trained, under which names, and on whose memory."""

from __future__ import annotations

import re

import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch import dtypes

# Inputs that say how an operator works: they are not trained, whatever their type.
_SETTINGS = {
    "BatchNormalization": (3, 4), "Clip": (1, 2), "Pad": (2,), "Resize": (1, 2), "Dropout": (1,), "OneHot": (2,),
    "Range": (0, 1, 2), "QuantizeLinear": (1,), "DequantizeLinear": (1,), "NonMaxSuppression": (3, 4), "STFT": (2,),
    "QLinearConv": (1, 4, 6), "QLinearMatMul": (1, 4, 6), "MelWeightMatrix": (3, 4),
}  # fmt: skip
_MADE = re.compile(r"constant(_\d+)?")
"""Names of constants that the builder made, not the user."""


def is_trained(value: ir.Value) -> bool:
    """Whether an initializer is a parameter: a floating weight that some operator computes with."""
    if value.dtype is None or not value.dtype.is_floating_point() or value.dtype.bitwidth < 16:
        return False
    if _MADE.fullmatch(value.name or ""):
        return False
    return any(i not in _SETTINGS.get(node.op_type, ()) for node, i in value.uses())


class Weights:
    """Puts tensors into nested modules under the dotted names that the hub has for them."""

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root

    def add(self, value: ir.Value, trained: bool) -> tuple[str, torch.Tensor]:
        """Register a weight; returns its path and its tensor."""
        assert value.const_value is not None
        tensor = dtypes.tensor(value.const_value.numpy())
        if value.dtype in dtypes.WIDE:
            tensor = tensor.to(torch.int64)
        *scope, leaf = _identifiers(value.name or "constant")
        home = self.root
        for part in scope:
            while not isinstance(getattr(home, part, None), torch.nn.Module):
                if not hasattr(home, part):
                    home.add_module(part, torch.nn.Module())
                else:
                    part += "_"
            home = getattr(home, part)
        while hasattr(home, leaf):
            leaf += "_"
        if trained:
            home.register_parameter(leaf, torch.nn.Parameter(tensor))
        else:
            home.register_buffer(leaf, tensor)
        path = next(name for name, module in self.root.named_modules() if module is home)
        return f"{path}.{leaf}" if path else leaf, tensor


def _identifiers(name: str) -> list[str]:
    """A hub name as the names of modules and of the weight in the last one."""
    parts = [re.sub(r"\W", "_", part) for part in name.split(".")]
    return [part or "_" for part in parts]
