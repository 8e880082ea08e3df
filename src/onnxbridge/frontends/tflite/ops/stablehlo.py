"""StableHLO's elementwise operators, padding, windows and branches. Kernels compute on quantized integers as they are stored."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tflite.ops import control, rule, windows
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.rules import Outputs

D = ir.DataType
_WIDER = {D.INT8: D.INT32, D.UINT8: D.INT32, D.INT16: D.INT32, D.UINT16: D.INT32, D.UINT32: D.INT64}
# the reduction of windows by the operator of its computation
_REDUCTIONS = {
    "ADD": "ADD", "STABLEHLO_ADD": "ADD", "MUL": "MUL", "STABLEHLO_MULTIPLY": "MUL", "MAXIMUM": "MAXIMUM",
    "STABLEHLO_MAXIMUM": "MAXIMUM", "MINIMUM": "MINIMUM", "STABLEHLO_MINIMUM": "MINIMUM", "LOGICAL_AND": "ALL",
    "STABLEHLO_AND": "ALL", "LOGICAL_OR": "ANY", "STABLEHLO_OR": "ANY",
}  # fmt: skip


def _elementwise(name, onnx):
    @rule(name, kind="bits")
    def elementwise(op, lhs, rhs):
        dtype = lhs.dtype
        wide = _WIDER.get(dtype, dtype)  # runtimes have kernels for few integers; the cast back wraps around
        return cast(op, op.call(onnx, cast(op, lhs, wide), cast(op, rhs, wide)), dtype)


for _name, _onnx in {"ADD": "Add", "MULTIPLY": "Mul", "MAXIMUM": "Max", "MINIMUM": "Min"}.items():
    _elementwise(f"STABLEHLO_{_name}", _onnx)


@rule("STABLEHLO_AND", kind="bits")
def stablehlo_and(op, lhs, rhs):
    return op.And(lhs, rhs) if lhs.dtype == D.BOOL else op.BitwiseAnd(lhs, rhs)


@rule("STABLEHLO_SHIFT_LEFT", kind="bits", limits="int8, int16 and int32")
def stablehlo_shift_left(op, lhs, rhs):
    """Shifts by the width of the type or more leave 0; negative amounts are the unsigned numbers with the same bits.

    TensorFlow Lite's kernel leaves shifts of int32 by such amounts to the processor.
    """
    if lhs.dtype not in (D.INT8, D.INT16, D.INT32):
        raise Unsupported(f"a shift of {lhs.dtype.name.lower()}, for which TensorFlow Lite has no kernel")
    amount = op.Cast(rhs, to=D.INT64)
    amount = op.Where(op.Less(amount, np.int64(0)), np.int64(63), op.Min(amount, np.int64(63)))
    bits = op.BitCast(op.Cast(lhs, to=D.INT64), to=D.UINT64)
    shifted = op.BitCast(op.BitShift(bits, op.Cast(amount, to=D.UINT64), direction="LEFT"), to=D.INT64)
    return op.Cast(shifted, to=lhs.dtype)


@rule("STABLEHLO_PAD", kind="bits")
def stablehlo_pad(op, operand, padding_value, *, edge_padding_low=(), edge_padding_high=(), interior_padding=()):
    """Padding between the elements, then before and after them; negative padding there removes elements."""
    if not len(edge_padding_low) == len(edge_padding_high) == len(interior_padding) == rank(operand):
        raise Unsupported("paddings of another rank than the operand's", "get the file again")
    spread = windows.dilated(op, operand, [p + 1 for p in interior_padding], padding_value)
    return windows.padded(op, spread, list(zip(edge_padding_low, edge_padding_high, strict=True)), padding_value)


@rule("STABLEHLO_REDUCE_WINDOW", kind="bits", limits="reductions by one operator")
def stablehlo_reduce_window(
    op, operand, init_value, *, window_dimensions, computation=None, window_strides=None, base_dilations=None,
    window_dilations=None, padding=None,
):  # fmt: skip
    """`computation` is the operator that combines two elements, None for another computation."""
    if computation not in _REDUCTIONS:
        raise Unsupported(f"a reduction of windows by {computation or 'several operators'}")
    n = rank(operand)
    base, dilations, strides = ([1] * n if v is None else v for v in (base_dilations, window_dilations, window_strides))
    pads = np.zeros((n, 2), np.int64) if padding is None else np.reshape(padding, (-1, 2))
    if len(pads) != n or len(base) != n:
        raise Unsupported("windows of another rank than the operand's", "get the file again")
    x = windows.padded(op, windows.dilated(op, operand, base, init_value), pads.tolist(), init_value)
    return windows.reduced(op, x, init_value, _REDUCTIONS[computation], window_dimensions, strides, dilations)


@rule("STABLEHLO_CASE")
def stablehlo_case(op, index, *inputs, position, then_branch, else_branch=None, outputs: Outputs):
    """The branch `position` or the ones after it, of which the last is also that of an index out of range."""
    if else_branch is None:
        return then_branch(*inputs)
    chosen = op.Equal(op.Reshape(index, []), np.array(position, index.dtype.numpy()))
    return control.if_(op, chosen, *inputs, then_branch=then_branch, else_branch=else_branch, outputs=outputs)
