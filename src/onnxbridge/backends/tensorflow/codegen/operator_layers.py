"""Layers of operators that no Keras layer computes, as classes whose calls are TensorFlow's."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

from onnxbridge.backends.tensorflow.codegen.expressions import array_literal
from onnxbridge.backends.tensorflow.functional.values import dims, dtype_of
from onnxbridge.errors import Unsupported
from onnxbridge.formats.python_source.identifiers import identifier
from onnxbridge.formats.python_source.line_breaking import lines, quoted
from onnxbridge.hub.ir.unique_name import free_name

_SIGNS = {
    "AddV2": "+", "Sub": "-", "Mul": "*", "RealDiv": "/", "FloorDiv": "//", "FloorMod": "%", "Less": "<", "LessEqual": "<=",
    "Greater": ">", "GreaterEqual": ">=", "LogicalAnd": "&", "LogicalOr": "|",
}  # fmt: skip
_FUNCTIONS = {
    "Abs": "abs", "Cast": "cast", "Exp": "exp", "ExpandDims": "expand_dims", "Fill": "fill", "Floor": "floor",
    "LogicalNot": "logical_not", "MatMul": "matmul", "Maximum": "maximum", "Minimum": "minimum", "Neg": "negative", "Pow": "pow",
    "Range": "range", "Relu": "nn.relu", "Reshape": "reshape", "Round": "round", "Rsqrt": "math.rsqrt", "SelectV2": "where",
    "Shape": "shape", "Sigmoid": "sigmoid", "Sign": "sign", "Size": "size", "Softmax": "nn.softmax", "Sqrt": "sqrt",
    "Square": "square", "Tanh": "tanh", "Tile": "tile", "Transpose": "transpose", "Log": "math.log", "Ceil": "math.ceil",
    "Erf": "math.erf", "Reciprocal": "math.reciprocal", "BatchMatMulV2": "matmul",
}  # fmt: skip
"""Functions of TensorFlow that take the inputs of an operator in its order."""
_RENAMED = {("Squeeze", "axis"): "squeeze_dims"}
"""Attributes by the name of the argument, where that differs."""
_REDUCTIONS = {"Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "All": "all", "Any": "any"}
_FOLDED = 64
"""The most elements of a result that is written as a constant."""
_INLINED = 60
"""The most characters of an expression that is written where it is used."""


class OperatorClasses:
    """Collects the classes of layers; layers with the same code have one class. No name in `reserved` is given."""

    def __init__(self, reserved: Collection[str]) -> None:
        self.definitions: list[str] = []
        self.refused: list[str] = []
        self._reserved = set(reserved)
        self._names: dict[str, str] = {}

    def name(self, layer: Any, inputs: Sequence[Any]) -> str:
        """The class of a layer of onnxbridge's that is called with these symbolic tensors."""
        if not hasattr(layer, "graph_function"):
            return self._named("Parameter", [*_weights(layer.weights, [layer.trainable], ["value"]), *_PARAMETER])
        kinds = [n.op_type for n in layer.graph_function.graph]
        try:
            code = _code(layer, inputs)
        except Unsupported as e:
            self.refused += [f"{kind} ({e.reason})" for kind in dict.fromkeys(kinds)]
            return ""
        return self._named(kinds[-1], code)

    def _named(self, preferred: str, code: Sequence[str]) -> str:
        text = "\n".join(code)
        if text not in self._names:
            preferred = identifier(preferred, ())
            name = self._names[text] = free_name(preferred, self._reserved.__contains__, first=2, separator="")
            self._reserved.add(name)
            head = ["@keras.saving.register_keras_serializable()", f"class {name}(layers.Layer):"]
            self.definitions.append("\n".join([*head, *lines(code, 4)]))
        return self._names[text]


_PARAMETER = ["", "def call(self, inputs):", "    return tf.convert_to_tensor(self.value)"]


def _weights(variables: Sequence[Any], trained: Sequence[bool], names: Sequence[str]) -> Iterator[str]:
    """The method that creates the weights."""
    if not variables:
        return
    yield "def build(self, input_shape):"
    for variable, is_trained, name in zip(variables, trained, names, strict=True):
        dtype = "" if variable.dtype == "float32" else f", dtype={quoted(variable.dtype)}"
        more = f"{dtype}{'' if is_trained else ', trainable=False'}, name={quoted(name)}"
        yield f'    self.{name} = self.add_weight(shape={tuple(variable.shape)!r}, initializer="zeros"{more})'


