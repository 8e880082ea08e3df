"""Matrix products and einsum."""

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import like, rank
from onnxbridge.rules import Bool, Str


def _transpose_last(op, x):
    return op.Transpose(x, perm=[*range(rank(x) - 2), rank(x) - 1, rank(x) - 2])


@rule("linear")
def linear(op, x, weight, bias=None):
    """From iOS17 on the weight may have another dtype than `x`."""
    weight = like(op, weight, x)
    bias = None if bias is None else like(op, bias, x)
    if rank(x) == 2:
        return op.Gemm(x, weight, bias, transB=1)
    product = op.MatMul(x, _transpose_last(op, weight))
    return product if bias is None else op.Add(product, bias)


@rule("matmul")
def matmul(op, x, y, transpose_x: Bool = False, transpose_y: Bool = False):
    """From iOS17 on a constant operand may have another dtype than the other one."""
    if x.dtype != y.dtype:
        x, y = (like(op, x, y), y) if x.const_value is not None else (x, like(op, y, x))
    x = _transpose_last(op, x) if transpose_x and rank(x) > 1 else x
    y = _transpose_last(op, y) if transpose_y and rank(y) > 1 else y
    return op.MatMul(x, y)


@rule("einsum")
def einsum(op, values, equation: Str):
    """Axes of size 1 are expanded first: MIL broadcasts them, which ONNX does not specify."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    sizes = {}
    for term, value in zip(terms, values, strict=True):
        for axis, letter in enumerate(term):
            if value.shape[axis] != 1:
                sizes[letter] = op.size(value, axis)
    expanded = [
        op.Expand(v, op.dims([sizes.get(letter, 1) for letter in term]))
        if any(n == 1 and letter in sizes for n, letter in zip(v.shape, term, strict=True)) else v
        for term, v in zip(terms, values, strict=True)
    ]  # fmt: skip
    return op.Einsum(*expanded, equation=equation)
