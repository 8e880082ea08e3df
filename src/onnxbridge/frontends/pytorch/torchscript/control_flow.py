"""TorchScript's control flow on traced values: what is known is decided, what depends on data becomes cond and while_loop."""

from __future__ import annotations

import re
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.torchscript import data_dependent_flow, python_values, quantized_tensors
from onnxbridge.frontends.pytorch.torchscript.allowed_operators import is_allowed
from onnxbridge.frontends.pytorch.torchscript.not_traceable import NotTraceable
from onnxbridge.frontends.pytorch.torchscript.python_values import Instance

_MOST_TURNS = 4096  # of a loop whose count is known: it is unrolled
_NUMBERS = {"aten::Float": float, "aten::FloatImplicit": float, "aten::Int": int, "aten::IntImplicit": int}


def run(block: Any, values: dict[str, Any], attributes: Any) -> None:
    """Run every node of a graph or block, adding the results to `values`."""
    for node in block.nodes():
        kind = node.kind()
        args = [values[v.debugName()] for v in node.inputs()]
        if kind == "prim::If":
            results = _branch(node, args[0], values, attributes)
        elif kind == "prim::Loop":
            results = _loop(node, args, values, attributes)
        else:
            results = _plain(node, kind, args, attributes)
        for output, result in zip(node.outputs(), results, strict=True):
            values[output.debugName()] = result


def _plain(node: Any, kind: str, args: list[Any], attributes: Any) -> Any:
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
    if quantized_tensors.takes(kind, args):
        return _results(node, quantized_tensors.call(kind, args, lambda real: _plain(node, kind, real, attributes)[0]))
    if kind == "aten::to":
        return [python_values.moved(node.schema(), args)]
    if kind in _NUMBERS and (number := attributes.number(args[0])) is not None:
        return [_NUMBERS[kind](number)]
    if kind in python_values.ANY:
        return _results(node, python_values.ANY[kind](*args))
    if kind in python_values.PLAIN and _is_plain(args):
        return _results(node, python_values.PLAIN[kind](*args))
    schema = node.schema()
    if schema == "(no schema)" or kind.startswith(("prim::", "quantized::")) or not is_allowed(kind):
        raise NotTraceable(f"{kind} has no counterpart in a traced program")
    return _results(node, python_values.aten(schema, args))


def _is_plain(args: list[Any]) -> bool:
    """Whether Python's own operator is meant: on a list, text or dictionary, or on numbers alone."""
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
    wanted = re.search(r"types=\[([^\]]*(?:\[\][^\]]*)*)\]", text)
    names = [t.strip() for t in wanted.group(1).split(",")] if wanted else []
    return any(
        isinstance(value, list) if n.startswith(("List", "t[")) or n.endswith("[]") else isinstance(value, kinds.get(n, ()))
        for n in names
    )


def _raises(block: Any) -> bool:
    return any(node.kind() == "prim::RaiseException" for node in block.nodes())


def _returns(block: Any) -> list[str]:
    return [v.debugName() for v in block.outputs()]


def _known(condition: Any) -> bool | None:
    """What a condition is already known to be."""
    torch = frameworks.torch()
    condition = python_values.truth(condition)
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


def _branch(node: Any, condition: Any, values: dict[str, Any], attributes: Any) -> list[Any]:
    blocks = list(node.blocks())
    taken = _known(condition)
    if taken is None and sum(map(_raises, blocks)) == 1:
        taken = _raises(blocks[1])
    if taken is not None:
        block = blocks[0 if taken else 1]
        run(block, values, attributes)
        return [values[name] for name in _returns(block)]
    try:
        return data_dependent_flow.branches(blocks, python_values.truth(condition), values, attributes)
    except NotTraceable:
        if isinstance(condition, frameworks.torch().Tensor):
            raise
    # about a dynamic size, and no branch of a model: the size is fixed to what decides it
    block = blocks[0 if bool(condition) else 1]
    run(block, values, attributes)
    return [values[name] for name in _returns(block)]


def _loop(node: Any, args: list[Any], values: dict[str, Any], attributes: Any) -> list[Any]:
    most, going, *carried = args
    [block] = node.blocks()
    names = [v.debugName() for v in block.inputs()]
    torch = frameworks.torch()
    if isinstance(most, torch.SymInt):
        most = data_dependent_flow.loop_or_turns(block, most, going, carried, values, attributes)
        if isinstance(most, list):
            return most
    turn = 0
    while turn < most:
        known = _known(going)
        if known is None:
            return data_dependent_flow.loop(block, most, going, carried, values, attributes, turn)
        if not known:
            break
        if turn >= _MOST_TURNS:
            raise NotTraceable(f"a loop of more than {_MOST_TURNS} turns whose count is fixed")
        values.update(zip(names, (turn, *carried), strict=True))
        run(block, values, attributes)
        going, *carried = (values[name] for name in _returns(block))
        turn += 1
    return carried
