"""Control flow, and Python arithmetic on sizes."""

import math
import operator

import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.fx.target import lower_bound
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.arithmetic import floor_divide, remainder
from onnxbridge.hub.ir import fold
from onnxbridge.rules import Outputs

D = ir.DataType


@rule("higher_order::cond")
def cond(op, pred, true_fn, false_fn, operands, *, used: Outputs):
    if isinstance(pred, bool):
        return (true_fn if pred else false_fn)(*operands)
    return _tuple(
        op.If(
            op.reshape(cast(op, pred, D.BOOL), []),
            then_branch=lambda: true_fn(*operands), else_branch=lambda: false_fn(*operands), outputs=len(used),
        )
    )  # fmt: skip


@rule("higher_order::wrap_with_set_grad_enabled")
def without_grad(op, enabled, function, *operands):
    return function(*operands)


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


@rule("higher_order::while_loop")
def while_loop(op, cond_fn, body_fn, carried_inputs, additional_inputs, *, used: Outputs):
    start = [op.constant(v) for v in carried_inputs]

    def body(iteration, condition, *states):
        next_states = [op.constant(v) for v in body_fn(*states, *additional_inputs)]
        return (_to_condition(op, cond_fn(*next_states, *additional_inputs)), *next_states)

    first = _to_condition(op, cond_fn(*start, *additional_inputs))
    return _tuple(op.Loop(None, first, *start, body=body, outputs=len(used)))


@rule("higher_order::scan")
def scan(op, combine_fn, init, xs, additional_inputs, *, used: Outputs):
    def body(*values):
        return tuple(op.constant(v) for v in combine_fn(*values, *additional_inputs))

    start = [op.constant(v) for v in (*init, *xs)]
    return _tuple(op.Scan(*start, body=body, num_scan_inputs=len(xs), outputs=len(used)))


@rule("higher_order::map_impl")
def map_impl(op, f, xs, pos_args, *, used: Outputs):
    return scan(op, f, (), xs, pos_args, used=used)


def _to_condition(op, results):
    [condition] = results
    return op.reshape(cast(op, condition, D.BOOL), [])


def number(op, x):
    """A Python number, or a scalar value of the traced program, as a value."""
    if isinstance(x, ir.Value):
        return x
    return cast(op, x, D.BOOL if isinstance(x, bool) else D.INT64 if isinstance(x, int) else D.DOUBLE)


def _number_rule(python_function, compute, to_float=False):
    """A rule for an operator on numbers: computed in Python if all are constants, else by nodes."""

    def lower(op, *operands):
        if not any(isinstance(x, ir.Value) for x in operands):
            return python_function(*operands)
        values = [number(op, x) for x in operands]
        if to_float or any(v.dtype == D.DOUBLE for v in values):
            values = [cast(op, v, D.DOUBLE) for v in values]
        return compute(op, *values)

    return lower


def _floordiv(op, a, b):
    """ONNX division rounds toward zero, which is the same for non-negative sizes."""
    known = fold.constant_array(b)
    if a.dtype == b.dtype == D.INT64 and known is not None and known > 0 and lower_bound(a) >= 0:
        return op.Div(a, b)
    return floor_divide(op, a, b)


def _node(name):
    return lambda op, *values: op.call(name, *values)


for _name, _onnx in {"add": "Add", "sub": "Sub", "mul": "Mul", "neg": "Neg", "pow": "Pow", "lt": "Less", "gt": "Greater",
                     "le": "LessOrEqual", "ge": "GreaterOrEqual", "eq": "Equal", "abs": "Abs"}.items():  # fmt: skip
    rule(f"operator::{_name}")(_number_rule(getattr(operator, _name), _node(_onnx)))
rule("operator::ne")(_number_rule(operator.ne, lambda op, a, b: op.Not(op.Equal(a, b))))
rule("operator::floordiv")(_number_rule(operator.floordiv, _floordiv))
rule("operator::mod")(_number_rule(operator.mod, remainder))
rule("operator::truediv")(_number_rule(operator.truediv, _node("Div"), to_float=True))
rule("operator::and_")(_number_rule(operator.and_, _node("And")))
rule("operator::or_")(_number_rule(operator.or_, _node("Or")))
rule("torch::sym_max")(_number_rule(max, _node("Max")))
rule("torch::sym_min")(_number_rule(min, _node("Min")))
rule("torch::sym_not")(_number_rule(operator.not_, _node("Not")))


@rule("torch::sym_float")
def sym_float(op, x):
    return cast(op, x, D.DOUBLE) if isinstance(x, ir.Value) else float(x)


@rule("torch::sym_int", "math::trunc")
def sym_int(op, x):
    return cast(op, x, D.INT64) if isinstance(x, ir.Value) else int(x)


@rule("math::floor")
def floor(op, x):
    return cast(op, op.Floor(x) if x.dtype == D.DOUBLE else x, D.INT64) if isinstance(x, ir.Value) else math.floor(x)


@rule("math::ceil")
def ceil(op, x):
    return cast(op, op.Ceil(x) if x.dtype == D.DOUBLE else x, D.INT64) if isinstance(x, ir.Value) else math.ceil(x)


@rule("torch::sym_ite")
def sym_ite(op, condition, then, otherwise):
    if not isinstance(condition, ir.Value):
        return then if condition else otherwise
    return op.Where(condition, number(op, then), number(op, otherwise))


@rule("aten::_local_scalar_dense", "aten::item")
def item(op, self):
    return op.reshape(cast(op, self, D.DOUBLE if self.dtype in (D.FLOAT, D.FLOAT16) else self.dtype), [])
