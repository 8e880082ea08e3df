"""TorchScript control flow on traced values: static conditions are evaluated, data-dependent ones become cond and while_loop."""

from __future__ import annotations

import re
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torchscript import data_dependent_flow, python_values, quantized_tensors, traced_numbers
from onnxbridge.frontends.pytorch.torchscript.not_traceable import NotTraceable
from onnxbridge.frontends.pytorch.torchscript.python_values import Instance
from onnxbridge.frontends.pytorch.torchscript.validation.allowed_operators import is_allowed

_MAX_ITERATIONS = 4096  # a loop with a static trip count is unrolled
_TO_NUMBER = {
    "aten::Float", "aten::FloatImplicit", "aten::Int", "aten::IntImplicit", "aten::ScalarImplicit", "prim::ImplicitTensorToNum",
}  # fmt: skip


def run(block: Any, values: dict[str, Any], attributes: Any) -> None:
    """Run every node of a graph or block, and add the results to `values`."""
    for node in block.nodes():
        kind = node.kind()
        args = [values[v.debugName()] for v in node.inputs()]
        if kind == "prim::If":
            results = _if(node, args[0], values, attributes)
        elif kind == "prim::Loop":
            results = _loop(node, args, values, attributes)
        else:
            results = _run_operator(node, kind, args, attributes)
            if len(results) == 1:
                traced_numbers.follow(kind, args, results[0], attributes)
        for output, result in zip(node.outputs(), results, strict=True):
            values[output.debugName()] = result


def _run_operator(node: Any, kind: str, args: list[Any], attributes: Any) -> Any:
    """The results of a node without blocks."""
    if kind == "prim::Constant":
        return [_constant(node)]
    if kind == "prim::GetAttr":
        return [attributes.get(args[0], node.s("name"))]
    if kind == "prim::SetAttr":
        attributes.set(args[0], node.s("name"), args[1])
        return []
    if kind == "prim::CallMethod":
        return [attributes.call(args[0], node.s("name"), tuple(args[1:]))]
    if kind == "prim::CreateObject":
        return [Instance()]
    if kind in ("prim::TupleUnpack", "prim::ListUnpack"):
        return list(args[0])
    if kind in ("prim::Enter", "prim::Exit"):
        return [None] * node.outputsSize()
    if kind == "prim::isinstance":
        return [_is_instance(node, args[0])]
    if kind == "prim::RaiseException":
        raise NotTraceable(f"the script raises: {args[0]}")
    if kind == "prim::TupleSlice":
        return [args[0][node.i("beg") : node.i("end")]]
    if quantized_tensors.is_quantized_operator(kind, args):
        return _results(
            node, quantized_tensors.call_operator(kind, args, lambda real: _run_operator(node, kind, real, attributes)[0])
        )
    if kind == "aten::to":
        return [python_values.to_dtype(node.schema(), args)]
    if kind in _TO_NUMBER and (number := attributes.number(args[0])) is not None:
        return [python_values.OPERATORS[kind](number)]
    if kind in python_values.OPERATORS:
        return _results(node, python_values.OPERATORS[kind](*args))
    if kind in python_values.PYTHON_OPERATORS and _is_on_python_values(args):
        return _results(node, python_values.PYTHON_OPERATORS[kind](*args))
    schema = node.schema()
    if schema == "(no schema)" or kind.startswith(("prim::", "quantized::")) or not is_allowed(kind):
        raise NotTraceable(f"{kind} has no equivalent in a traced program")
    return _results(node, python_values.call_aten(schema, args))


def _is_on_python_values(args: list[Any]) -> bool:
    """Whether the Python operator is meant: on a list, string or dictionary, or on numbers only."""
    tensor = frameworks.torch().Tensor
    return isinstance(args[0], (list, tuple, dict, str)) or not any(isinstance(a, tensor) for a in args)


def _results(node: Any, result: Any) -> list[Any]:
    if node.outputsSize() == 0:
        return []
    return [result] if node.outputsSize() == 1 else list(result)


def _constant(node: Any) -> Any:
    output = node.output()
    return None if output.type().kind() == "FunctionType" else output.toIValue()


def _is_instance(node: Any, value: Any) -> bool:
    torch = frameworks.torch()
    kinds = {"Tensor": torch.Tensor, "int": int, "float": float, "bool": bool, "str": str, "NoneType": type(None)}
    text = str(node)
    match = re.search(r"types=\[([^\]]*(?:\[\][^\]]*)*)\]", text)
    names = [t.strip() for t in match.group(1).split(",")] if match else []
    return any(
        isinstance(value, list) if n.startswith(("List", "t[")) or n.endswith("[]") else isinstance(value, kinds.get(n, ()))
        for n in names
    )


def _raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _output_names(block: Any) -> list[str]:
    return [v.debugName() for v in block.outputs()]


def _static_value(condition: Any) -> bool | None:
    """The value of a condition if it is static, else None."""
    torch = frameworks.torch()
    condition = python_values.truth_value(condition)
    if isinstance(condition, torch.SymBool):
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        if statically_known_true(condition):
            return True
        return False if statically_known_true(torch.sym_not(condition)) else None
    return None if isinstance(condition, torch.Tensor) and _is_fake(condition) else bool(condition)


def _is_fake(x: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(x, (FakeTensor, FunctionalTensor))


def _if(node: Any, condition: Any, values: dict[str, Any], attributes: Any) -> list[Any]:
    blocks = list(node.blocks())
    decision = _static_value(condition)
    if decision is None and sum(map(_raises, blocks)) == 1:
        decision = _raises(blocks[1])
    if decision is not None:
        block = blocks[0 if decision else 1]
        run(block, values, attributes)
        return [values[name] for name in _output_names(block)]
    try:
        return data_dependent_flow.branches(blocks, python_values.truth_value(condition), values, attributes)
    except NotTraceable:
        if isinstance(condition, frameworks.torch().Tensor):
            raise
    # a condition on a dynamic size, with branches that cannot be traced: the size is specialized
    block = blocks[0 if bool(condition) else 1]
    run(block, values, attributes)
    return [values[name] for name in _output_names(block)]


def _loop(node: Any, args: list[Any], values: dict[str, Any], attributes: Any) -> list[Any]:
    max_trip_count, condition, *carried = args
    [block] = node.blocks()
    names = [v.debugName() for v in block.inputs()]
    torch = frameworks.torch()
    if isinstance(max_trip_count, torch.SymInt):
        max_trip_count = data_dependent_flow.loop_or_trip_count(block, max_trip_count, condition, carried, values, attributes)
        if isinstance(max_trip_count, list):
            return max_trip_count
    iteration = 0
    while iteration < max_trip_count:
        static = _static_value(condition)
        if static is None:
            return data_dependent_flow.loop(block, max_trip_count, condition, carried, values, attributes, iteration)
        if not static:
            break
        if iteration >= _MAX_ITERATIONS:
            raise NotTraceable(f"a loop with a static trip count of more than {_MAX_ITERATIONS} iterations")
        values.update(zip(names, (iteration, *carried), strict=True))
        run(block, values, attributes)
        condition, *carried = (values[name] for name in _output_names(block))
        iteration += 1
    return carried
