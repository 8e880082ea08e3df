"""Shapes that onnx's inference leaves out or gets wrong."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir import fold

_SHAPED_AS_INPUT = frozenset({
    "GroupNormalization", "Imputer", "MeanVarianceNormalization", "Normalizer", "RMSNormalization", "Scaler",
})  # fmt: skip
"""By the standard the shape of their result is that of their input; onnx infers none."""


def is_refused_wrongly(node: ir.Node) -> bool:
    """Whether onnx's inference may refuse inputs that the standard allows."""
    if node.op_type == "RMSNormalization":  # onnx insists on the type of the input, the standard on that of the scale
        return True
    if node.op_type == "Resize":  # onnx takes sizes of an unknown number for none
        sizes = node.inputs[-1]
        return sizes is not None and sizes.shape is not None and not all(isinstance(d, int) for d in sizes.shape)
    x = node.inputs[0] if node.inputs else None
    return node.op_type == "OneHot" and x is not None and x.shape is not None and len(x.shape) == 0


def correct_shapes(node: ir.Node) -> None:
    """Correct the shapes of a node's outputs as they were inferred."""
    x, y = (values[0] if values else None for values in (node.inputs, node.outputs))
    if x is None or y is None or x.shape is None:
        return
    if node.op_type == "Attention":
        _attention(node)
    elif node.op_type in _SHAPED_AS_INPUT:
        y.shape = x.shape
    elif node.op_type == "OneHot" and len(x.shape) == 0:
        y.shape = ir.Shape([None])
    elif node.op_type == "ConvTranspose" and y.shape is not None:
        _transposed_convolution(node, x.shape, y)
    elif node.op_type == "Split" and "num_outputs" in node.attributes:
        _split_in_equal_parts(node, x.shape)
    elif node.op_type == "Split" and y.shape is None:
        _split_at_computed_sizes(node, x.shape)
    elif node.op_type == "Expand" and y.shape is not None:
        _expanded(node, x.shape, y)
    elif node.op_type == "ConstantOfShape" and (sizes := fold.known_elements(x)) is not None:
        y.shape = ir.Shape(sizes)  # onnx forgets names of dynamic sizes


def _attention(node: ir.Node) -> None:
    """Sizes that onnx computes of dynamic ones are 0 in what it infers."""
    if any(0 in (v.shape or ()) for v in node.inputs if v is not None):
        return
    for y in node.outputs:
        if y.shape is not None and 0 in y.shape:
            y.shape = ir.Shape([None if size == 0 else size for size in y.shape])


def _expanded(node: ir.Node, shape: ir.Shape, y: ir.Value) -> None:
    """A dynamic size stays what it is beside 1; onnx forgets its name where another size of the result is dynamic."""
    assert y.shape is not None
    wanted = fold.known_elements(node.inputs[1])
    if wanted is None or len(y.shape) != max(len(wanted), len(shape)):
        return
    given: list[int | str | None] = [d if isinstance(d, int) else d.value for d in shape]
    ones: list[int | str | None] = [1] * len(y.shape)
    given, wanted = ([*ones[len(sizes) :], *sizes] for sizes in (given, wanted))
    sizes = [a if b in (1, a) else b if a == 1 else d for a, b, d in zip(given, wanted, y.shape, strict=True)]
    y.shape = ir.Shape(sizes)


def _transposed_convolution(node: ir.Node, shape: ir.Shape, y: ir.Value) -> None:
    """Only batch and channels are inferred of an output smaller than the input; SAME is inferred as at most the full output."""
    assert y.shape is not None
    attributes, batch_and_channels = node.attributes, list(y.shape)[:2]
    if "output_shape" in attributes:
        y.shape = ir.Shape([*batch_and_channels, *attributes["output_shape"].as_ints()[2 - len(shape) :]])
    elif "auto_pad" in attributes and attributes["auto_pad"].as_string().startswith("SAME"):
        strides = attributes["strides"].as_ints() if "strides" in attributes else [1] * (len(shape) - 2)
        sizes = [n * s if isinstance(n, int) else None for n, s in zip(list(shape)[2:], strides, strict=True)]
        y.shape = ir.Shape([*batch_and_channels, *sizes])


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


def _split_at_computed_sizes(node: ir.Node, shape: ir.Shape) -> None:
    """Onnx infers nothing; all sizes but one are those of the input."""
    axis = (node.attributes["axis"].as_int() if "axis" in node.attributes else 0) % max(len(shape), 1)
    sizes = fold.known_elements(node.inputs[1]) or [None] * len(node.outputs)
    for part, size in zip(node.outputs, sizes, strict=False):
        part.shape = ir.Shape([size if d == axis else n for d, n in enumerate(shape)])
