"""Loads a model as an in-memory MIL program: an .mlpackage, an `MLModel`, its specification, or coremltools' MIL program."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.formats.coreml import package_files
from onnxbridge.formats.coreml.mil_constants import ConstantReader, enum_name, tensor_type
from onnxbridge.formats.coreml.mil_program import Array, Block, Feature, Function, Operation, Slot, Type
from onnxbridge.frameworks import coremltools

NETWORKS = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")
SCALARS = {"doubleType": np.dtype(np.float64), "int64Type": np.dtype(np.int64)}


def read(source: Any, function: str = "") -> tuple[Function, list[Feature], list[Feature]]:
    """Read a function of a program, and the model's input and output features (derived from the program if it has no
    description)."""
    loaded, inputs, outputs = _read(source, function)
    undescribed = {slot.name for slot in loaded.block.inputs} - {f.name for f in inputs}
    if undescribed:
        raise UnsafeFileError(f"the description lacks the input {', '.join(sorted(undescribed))} of the program")
    dictionaries = [f.name for f in outputs if f.kind == "dictionaryType"]
    if dictionaries and not any(o.op == "classify" for o in loaded.block.operations):
        raise UsageError(f"the output {dictionaries[0]} is a dictionary, which is not a tensor")
    return loaded, inputs, outputs


def _read(source: Any, function: str) -> tuple[Function, list[Feature], list[Feature]]:
    ct = coremltools()
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if not os.path.exists(path):
            raise UsageError(f"{path} does not exist")
        spec, weights = package_files.load(path)
        return _from_spec(spec, weights, function)
    if isinstance(source, ct.models.MLModel):
        return _from_spec(source.get_spec(), package_files.Weights(source.weights_dir or ""), function)
    if isinstance(source, ct.proto.Model_pb2.Model):
        return _from_spec(source, package_files.Weights(""), function)
    if isinstance(source, ct.converters.mil.Program):
        return _from_memory(source, function)
    raise UsageError(f"expected an .mlpackage, an MLModel or a MIL program, got {type(source).__name__}")


def metadata(source: Any) -> dict[str, str]:
    """A model's metadata: author, license, version, description and user-defined entries."""
    ct = coremltools()
    if isinstance(source, str | os.PathLike):
        source, _ = package_files.load(source)
    spec = source.get_spec() if isinstance(source, ct.models.MLModel) else source
    if not isinstance(spec, ct.proto.Model_pb2.Model):
        return {}
    stored = spec.description.metadata
    fields = {
        "author": stored.author, "license": stored.license, "version": stored.versionString,
        "description": stored.shortDescription,
    }  # fmt: skip
    return {k: v for k, v in fields.items() if v} | dict(stored.userDefined)


class _SlotTable:
    """Maps names to slots; inner blocks see the names of the enclosing blocks."""

    def __init__(self) -> None:
        self.names: dict[str, Slot] = {}
        self.constants: dict[int, Any] = {}
        self.count = 0

    def new(self, name: str, type: Type | None) -> Slot:
        slot = self.names[name] = Slot(self.count, name, type)
        self.count += 1
        return slot

    def lookup(self, name: str) -> Slot:
        if name not in self.names:
            raise UnsafeFileError(f"the program uses {name} before it is defined")
        return self.names[name]

    def constant(self, name: str, value: Any) -> Slot:
        known = Type(value.dtype, value.shape) if isinstance(value, np.ndarray) and value.dtype != object else None
        slot = self.new(name, known)
        self.constants[slot.index] = value
        return slot


def _from_spec(spec: Any, weights: package_files.Weights, function: str) -> tuple[Function, list[Feature], list[Feature]]:
    kind = spec.WhichOneof("Type")
    if kind in NETWORKS:
        return _network(spec)
    if kind in PIPELINES:
        return _pipeline(spec, getattr(spec, kind), weights)
    if kind != "mlProgram":
        return _estimator(spec)
    functions = spec.mlProgram.functions
    function = function or spec.description.defaultFunctionName or "main"
    if function not in functions:
        raise UsageError(f"the program has no function {function!r}; available: {', '.join(sorted(functions))}")
    stored, scope = functions[function], _SlotTable()
    if stored.opset not in stored.block_specializations:
        raise UnsafeFileError(f"the function {function} has no block for its opset {stored.opset!r}")
    slots = {v.name: scope.new(v.name, _declared(v.type)) for v in stored.inputs}
    states = {v.name: slots[v.name] for v in stored.inputs if v.type.WhichOneof("type") == "stateType"}
    block = _block(stored.block_specializations[stored.opset], scope, ConstantReader(weights))
    block.inputs = tuple(s for name, s in slots.items() if name not in states)
    described = next((f for f in spec.description.functions if f.name == function), spec.description)
    return (
        Function(function, block, states, scope.constants, scope.count),
        [_feature(d) for d in described.input],
        [_feature(d) for d in described.output],
    )