def _code(layer: Any, inputs: Sequence[Any]) -> list[str]:
    """The methods of a layer that runs operators.

    Raises:
        Unsupported: for operators with subgraphs, and values that cannot be written.
    """
    function = layer.graph_function
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
    specs += [tf.TensorSpec(w.shape, w.dtype) for w in layer.weights_in_order]
    graph = tf.function(function.run, autograph=False, input_signature=specs).get_concrete_function().graph
    reserved = {"self", "tf", "np", "layers", "keras", "math"}
    names: dict[str, str] = {}
    parameters = ["inputs"] if len(inputs) == 1 else [f"x{i}" for i in range(len(inputs))]
    weights: list[str] = []
    for tensor, parameter in zip(graph.inputs, [*parameters, *[""] * len(layer.weights_in_order)], strict=True):
        if not parameter:
            weights.append(identifier(_last(function.weights[len(weights)].name or ""), {*reserved, *weights, *_LAYER}))
        names[tensor.name] = parameter or f"self.{weights[-1]}"
    body = [] if len(inputs) == 1 else [f"{', '.join(parameters)} = inputs"]
    body += _Body(graph, names, {*reserved, *parameters}).lines()
    made = list(_CAST) if any(x.dtype in ("float16", "float64", "bfloat16") for x in inputs) else []
    made += _weights(layer.weights_in_order, layer.trained, weights)
    made += [*([""] if made and made[-1] else []), "def call(self, inputs):", *(f"    {line}" for line in body)]
    # Keras takes products with numbers to be sparse, and infers shapes with such tensors; sizes and axes are not known then
    if any(x.sparse or (len(x.shape) == 1 and "int" in x.dtype) for x in inputs):
        shapes = [(tuple(dims(v)), dtype_of(v).name) for v in function.graph.outputs]
        specs = [f"keras.KerasTensor({shape!r}, dtype={quoted(dtype)})" for shape, dtype in shapes]
        made += ["", "def compute_output_spec(self, inputs):", f"    return {specs[0] if len(specs) == 1 else _listed(specs)}"]
    return made


