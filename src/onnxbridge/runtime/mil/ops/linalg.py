"""Matrix products and einsum."""

import numpy as np

from onnxbridge.rules import Bool, Str
from onnxbridge.runtime.mil.ops import Values, rule


@rule("linear", kind="mixed")
def linear(x, weight, bias=None):
    product = np.matmul(x, weight.T)
    return product if bias is None else product + bias


@rule("matmul", kind="mixed")
def matmul(x, y, transpose_x: Bool = False, transpose_y: Bool = False):
    x = x.swapaxes(-1, -2) if transpose_x and x.ndim > 1 else x
    y = y.swapaxes(-1, -2) if transpose_y and y.ndim > 1 else y
    return np.matmul(x, y)


@rule("einsum")
def einsum(values: Values, equation: Str):
    """NumPy's einsum; operands are broadcast first, since MIL's axes of size 1 match any size."""
    left, right = equation.replace(" ", "").split("->")
    size = {}
    for term, value in zip(left.split(","), values, strict=True):
        for letter, n in zip(term, value.shape, strict=True):
            size[letter] = max(n, size.get(letter, 1))
    broadcast = [
        np.broadcast_to(value, [size[letter] for letter in term]) for term, value in zip(left.split(","), values, strict=True)
    ]
    return np.einsum(equation, *broadcast, optimize=True).reshape([size[letter] for letter in right])
