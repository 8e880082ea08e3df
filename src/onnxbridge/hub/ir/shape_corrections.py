"""Shapes that onnx's inference leaves out or gets wrong."""

from __future__ import annotations

import onnx_ir as ir

WRONGLY_TYPED = frozenset({"RMSNormalization"})
"""The result has the type of the scale; onnx insists on the type of the input."""
_SHAPED_AS_INPUT = WRONGLY_TYPED | {"GroupNormalization", "Imputer", "MeanVarianceNormalization", "Normalizer", "Scaler"}
"""By the standard the shape of their result is that of their input; onnx infers none."""


def correct_shapes(node: ir.Node) -> None:
    """Correct the shapes of a node's outputs as they were inferred."""
    x, y = (values[0] if values else None for values in (node.inputs, node.outputs))
    if x is None or y is None or x.shape is None:
        return
    if node.op_type in _SHAPED_AS_INPUT:
        y.shape = x.shape
    elif node.op_type == "ConvTranspose" and y.shape is not None and len(y.shape) < len(x.shape):
        # only batch and channels are inferred where the output is smaller than the input
        y.shape = ir.Shape([*y.shape, *node.attributes["output_shape"].as_ints()[2 - len(x.shape) :]])
    elif node.op_type == "Split" and "num_outputs" in node.attributes:
        _split_in_equal_parts(node, x.shape)


def _split_in_equal_parts(node: ir.Node, shape: ir.Shape) -> None:
    """The last parts are smaller, and empty where the others have all elements."""
    axis = (node.attributes["axis"].as_int() if "axis" in node.attributes else 0) % max(len(shape), 1)
    total, count = shape[axis], node.attributes["num_outputs"].as_int()
    if not isinstance(total, int):
        return
    each = -(-total // count)
    for i, part in enumerate(node.outputs):
        if part.shape is not None:
            size = max(0, min(each, total - i * each))
            part.shape = ir.Shape([size if d == axis else n for d, n in enumerate(part.shape)])
