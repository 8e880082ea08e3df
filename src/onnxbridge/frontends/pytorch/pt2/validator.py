"""Validation of a serialized program's JSON: every string in it that PyTorch would evaluate, import or write into code."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,511}")
_PATH = re.compile(r"[A-Za-z0-9_][\w.:/\[\]\- ]{0,1023}")
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|higher_order|torchvision|quantized_decomposed)(\.[A-Za-z_]\w*){1,2}|torch\.(_?sym_\w+|sym_\w+)"
    r"|_operator\.[a-z_]+|math\.[a-z0-9_]+"
)
_PYTORCH_NAMESPACES = frozenset({"aten", "prims", "higher_order", "quantized_decomposed"})
"""Namespaces of PyTorch itself."""
_LIBRARY = re.compile(r"torch\.ops\.([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")
# operators with effects outside the model
_EXTERNAL_EFFECTS = re.compile(r"torch\.ops\.aten\.(from_file|set_|_cuda\w*|record_stream)\b")
_PYTHON = frozenset(
    {
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs", "and_", "or_", "xor", "not_", "eq", "ne",
        "lt", "le", "gt", "ge", "getitem", "lshift", "rshift", "invert",
    }
)  # fmt: skip
_FUNCTIONS = frozenset(
    {
        "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "PythonMod", "FloorDiv", "CleanDiv", "CeilToInt",
        "FloorToInt", "TruncToInt", "RoundToInt", "RoundDecimal", "IntTrueDiv", "FloatTrueDiv", "ToFloat", "TruncToFloat",
        "FloatPow", "PowByNatural", "Max", "Min", "Abs", "Where", "And", "Or", "Not", "Eq", "Ne", "Lt", "Le", "Gt", "Ge",
        "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "ModularIndexing", "Identity",
        "IsNonOverlappingAndDenseIndicator", "ceiling", "floor", "CeilDiv", "LShift", "RShift",
    }
)  # fmt: skip
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Div, ast.USub, ast.UAdd)
_QUOTED = re.compile(r"\w{1,64}|-?[0-9]{1,19}(\.[0-9]{1,19})?")
_MAX_EXPRESSION_LENGTH = 4096
_MAX_NUMBER = 1 << 63
_MAX_EXPONENT = 8
_ALLOWED_METADATA = ("stack_trace", "nn_module_stack")
_MAX_DEPTH = 64


class Refused(Exception):
    """A string in the file that must not reach PyTorch."""


def is_path(text: str) -> bool:
    """Whether a parameter name is safe in generated code."""
    return bool(_PATH.fullmatch(text))


def validate(program: Any) -> dict[str, Any]:
    """The program's description without guards and metadata, with every name, operator and expression validated.

    Raises:
        Refused: with the reason.
    """
    if not isinstance(program, dict) or not isinstance(program.get("graph_module"), dict):
        raise Refused("does not describe a program")
    program = dict(program, guards_code=[])
    module = program["graph_module"]
    calls = module.get("module_call_graph") or []
    root_calls = [c for c in calls if isinstance(c, dict) and c.get("fqn") == ""]
    for call in root_calls:
        for key in ("in_spec", "out_spec"):
            _validate_pytree((call.get("signature") or {}).get(key) or "[1, null]")
    program["graph_module"] = {**module, "module_call_graph": root_calls, "metadata": {}}
    for name in program.get("range_constraints") or {}:
        validate_expression(name)
    _validate(program, 0)
    result: dict[str, Any] = program
    return result


def _validate(item: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise Refused("is nested too deeply")
    if isinstance(item, list):
        for each in item:
            _validate(each, depth + 1)
    if not isinstance(item, dict):
        return
    if isinstance(item.get("metadata"), dict) and "target" in item:
        item["metadata"] = {k: v for k, v in item["metadata"].items() if k in _ALLOWED_METADATA and isinstance(v, str)}
    for key, value in item.items():
        if key == "metadata":
            continue
        if key == "expr_str":
            validate_expression(value)
        elif key in ("as_custom_obj", "as_opaque", "custom_obj", "opaque_obj"):
            raise Refused("holds pickled objects, which run code when they are loaded")
        elif key in ("target", "as_operator"):
            _validate_operator(value)
        elif key == "name" and isinstance(value, str):
            if value and not _NAME.fullmatch(value):
                raise Refused(f"has the invalid name {value[:80]!r}")
        elif key in ("parameter_name", "buffer_name", "tensor_constant_name", "user_input_name") and value is not None:
            if not isinstance(value, str) or not is_path(value):
                raise Refused(f"has the invalid name {str(value)[:80]!r}")
        elif key.endswith("_values") and isinstance(value, dict):
            for name in value:
                if not _NAME.fullmatch(name):
                    raise Refused(f"has the invalid name {name[:80]!r}")
            _validate(value, depth + 1)
        elif key not in ("in_spec", "out_spec"):
            _validate(value, depth + 1)


def library_operators(program: Any) -> list[str]:
    """The third-party operators in a program, in order, one entry per call: "acme::bent"."""
    found: list[str] = []
    for key, value in program.items() if isinstance(program, dict) else ():
        target = _LIBRARY.fullmatch(value) if key in ("target", "as_operator") and isinstance(value, str) else None
        if target is not None and target[1] not in _PYTORCH_NAMESPACES:
            found.append(f"{target[1]}::{target[2]}" + (f".{target[3]}" if target[3] not in (None, "default") else ""))
    for part in program.values() if isinstance(program, dict) else program if isinstance(program, list) else ():
        found += library_operators(part)
    return found


def _validate_operator(target: Any) -> None:
    """Reject a target that is not an operator of a model; third-party ones are checked by `library_operators`."""
    library = _LIBRARY.fullmatch(target) if isinstance(target, str) else None
    known = isinstance(target, str) and not _EXTERNAL_EFFECTS.match(target)
    known = known and bool(_OPERATOR.fullmatch(target) or (library and library[1] not in _PYTORCH_NAMESPACES))
    if known and target.startswith("_operator."):
        known = target.partition(".")[2] in _PYTHON
    if not known:
        raise Refused(f"calls {str(target)[:80]!r}, which is not an operator of a model")


def _validate_pytree(text: Any) -> None:
    """Validate the pytree of inputs or outputs: registered types, with keys and fields only."""
    try:
        _, spec = json.loads(text)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("has an invalid description of its inputs or outputs") from error
    stack = [spec] if spec is not None else []
    while stack:
        part = stack.pop()
        kind = part.get("type") if isinstance(part, dict) else 0
        if kind is not None and (not isinstance(kind, str) or not re.fullmatch(r"[\w.]+", kind) or "defaultdict" in kind):
            raise Refused(f"has inputs or outputs of the type {str(kind)[:80]!r}")
        context = part.get("context")
        if isinstance(context, str) and "__" in context or isinstance(context, (dict, list)) and "__" in json.dumps(context):
            raise Refused("names Python objects in the structure of its inputs or outputs")
        stack += part.get("children_spec") or []


def validate_expression(text: Any) -> None:
    """Validate an expression of sizes: numbers, symbols and functions of them, small enough to evaluate.

    Raises:
        Refused: for anything else.
    """
    if not isinstance(text, str) or len(text) > _MAX_EXPRESSION_LENGTH:
        raise Refused("has a size that is not an expression, or one that is too long")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"has the size {text[:80]!r}, which is not an expression") from error
    _validate_node(tree, text, 0)


def _validate_node(node: ast.expr, text: str, depth: int) -> None:
    refused = Refused(f"has the size {text[:80]!r}, which is not an expression of sizes")
    if depth > _MAX_DEPTH:
        raise refused
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, (bool, float)) or isinstance(node.value, int) and abs(node.value) <= _MAX_NUMBER
        if not number and not (isinstance(node.value, str) and _QUOTED.fullmatch(node.value)):
            raise refused
    elif isinstance(node, ast.Name):
        if not re.fullmatch(r"z?[a-z]{1,3}[0-9]{1,6}", node.id) and node.id not in ("true", "false"):
            raise refused
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, _ARITHMETIC):
        _validate_node(node.operand, text, depth + 1)
    elif isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow):
            _validate_power(node.left, node.right, text, depth, refused)
        elif not isinstance(node.op, _ARITHMETIC):
            raise refused
        _validate_node(node.left, text, depth + 1)
        _validate_node(node.right, text, depth + 1)
    elif isinstance(node, ast.Compare):
        for part in [node.left, *node.comparators]:
            _validate_node(part, text, depth + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if any(k.arg is None or not isinstance(k.value, ast.Constant) for k in node.keywords):
            raise refused
        if node.func.id in ("Pow", "PowByNatural", "FloatPow", "LShift"):
            if len(node.args) != 2:
                raise refused
            _validate_power(node.args[0], node.args[1], text, depth, refused)
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and node.func.id not in ("Symbol", "Float"):
                raise refused
            _validate_node(argument, text, depth + 1)
    else:
        raise refused


def _validate_power(base: ast.expr, exponent: ast.expr, text: str, depth: int, refused: Refused) -> None:
    """Accept only small integer exponents, so that evaluation is cheap."""
    inner = exponent
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "Integer" and len(inner.args) == 1:
        inner = inner.args[0]
    if isinstance(inner, ast.UnaryOp):
        inner = inner.operand
    if not isinstance(inner, ast.Constant) or not isinstance(inner.value, int) or abs(inner.value) > _MAX_EXPONENT:
        raise refused
    if any(isinstance(n, ast.Pow) or isinstance(n, ast.Name) and n.id in ("Pow", "LShift") for n in ast.walk(base)):
        raise refused
