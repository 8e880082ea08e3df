"""Products of matrices."""

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import like, rank
from onnxbridge.rules import Bool, Str


def _swapped(op, x):
    return op.Transpose(x, perm=[*range(rank(x) - 2), rank(x) - 1, rank(x) - 2])


@rule("linear")
def linear(op, x, weight, bias=None):
    """From iOS17 on the weight may be of another type than `x`."""
    weight = like(op, weight, x)
    bias = None if bias is None else like(op, bias, x)
    if rank(x) == 2:
        return op.Gemm(x, weight, bias, transB=1)
    product = op.MatMul(x, _swapped(op, weight))
    return product if bias is None else op.Add(product, bias)


@rule("matmul")
def matmul(op, x, y, transpose_x: Bool = False, transpose_y: Bool = False):
    """From iOS17 on a constant factor may be of another type than the other one."""
    if x.dtype != y.dtype:
        x, y = (like(op, x, y), y) if x.const_value is not None else (x, like(op, y, x))
    x = _swapped(op, x) if transpose_x and rank(x) > 1 else x
    y = _swapped(op, y) if transpose_y and rank(y) > 1 else y
    return op.MatMul(x, y)


@rule("einsum")
def einsum(op, values, equation: Str):
    """In MIL an axis of size 1 stands for any size; ONNX says nothing of that, so it is spread out."""
    terms = equation.replace(" ", "").split("->")[0].split(",")
    longest = {}
    for term, value in zip(terms, values, strict=True):
        for axis, letter in enumerate(term):
            if value.shape[axis] != 1:
                longest[letter] = op.size(value, axis)
    grown = [
        op.Expand(v, op.dims([longest.get(letter, 1) for letter in term]))
        if any(n == 1 and letter in longest for n, letter in zip(v.shape, term, strict=True)) else v
        for term, v in zip(terms, values, strict=True)
    ]  # fmt: skip
    return op.Einsum(*grown, equation=equation)