def _network(spec: Any) -> tuple[Function, list[Feature], list[Feature]]:
    """Read a neural network. Doubles of its description become float32, in which it computes."""
    from onnxbridge.formats.coreml import neural_network

    inputs, outputs = (
        [_network_feature(_feature(d), d.type.multiArrayType) for d in described]
        for described in (spec.description.input, spec.description.output)
    )
    return neural_network.function(spec, inputs, outputs), inputs, outputs


def _estimator(spec: Any) -> tuple[Function, list[Feature], list[Feature]]:
    """Read a classical machine learning model: trees, linear models, scalers and the like."""
    from onnxbridge.formats.coreml import estimators

    if spec.WhichOneof("Type") is None:
        raise UnsafeFileError("the model is empty, or of a type that this version of coremltools does not know")
    inputs, outputs = ([_feature(d) for d in described] for described in (spec.description.input, spec.description.output))
    keys = estimators.keys(spec)
    inputs = [replace(f, keys=keys) if f.kind == "dictionaryType" else f for f in inputs]
    return estimators.function(spec, inputs, outputs), inputs, outputs


def _pipeline(spec: Any, stored: Any, weights: package_files.Weights) -> tuple[Function, list[Feature], list[Feature]]:
    from onnxbridge.formats.coreml.pipeline import join_functions

    models = getattr(stored, "pipeline", stored).models
    inputs, outputs = ([_feature(d) for d in described] for described in (spec.description.input, spec.description.output))
    parts = [_from_spec(model, weights, "") for model in models]
    keys = {f.name: f.keys for _, model_inputs, _ in parts for f in model_inputs if f.keys}
    inputs = [replace(f, keys=keys.get(f.name, ())) for f in inputs]
    pipeline = join_functions([(function, model_outputs) for function, _, model_outputs in parts], inputs, outputs)
    block = pipeline.block
    return pipeline, list(map(_pipeline_feature, inputs, block.inputs)), list(map(_pipeline_feature, outputs, block.outputs))


def _pipeline_feature(feature: Feature, slot: Slot) -> Feature:
    """A pipeline's feature; its doubles become float32 if the model that reads or writes them is a neural network."""
    double = slot.type is not None and slot.type.dtype == np.float64
    return feature if double or feature.dtype != np.float64 else replace(feature, dtype=np.dtype(np.float32))


def _network_feature(feature: Feature, array: Any) -> Feature:
    """A neural network's feature, with 0 for every flexible size."""
    if feature.kind != "multiArrayType":
        return feature
    sizes = list(feature.shape)
    for axis, bound in enumerate(array.shapeRange.sizeRanges):
        sizes[axis] = sizes[axis] if bound.lowerBound == bound.upperBound else 0
    for other in array.enumeratedShapes.shapes:
        sizes = [n if n == m else 0 for n, m in zip(sizes, other.shape, strict=True)]
    dtype = np.dtype(np.float32) if feature.dtype == np.float64 else feature.dtype
    return replace(feature, dtype=dtype, shape=tuple(sizes))


def _declared(type: Any) -> Type | None:
    """The tensor type of a value, or of the tensor in a state."""
    if type.WhichOneof("type") == "stateType":
        type = type.stateType.wrappedType
    return tensor_type(type.tensorType) if type.WhichOneof("type") == "tensorType" else None


def _block(stored: Any, scope: _SlotTable, values: ConstantReader) -> Block:
    block = Block(tuple(scope.new(v.name, _declared(v.type)) for v in stored.inputs))
    for op in stored.operations:
        if op.type == "const":
            if not op.outputs or "val" not in op.attributes:
                raise UnsafeFileError("the program has a constant without a name or a value")
            scope.constant(op.outputs[0].name, values.read(op.attributes["val"]))
            continue
        # before iOS18, compressed weights (constexpr_...) have their parameters in the attributes
        inputs = {key: [values.read(v)] for key, v in op.attributes.items() if key != "name"}
        for key, argument in op.inputs.items():
            inputs[key] = [
                scope.lookup(b.name) if b.WhichOneof("binding") == "name" else values.read(b.value) for b in argument.arguments
            ]
        outer = dict(scope.names)
        blocks = []
        for inner in op.blocks:
            blocks.append(_block(inner, scope, values))
            scope.names = dict(outer)
        outputs = tuple(scope.new(v.name, _declared(v.type)) for v in op.outputs)
        name = values.read(op.attributes["name"]) if "name" in op.attributes else outputs[0].name if outputs else ""
        block.operations.append(Operation(op.type, name, inputs, outputs, tuple(blocks)))
    block.outputs = tuple(scope.lookup(name) for name in stored.outputs)
    return block


def _feature(described: Any) -> Feature:
    kind = described.type.WhichOneof("Type") or ""
    if kind == "imageType":
        image = described.type.imageType
        color = enum_name(type(image).ColorSpace, image.colorSpace)
        ranges = [image.imageSizeRange.heightRange, image.imageSizeRange.widthRange] if image.HasField("imageSizeRange") else []
        shapes = [(s.height, s.width) for s in image.enumeratedSizes.sizes]
        return Feature(
            described.name, kind, shape=(image.height, image.width), optional=described.type.isOptional, color=color,
            allowed=_allowed_sizes(ranges, shapes),
        )  # fmt: skip
    if kind != "multiArrayType":
        return Feature(described.name, kind, SCALARS.get(kind), optional=described.type.isOptional)
    array = described.type.multiArrayType
    default = array.WhichOneof("defaultOptionalValue")
    return Feature(
        described.name,
        kind,
        _array_dtype(array),
        tuple(array.shape),
        described.type.isOptional,
        getattr(array, default) if default else None,
        allowed=_allowed_sizes(array.shapeRange.sizeRanges, [tuple(s.shape) for s in array.enumeratedShapes.shapes]),
    )


