"""Which initializers become parameters: what the source says of them, else how the graph uses them."""

from __future__ import annotations

import re

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.provenance import state_of
from onnxbridge.hub.ir.schemas import array_of

_WEIGHTS = {
    "Conv": (1, 2), "ConvTranspose": (1, 2), "DeformConv": (1, 3), "PRelu": (1,), "BatchNormalization": (1, 2),
    "InstanceNormalization": (1, 2), "LayerNormalization": (1, 2), "GroupNormalization": (1, 2), "RMSNormalization": (1,),
    "LSTM": (1, 2, 3, 7), "GRU": (1, 2, 3), "RNN": (1, 2, 3), "Gemm": (0, 1, 2),
}  # fmt: skip
"""Inputs that are weights by what the operator is, of any shape and name."""
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_SETTINGS = {
    "BatchNormalization": (3, 4), "Clip": (1, 2), "Pad": (2,), "Resize": (1, 2), "Dropout": (1,), "OneHot": (2,),
    "Range": (0, 1, 2), "QuantizeLinear": (1,), "DequantizeLinear": (1,), "NonMaxSuppression": (3, 4), "STFT": (2,),
    "QLinearConv": (1, 4, 6), "QLinearMatMul": (1, 4, 6), "MelWeightMatrix": (3, 4), "LSTM": (5, 6), "GRU": (5,), "RNN": (5,),
    "Attention": (3,), "GridSample": (1,), "RoiAlign": (1,), "ConstantOfShape": (0,), "DeformConv": (2, 4),
}  # fmt: skip
"""Inputs that say how an operator works: they are not trained, whatever their type."""
_COMPARED = frozenset({
    "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "ArgMax", "ArgMin", "NonZero", "TopK", "Shape",
})  # fmt: skip
"""Operators through which no gradient flows."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})
_MOVES = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that give the same numbers in another shape or type."""
_TABLES = frozenset({"Gather", "GatherND", "GatherElements"})
"""Operators that take rows of an embedding, whose numbers need not be looked at."""
_MADE = re.compile(r"constant(_\d+)?(\..*)?")
"""Names of constants that the builder made, not the user."""
COMPUTED = re.compile(
    r"val_\d+|onnx::\w+_\d+|(.*/)?Constant(_\d+)?_output_\d+|const_fold_opt__\d+|(.*/)?Const(_\d+)?(:0)?(__\d+)?"
)
"""What exporters (torch.onnx, its predecessor, tf2onnx) call constants, and what they computed from parameters."""
_MASKED = -1e4
"""What masks add to scores is below this; no weight is."""


def is_trained(value: ir.Value) -> bool:
    """Whether an initializer is a parameter.

    The source decides where it says so: PyTorch's parameters, buffers and constants, TensorFlow's variables, what torch.onnx
    writes. Otherwise the weights of layers are, and arrays that the graph computes with, but no single numbers (an epsilon, the
    scale of attention), masks, settings of operators and constants that an exporter made.
    """
    if value.dtype is None or not value.dtype.is_floating_point() or value.dtype.bitwidth < 16 or value.const_value is None:
        return False
    state = state_of(value.const_value)
    if state:
        return state == "parameter"
    uses = [(node, i) for node, i in value.uses() if i not in _SETTINGS.get(node.op_type, ())]
    weights = [node.op_type for node, i in uses if i in _WEIGHTS.get(node.op_type, ())]
    if is_made(value.name or ""):  # a rule put it together; what it did so for is a recurrent layer
        return any(op in _RECURRENT for op in weights)
    rank = len(value.const_value.shape)
    if weights or (rank > 1 and any(_is_factor(node) for node, _ in uses)):
        return True
    if COMPUTED.fullmatch(value.name or ""):
        return False
    if value.const_value.size == 1:
        return rank > 0 and any(_is_bias(node, i) for node, i in uses)
    operators = {node.op_type for node, _ in uses} - _COMPARED
    return bool(operators) and (operators <= _TABLES or not _is_mask(value.const_value))


def is_made(name: str) -> bool:
    """Whether a constant has no name of its own."""
    return _MADE.fullmatch(name) is not None


def _is_factor(node: ir.Node) -> bool:
    """Whether what a node computes with is a factor of a product, as it is or in another shape."""
    if node.op_type in _PRODUCTS:
        return True
    return node.op_type in _MOVES and any(_is_factor(user) for user in node.outputs[0].consumers())


def _is_bias(node: ir.Node, index: int) -> bool:
    """Whether a node adds a single number to the result of a product: the bias of a layer of one unit."""
    if node.op_type != "Add" or len(node.inputs) != 2:
        return False
    other = node.inputs[1 - index]
    made = other.producer() if other is not None else None
    while made is not None and made.op_type in _MOVES and made.inputs[0] is not None:
        made = made.inputs[0].producer()
    return made is not None and made.op_type in _PRODUCTS


def _is_mask(tensor: ir.TensorProtocol) -> bool:
    """Whether numbers are a mask: of zeros and ones in both dimensions, or with what keeps scores out of a softmax."""
    if not tensor.size:
        return False
    array = array_of(tensor)
    least, most = float(array.min()), float(array.max())
    if not np.isfinite(least) or least <= _MASKED:
        return True
    matrix = len([d for d in array.shape if d > 1]) > 1
    return matrix and (least, most) == (0.0, 1.0) and bool(((array == 0) | (array == 1)).all())