def _listed(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


_CAST = ["def __init__(self, **kwargs):", "    super().__init__(autocast=False, **kwargs)", ""]
_LAYER = frozenset(dir(tf.keras.layers.Layer)) | {"inputs"}


def _last(name: str) -> str:
    """The last part of a weight's name that says something: "gamma" of "norm/gamma.reshape"."""
    parts = [p for p in re.split(r"[./:]", name) if p and not p.isdigit()]
    return next((p for p in reversed(parts) if p not in ("reshape", "transpose", "weight_reshape")), "weight")


class _Body:
    """The statements for the operators of a traced graph."""

    def __init__(self, graph: Any, names: dict[str, str], reserved: set[str]) -> None:
        self.names, self.reserved, self.graph = names, reserved, graph
        self.uses: dict[str, int] = {}
        for t in (*(i for op in graph.get_operations() for i in op.inputs), *graph.outputs):
            self.uses[t.name] = self.uses.get(t.name, 0) + 1
        self.known: dict[str, np.ndarray[Any, Any]] = {}

    def lines(self) -> list[str]:
        found = []
        for op in self.graph.get_operations():
            if op.type in ("Placeholder", "NoOp") or not any(t.name in self.uses for t in op.outputs):
                continue
            if op.type == "Identity":
                self.names[op.outputs[0].name] = self.names[op.inputs[0].name]
                continue
            known = self._fold(op)
            text = self._expression(op) if known is None else _constant(known)
            if len(op.outputs) == 1:
                tensor = op.outputs[0]
                listed = _gives_list(op) and known is None
                small = not listed and len(text) <= _INLINED and self.uses[tensor.name] == 1 and text.count("(") < 3
                if "\n" not in text and (small or (known is not None and len(text) < 16)):
                    self.names[tensor.name] = text
                    continue
            targets = [self._new(op.type) for _ in op.outputs]
            listed = len(targets) == 1 and _gives_list(op) and known is None
            found.append(f"({targets[0]},) = {text}" if listed else f"{', '.join(targets)} = {text}")
            self.names.update({t.name: target for t, target in zip(op.outputs, targets, strict=True)})
        results = [
            f"tf.constant({name}, tf.{t.dtype.name})" if re.match(r"[-\d\[]", name) else name
            for t, name in ((t, self.names[t.name]) for t in self.graph.outputs)
        ]
        return [*found, f"return {results[0] if len(results) == 1 else _listed(results)}"]

    def _fold(self, op: Any) -> np.ndarray[Any, Any] | None:
        """The result of an operator on constants."""
        if op.type == "Const":
            self.known[op.outputs[0].name] = tf.make_ndarray(op.get_attr("value"))
        elif len(op.outputs) == 1 and op.inputs and not (op.op_def.is_stateful or _gives_list(op) or _has_variants(op)):
            inputs = [self.known.get(t.name) for t in op.inputs]
            static = tf.get_static_value(op.outputs[0])
            if static is not None and static.size <= _FOLDED:
                self.known[op.outputs[0].name] = np.asarray(static)
            elif all(i is not None and i.size <= _FOLDED for i in inputs):
                with tf.init_scope():
                    constants = [tf.constant(i, t.dtype) for i, t in zip(inputs, op.inputs, strict=True)]
                    attributes = {a: op.get_attr(_RENAMED.get((op.type, a), a)) for a in self._attributes(op)}
                    found = getattr(tf.raw_ops, op.type)(**dict(_inputs(op, constants)), **attributes)
                if found.shape.num_elements() <= _FOLDED:
                    self.known[op.outputs[0].name] = found.numpy()
        return self.known.get(op.outputs[0].name) if len(op.outputs) == 1 else None

    def _new(self, kind: str) -> str:
        preferred = re.sub(r"(V\d+)$", "", kind)
        name = identifier(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", preferred).lower(), ())
        name = free_name(name, self.reserved.__contains__, first=2, separator="_")
        self.reserved.add(name)
        return name

    def _expression(self, op: Any) -> str:
        if op.type == "Const":
            return _constant(tf.make_ndarray(op.get_attr("value")))
        given = [self.names[t.name] for t in op.inputs]
        plain = [v for v in given if re.fullmatch(r"[\w.]+", v)]
        if op.type in _SIGNS and op.inputs[0].dtype != tf.string and not all(re.match(r"[-\d\[]", v) for v in given):
            left, right = (v if v in plain or re.fullmatch(r"[\w.]+\([^ ]*\)", v) else f"({v})" for v in given)
            return f"{left} {_SIGNS[op.type]} {right}"
        arguments = dict(self._arguments(op))
        if op.type in _REDUCTIONS and set(arguments) <= {"keep_dims"}:
            keep = ", keepdims=True" if "keep_dims" in arguments else ""
            return f"tf.reduce_{_REDUCTIONS[op.type]}({given[0]}, axis={given[1]}{keep})"
        if op.type == "ConcatV2":
            return f"tf.concat([{', '.join(given[:-1])}], {given[-1]})"
        if op.type == "Pack":
            axis = f", axis={arguments['axis']}" if "axis" in arguments else ""
            return f"tf.stack([{', '.join(given)}]{axis})"
        if op.type == "GatherV2" and not arguments:
            return f"tf.gather({given[0]}, {given[1]}, axis={given[2]})"
        if op.type == "StridedSlice" and (cut := _cut(op, given)) is not None:
            return f"{given[0]}[{cut}]" if given[0] in plain or given[0].endswith(")") else f"({given[0]})[{cut}]"
        function = _FUNCTIONS.get(op.type)
        names = {"DstT": "", "out_type": "", "adj_x": "adjoint_a", "adj_y": "adjoint_b", "transpose_a": "transpose_a"}
        if function is not None and set(arguments) <= set(names):
            more = [v if not names[k] else f"{names[k]}={v}" for k, v in arguments.items()]
            return f"tf.{function}({', '.join([*given, *more])})"
        inputs = {k: v if isinstance(v, str) else _listed(v) for k, v in _inputs(op, given)}
        return f"tf.raw_ops.{op.type}({', '.join(f'{k}={v}' for k, v in {**inputs, **arguments}.items())})"

    def _attributes(self, op: Any) -> list[str]:
        """The arguments of an operator's function that are attributes."""
        known = {a.name for a in op.op_def.attr}
        return [name for name in _signature(op.type) if _RENAMED.get((op.type, name), name) in known]

    def _arguments(self, op: Any) -> Iterator[tuple[str, str]]:
        """The attributes that are not inferred and not at their defaults."""
        for name in self._attributes(op):
            value, default = _literal(op.get_attr(_RENAMED.get((op.type, name), name)), op.type), _signature(op.type)[name]
            if default is inspect.Parameter.empty or value != _default(default, op.type):
                yield name, value


def _default(value: Any, op_type: str) -> str:
    try:
        return _literal(value, op_type)
    except Unsupported:
        return ""


@functools.cache
def _signature(op_type: str) -> Mapping[str, Any]:
    function = getattr(tf.raw_ops, op_type, None)
    if function is None:
        raise Unsupported(f"TensorFlow's {op_type} has no function")
    return {name: p.default for name, p in inspect.signature(function).parameters.items()}


def _has_variants(op: Any) -> bool:
    """Whether an operator takes or gives values that are no tensors of numbers: lists, for example."""
    return any(t.dtype in (tf.variant, tf.resource) for t in (*op.inputs, *op.outputs))


def _gives_list(op: Any) -> bool:
    """Whether an operator's function returns a list, whatever the number of results."""
    return any(a.number_attr or a.type_list_attr for a in op.op_def.output_arg)


def _inputs(op: Any, given: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The inputs of an operator by name, each a list where the operator takes lists."""
    at, attributes = 0, {a.name for a in op.op_def.attr}
    own = {a.name for a in op.op_def.input_arg}
    renamed = iter([name for name in _signature(op.type) if name not in own | attributes])
    for argument in op.op_def.input_arg:
        name = argument.name if argument.name in _signature(op.type) else next(renamed)
        if argument.number_attr or argument.type_list_attr:
            size = op.get_attr(argument.number_attr) if argument.number_attr else len(op.get_attr(argument.type_list_attr))
            yield name, list(given[at : at + size])
            at += size
        else:
            yield name, given[at]
            at += 1


def _literal(value: Any, op_type: str) -> str:
    if isinstance(value, tf.DType):
        return f"tf.{value.name}"
    if isinstance(value, bytes):
        return quoted(value.decode("ascii")) if value.isascii() else repr(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (bool, int, float)) or value is None:
        return repr(value)
    if isinstance(value, TensorShapeProto):
        value = tf.TensorShape(value)
    if isinstance(value, tf.TensorShape):
        return repr(None if value.rank is None else value.as_list())
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(v, op_type) for v in value)}]"
    raise Unsupported("it has subgraphs" if hasattr(value, "name") else f"{op_type} has an attribute that cannot be written")


def _constant(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.name == "int32" and array.ndim <= 1 and array.size <= 8:
        return repr(array.tolist())
    if array.dtype.name == "float32" and array.ndim == 0 and np.isfinite(array):
        return str(array[()])
    dtype = tf.as_dtype(array.dtype).name
    if dtype == "string":
        return f"tf.constant({array.tolist()!r}, tf.{dtype})"
    if dtype == "bfloat16":
        return f"tf.cast({array_literal(array.astype(np.float32))}, tf.bfloat16)"
    if array.dtype.kind in "biuf":
        if array.ndim == 0 and (array.dtype.kind != "f" or np.isfinite(array)):
            return f"tf.constant({array.item() if array.dtype.kind != 'f' else str(array[()])}, tf.{dtype})"
        return f"tf.constant({array_literal(array)})"
    raise Unsupported(f"constants of {dtype}")


def _cut(op: Any, given: Sequence[str]) -> str | None:
    """The index of a strided slice of constant bounds along the first axes."""
    masks = {m: op.get_attr(m) for m in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")}
    bounds = [re.fullmatch(r"\[(-?\d+(, -?\d+)*)\]", v) for v in given[1:]]
    if masks["ellipsis_mask"] or masks["new_axis_mask"] or not all(bounds):
        return None
    begin, end, step = ([int(n) for n in b[1].split(", ")] for b in bounds if b is not None)
    parts = []
    for i, (b, e, s) in enumerate(zip(begin, end, step, strict=True)):
        if masks["shrink_axis_mask"] >> i & 1:
            parts.append(str(b))
            continue
        first, last = ("" if masks[f"{m}_mask"] >> i & 1 else str(n) for m, n in (("begin", b), ("end", e)))
        parts.append(f"{first}:{last}" + ("" if s == 1 else f":{s}"))
    return ", ".join(parts)