def _allowed_sizes(ranges: Any, shapes: Sequence[tuple[int, ...]]) -> str:
    """The allowed sizes of a feature as a string: enumerated shapes, or bounds for each axis, possibly without an upper one."""
    if shapes:
        return " or ".join("x".join(map(str, shape)) for shape in shapes)
    ends = [(int(r.lowerBound), int(r.upperBound)) for r in ranges]
    return ", ".join(str(low) if low == high else f"{low}..{high if high > 0 else ''}" for low, high in ends)


def _array_dtype(array: Any) -> np.dtype[Any] | None:
    name = enum_name(type(array).ArrayDataType, array.dataType)
    return None if name == "INVALID_ARRAY_DATA_TYPE" else np.dtype("float64" if name == "DOUBLE" else name.lower())


def _from_memory(program: Any, function: str) -> tuple[Function, list[Feature], list[Feature]]:
    function = function or program.default_function_name
    if function not in program.functions:
        raise UsageError(f"the program has no function {function!r}; available: {', '.join(sorted(program.functions))}")
    stored, scope = program.functions[function], _SlotTable()
    memory = _MemorySlots(scope)
    slots = {name: memory.define(var, name) for name, var in stored.inputs.items()}
    types = coremltools().converters.mil.mil.types
    states = {name: slots[name] for name, var in stored.inputs.items() if types.is_state(var._sym_type)}
    block = memory.block(stored, ())
    block.inputs = tuple(s for name, s in slots.items() if name not in states)
    features = [Feature(name, "multiArrayType", s.type.dtype if s.type else None) for name, s in slots.items()]
    given = [Feature(s.name, "multiArrayType", s.type.dtype if s.type else None) for s in block.outputs]
    return (
        Function(function, block, states, scope.constants, scope.count),
        [f for f in features if f.name not in states],
        given,
    )


class _MemorySlots:
    """Slots of coremltools' Var objects by identity, since their names need not be unique."""

    def __init__(self, scope: _SlotTable) -> None:
        self.scope = scope
        self.slots: dict[int, Slot] = {}

    def define(self, var: Any, name: str) -> Slot:
        slot = self.slots[id(var)] = self.scope.new(name, _memory_type(var))
        return slot

    def lookup(self, var: Any) -> Any:
        """The slot of a variable; one that no operator computed is a constant."""
        if isinstance(var, list | tuple):
            return [self.lookup(v) for v in var]
        if id(var) not in self.slots:
            self.slots[id(var)] = self.scope.constant(var.name, _memory_value(var))
        return self.slots[id(var)]

    def block(self, stored: Any, inputs: Iterable[Any]) -> Block:
        block = Block(tuple(self.define(v, v.name) for v in inputs))
        for op in stored.operations:
            if op.op_type == "const":
                self.lookup(op.outputs[0])
                continue
            given = {key: _as_list(self.lookup(var)) for key, var in op.inputs.items() if _is_value(key, var)}
            blocks = tuple(self.block(inner, inner.inputs) for inner in op.blocks)
            outputs = tuple(self.define(var, var.name) for var in op.outputs)
            block.operations.append(Operation(op.op_type, op.name, given, outputs, blocks))
        block.outputs = tuple(self.lookup(var) for var in stored.outputs)
        return block


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_value(name: str, var: Any) -> bool:
    """Whether an operator's input is set, and not one of the Python functions that build control flow (`_cond`, `_body`, ...)."""
    return var is not None and not name.startswith("_")


def _memory_type(var: Any) -> Type | None:
    types = coremltools().converters.mil.mil.types
    kind = var._sym_type
    if types.is_state(kind):
        kind = kind.wrapped_type()
    if types.is_list(kind) or types.is_dict(kind) or kind is types.str:
        return None
    tensor = types.is_tensor(kind)
    dtype = np.dtype(types.nptype_from_builtin(kind.get_primitive() if tensor else kind))
    if not tensor:
        return Type(dtype)
    if types.symbolic.any_variadic(kind.get_shape()):
        return Type(dtype, None)
    # coremltools writes a negative size for topk with k = -1, which selects all elements
    return Type(dtype, tuple(int(n) if isinstance(n, int | np.integer) and n >= 0 else None for n in kind.get_shape()))


def _memory_value(var: Any) -> Any:
    value = var.val
    if isinstance(value, str):
        return value
    if hasattr(value, "ls"):  # coremltools' wrapper around a Python list
        return list(value.ls)
    array: Array = np.asarray(value)
    kind = _memory_type(var)
    return array.astype(kind.dtype, copy=False) if kind is not None and array.dtype.kind != "U" else array
