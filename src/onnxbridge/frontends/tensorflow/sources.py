"""Sources (Keras models and layers, files, SavedModels, modules and functions) as one traced function."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import OnnxbridgeError, UsageError
from onnxbridge.frameworks.tensorflow_errors import main_line
from onnxbridge.frontends.tensorflow import graph_files, input_specs
from onnxbridge.frontends.tensorflow.convert import Traced
from onnxbridge.frontends.tensorflow.graph import ragged_inputs
from onnxbridge.frontends.tensorflow.graph.tensors import plain_name
from onnxbridge.frontends.tensorflow.graph.variables import record_names
from onnxbridge.frontends.tensorflow.input_specs import Spec
from onnxbridge.frontends.tensorflow.load_files import load
from onnxbridge.frontends.tensorflow.saved_model import operator_checks
from onnxbridge.frontends.tensorflow.selection import Selection, selection_of
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.hub.ir.unique_name import unique_name


def trace(source: Any, inputs: Any = None, dynamic: Any = None) -> Traced:
    """The source as one traced function, by its own names and layouts.

    Raises:
        UsageError: if the inputs do not fit, or are required.
        UnsafeFileError: if a file contains code or other unsafe content.
    """
    chosen = selection_of(source)
    if not isinstance(chosen.source, (str, os.PathLike)):
        traced = _traced(chosen, inputs, dynamic)
        record_names(chosen.source, traced.states)
        return traced
    chosen = opened(chosen)
    try:
        with frameworks.quiet():
            traced = _traced(chosen, inputs, dynamic)
    except (ValueError, TypeError) as e:
        raise UsageError(f"{chosen.label}: cannot take these inputs: {main_line(e)}") from e
    operator_checks.check_graph(traced.graph, chosen.label)
    return traced


def opened(chosen: Selection) -> Selection:
    """The selection with what is in its file, instead of a path."""
    path = os.fspath(chosen.source)
    checkpoint = chosen.checkpoint or (graph_files.checkpoint_of(path) if detect_format(path) == "metagraph" else "")
    return replace(chosen, source=load(path), label=path, checkpoint=checkpoint)


def _traced(chosen: Selection, inputs: Any, dynamic: Any) -> Traced:
    if graph_files.is_graph(chosen.source):
        made = graph_files.function(
            chosen.source, inputs, chosen.inputs_at, chosen.outputs_at, chosen.checkpoint, chosen.label or "the graph",
            chosen.signature,
        )  # fmt: skip
        return _concrete(made, inputs, dynamic)
    if chosen.inputs_at or chosen.outputs_at:
        return _cut(chosen, inputs, dynamic)
    found = chosen.source
    tf = frameworks.tensorflow()
    signatures = getattr(found, "signatures", None)
    if chosen.signature and not signatures:
        raise UsageError(f"the source has no signatures, so none is named {chosen.signature!r}")
    if is_keras(found) and not chosen.signature:
        return _keras(found, inputs, dynamic)
    if hasattr(found, "structured_input_signature") and hasattr(found, "graph"):
        return _concrete(found, inputs, dynamic)
    if hasattr(found, "get_concrete_function"):
        return _function(found, inputs, dynamic)
    if signatures:
        return _concrete(_signature(signatures, chosen.signature or None), inputs, dynamic)
    if callable(found):
        own = found.__call__
        own = own if hasattr(own, "get_concrete_function") else tf.function(own, autograph=False)
        return _function(own, inputs, dynamic)
    raise UsageError(
        f"a {type(found).__module__}.{type(found).__qualname__} has no function to convert; pass the tf.function itself"
    )


def _cut(chosen: Selection, inputs: Any, dynamic: Any) -> Traced:
    """The part of a function between tensors of its graph, in which called functions are inlined and variables are constants."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    whole = _traced(replace(chosen, inputs_at=(), outputs_at=()), None if chosen.inputs_at else inputs, None)
    with frameworks.quiet():
        frozen = convert_variables_to_constants_v2(whole.function, lower_control_flow=False)
    own_outputs = dict(zip((plain_name(t) for t in frozen.outputs), (n for n, _ in whole.outputs), strict=False))
    own_inputs = dict(zip((plain_name(t) for t in frozen.inputs), (n for n, _ in whole.inputs), strict=False))
    fetches = [graph_files.tensor_of(frozen.graph, n) for n in chosen.outputs_at] or list(frozen.outputs)
    feeds = [graph_files.tensor_of(frozen.graph, n) for n in chosen.inputs_at]
    feeds += graph_files.other_inputs(fetches, feeds, frozen.inputs)
    found = _concrete(frozen.prune(feeds, fetches), None if not chosen.inputs_at else inputs, dynamic)
    return replace(
        found, inputs=[(own_inputs.get(n, n), t) for n, t in found.inputs],
        outputs=[(own_outputs.get(n, n), t) for n, t in found.outputs],
    )  # fmt: skip


def is_keras(source: Any) -> bool:
    return any(c.__module__.split(".")[0] in ("keras", "tf_keras") and c.__name__ == "Layer" for c in type(source).__mro__)


def declares_inputs(source: Any) -> bool:
    """Whether a source has declared inputs; a subclassed Keras model only has the sizes of its first call."""
    if graph_files.is_graph(source):
        return False  # sizes in a graph may be overridden
    return not is_keras(source) or bool(getattr(source, "inputs", None))


def _signature(signatures: Mapping[str, Any], name: str | None) -> Any:
    requested = name or ("serving_default" if "serving_default" in signatures else next(iter(signatures)))
    if requested not in signatures:
        raise UsageError(f"the model has no signature {requested!r}; it has {', '.join(signatures)}")
    if name is None and requested != "serving_default" and len(signatures) > 1:
        raise UsageError(f"the model has no signature 'serving_default'; choose one of {', '.join(signatures)}")
    return signatures[requested]


def _keras(model: Any, inputs: Any, dynamic: Any) -> Traced:
    """A Keras model or layer, called with training=False."""
    import tensorflow as tf

    root = type(model).__mro__[-2].__module__.split(".")[0]
    if root != "tf_keras":
        import keras

        if keras.backend.backend() != "tensorflow":
            raise UsageError(
                f"Keras runs on {keras.backend.backend()} here; set KERAS_BACKEND=tensorflow, or save the model and pass the file"
            )
    own: Any = getattr(model, "inputs", None) or []
    by_name = list(own) if isinstance(own, Mapping) else None
    symbolic = list(own.values() if by_name else own)
    if symbolic:
        names = by_name or _unique(_input_names(model, symbolic))
        declared = {n: input_specs.spec_of(t) for n, t in zip(names, symbolic, strict=True)}
        found = input_specs.merged(declared, inputs, dynamic)
    else:
        found = _described(model, inputs, dynamic)
    options = {"training": False} if _has_training(model) else {}
    own_names = getattr(getattr(model, "_functional", None) or model, "output_names", None) or []

    def call(*tensors: Any) -> list[Any]:
        if symbolic:
            structure = getattr(model, "_inputs_struct", None)
            result = model(dict(zip(found, tensors, strict=True)) if by_name else _packed(tensors, structure), **options)
        else:
            args, named = _arguments(model, dict(zip(found, tensors, strict=True)), isinstance(inputs, Mapping))
            result = model(*args, **named, **options)
        outputs[:] = _output_names(result, list(own_names))  # an unbuilt model is called twice
        return [t for _, t in _flat(result)]

    outputs: list[str] = []
    with _open_sizes_named(found):
        function = tf.function(call, autograph=False).get_concrete_function(
            *(s.tensor_spec(_valid_name(n)) for n, s in found.items())
        )
    weights = {id(v.handle): plain_name(v) for v in function.graph.variables}  # states of layers are no weights of the model
    weights |= {
        id(v.value.handle if hasattr(v, "path") else v.handle): str(getattr(v, "path", v.name)).removesuffix(":0")
        for v in model.variables
    }
    flat = function.inputs[: len(found)]
    return Traced(
        function.graph, list(zip(found, flat, strict=True)), input_specs.labelled(found, batched=True),
        list(zip(_unique(outputs, found), function.outputs, strict=True)), list(function.graph.captures), weights,
        lambda arrays: list(function(*arrays)), _trainable(function.graph), function,
    )  # fmt: skip


@contextmanager
def _open_sizes_named(inputs: Mapping[str, Spec]) -> Iterator[None]:
    """Name the sizes beside the batch that were unknown in an error of TensorFlow, since they may be its cause."""
    try:
        yield
    except OnnxbridgeError:
        raise
    except Exception as e:
        names = [n for n, s in inputs.items() if s.shape is None or any(not isinstance(size, int) for size in s.shape[1:])]
        if not names:
            raise
        reason = main_line(e).split(". ")[0]
        examples = []
        for n in names:
            sizes = [s if isinstance(s, int) else 64 if i else "N" for i, s in enumerate(inputs[n].shape or ("N", 64, 64, 3))]
            examples.append(f"{n}:{inputs[n].dtype.name}[{','.join(map(str, sizes))}]")
        raise UsageError(
            f"TensorFlow cannot run the model with unknown sizes of {', '.join(map(repr, names))}: {reason}. If the model needs "
            f"these sizes, give them, such as {' '.join(f'--inputs {spec!r}' for spec in examples)}, inputs={examples}"
        ) from e


def _input_names(model: Any, symbolic: Sequence[Any]) -> list[str]:
    """The input names that Keras users know: keys of a dict, otherwise the input layers' names."""
    structure = getattr(model, "_inputs_struct", None)
    if isinstance(structure, dict):
        by_id = {id(v): str(k) for k, v in structure.items()}
        return [by_id.get(id(t), t.name) for t in symbolic]
    own = getattr(model, "input_names", None)
    return list(own) if own and len(own) == len(symbolic) else [str(t.name).removesuffix(":0") for t in symbolic]


def _described(model: Any, inputs: Any, dynamic: Any) -> dict[str, Spec]:
    """The inputs of a model without symbolic inputs (a subclass, a layer), from the user or from its build shape."""
    if inputs is None:
        shape = getattr(model, "_build_input_shape", None) or _built_with(model)
        if shape is None:
            raise UsageError(f"the model {model.name!r} has no known input shapes; pass inputs=...")
        shape = tuple(shape.as_list()) if hasattr(shape, "as_list") else shape
        inputs = {"input": (shape, model.input_dtype if hasattr(model, "input_dtype") else model.compute_dtype)}
    if isinstance(inputs, Mapping):
        names = list(inputs)
    else:
        inputs = [inputs] if input_specs.is_single(inputs) else list(inputs)
        names = default_names(len(inputs))
    return input_specs.merged(input_specs.given(inputs, names), None, dynamic)


def default_names(count: int) -> list[str]:
    """Default names for inputs given in order."""
    return ["input"] if count == 1 else [f"input_{i}" for i in range(count)]


def _arguments(model: Any, tensors: Mapping[str, Any], named: bool) -> tuple[list[Any], dict[str, Any]]:
    """The tensors as arguments for `call` of a model without symbolic inputs: separate, or in one dict or list."""
    if len(tensors) == 1:
        return list(tensors.values()), {}
    known = parameters(model.call) or {}
    if named:
        return ([], dict(tensors)) if set(tensors) <= set(known) else ([dict(tensors)], {})
    required = [name for name, default in known.items() if default is inspect.Parameter.empty]
    return (list(tensors.values()), {}) if len(required) == len(tensors) else ([list(tensors.values())], {})


def parameters(function: Any) -> dict[str, Any] | None:
    """The named parameters of a function, with defaults; None if unknown."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return {name: p.default for name, p in found.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _built_with(model: Any) -> Any:
    shapes = getattr(model, "_build_shapes_dict", None)
    found = list(shapes.values())[0] if shapes and len(shapes) == 1 else None
    return found if isinstance(found, (tuple, list)) and all(s is None or isinstance(s, int) for s in found) else None


def _has_training(model: Any) -> bool:
    known = parameters(model.call)
    return known is not None and ("training" in known or hasattr(model, "inputs"))


def _packed(tensors: Sequence[Any], structure: Any) -> Any:
    """The tensors in the structure of the model's inputs."""
    if structure is None:
        return tensors[0] if len(tensors) == 1 else list(tensors)
    import keras

    return keras.tree.pack_sequence_as(structure, list(tensors))


def _flat(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of a structure with their key paths; dicts are sorted by key, as in tf.nest."""
    if isinstance(result, Mapping):
        for key in sorted(result):
            yield from _flat(result[key], f"{path}/{key}" if path else str(key))
    elif isinstance(result, (list, tuple)):
        for i, item in enumerate(result):
            yield from _flat(item, f"{path}/{i}" if path else f"output_{i}")
    elif parts := ragged_inputs.components(result):
        yield from ((f"{path or 'output_0'}/{name}", part) for name, part in parts)
    elif result is not None:
        yield path or "output_0", result


def _output_names(result: Any, own: list[str]) -> list[str]:
    """Names of the outputs: a dict's keys, otherwise the model's own, otherwise output_0, output_1, ..."""
    flat = [name for name, _ in _flat(result)]
    return own if len(own) == len(flat) and not isinstance(result, Mapping) else flat


def _concrete(function: Any, inputs: Any, dynamic: Any) -> Traced:
    """A ConcreteFunction, traced again if the user makes dynamic sizes static."""
    import tensorflow as tf

    tensors = [t for t in function.inputs[: len(function.inputs) - len(function.captured_inputs)] if t.dtype != tf.resource]
    args, kwargs = function.structured_input_signature or _flat_signature(tensors)
    flat = tf.nest.flatten((args, kwargs), expand_composites=True)
    requested = [s for s in flat if isinstance(s, tf.TensorSpec)]
    if len(requested) != len(tensors):
        raise UsageError("the function takes values that are no tensors; pass one that takes tensors")
    parts = ragged_inputs.input_names((args, kwargs), tensors)
    names = _unique([part or _input_name(kwargs, s, t) for part, s, t in zip(parts, requested, tensors, strict=True)])
    declared = {n: Spec(input_specs.spec_of(s).shape, s.dtype) for n, s in zip(names, requested, strict=True)}
    found = input_specs.merged(declared, inputs, dynamic)

    def call(*values: Any) -> Any:
        rest = iter(values)
        packed = [next(rest) if isinstance(s, tf.TensorSpec) else s for s in flat]
        a, k = tf.nest.pack_sequence_as((args, kwargs), packed, expand_composites=True)
        return function(*a, **k)

    own = function
    if any(_makes_static(found[n], declared[n]) for n in found):
        own = tf.function(call, autograph=False).get_concrete_function(*(s.tensor_spec(_valid_name(n)) for n, s in found.items()))
        tensors = own.inputs[: len(found)]
    results = _result_names(function)
    outputs = [t for t in own.outputs if t is not None]
    if not outputs:
        raise UsageError("the function has no outputs; name tensors of its graph: function.prune(feeds=[...], fetches=[...])")
    if len(results) != len(outputs):
        raise UsageError("the function returns values that are no tensors; return tensors")
    return Traced(
        own.graph, list(zip(names, tensors, strict=True)), input_specs.labelled(found, batched=False),
        list(zip(_unique(results, names), outputs, strict=True)), list(own.graph.captures),
        {id(v.handle): plain_name(v) for v in own.graph.variables},
        lambda arrays: [t for _, t in _flat(call(*arrays))], _trainable(own.graph), own,
        list(ragged_inputs.partitions(names)),
    )  # fmt: skip


def _flat_signature(tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The signature of a function made from a subgraph (`prune`, a frozen function): its tensors in order, by name."""
    import tensorflow as tf

    return tuple(tf.TensorSpec(t.shape, t.dtype, plain_name(t)) for t in tensors), {}


def _result_names(function: Any) -> list[str]:
    """The output names: the keys of a structure, or in a subgraph without keys the tensors' own names."""
    structure = function.structured_outputs
    if function.structured_input_signature is None and not isinstance(structure, Mapping):
        return [plain_name(t) for t in function.outputs if t is not None]
    return [name for name, _ in _flat(structure)]


def _trainable(graph: Any) -> dict[int, bool]:
    """Whether each variable of a graph is trained, by the id of its handle; a frozen layer still has parameters."""
    return {id(v.handle): bool(v.trainable) for v in graph.variables}


def _input_name(kwargs: Mapping[str, Any], spec: Any, tensor: Any) -> str:
    """An input's name: its keyword, otherwise its spec's name, otherwise its placeholder's."""
    return next((k for k, v in kwargs.items() if v is spec), None) or spec.name or plain_name(tensor)


def _makes_static(spec: Spec, own: Spec) -> bool:
    if spec.shape is None or own.shape is None:
        return spec.shape is not None
    return any(isinstance(s, int) and not isinstance(o, int) for s, o in zip(spec.shape, own.shape, strict=True))


def _function(function: Any, inputs: Any, dynamic: Any) -> Traced:
    """A tf.function, traced with the user's inputs, or with its own signature."""
    if inputs is None or getattr(function, "input_signature", None) is not None:
        try:
            return _concrete(function.get_concrete_function(), inputs, dynamic)
        except (ValueError, TypeError) as e:
            if inputs is not None:
                raise
            raise UsageError("the function has no known input shapes; pass inputs=...") from e
    if isinstance(inputs, Mapping):
        found = input_specs.merged(input_specs.given(inputs, list(inputs)), None, dynamic)
        concrete = function.get_concrete_function(**{n: s.tensor_spec(n) for n, s in found.items()})
    else:
        items = [input_specs.spec_of(i) for i in ([inputs] if input_specs.is_single(inputs) else inputs)]
        names = _positional(function, len(items))
        found = input_specs.merged(dict(zip(names, items, strict=True)), None, dynamic)
        concrete = function.get_concrete_function(*(s.tensor_spec(n) for n, s in found.items()))
    return _concrete(concrete, input_specs.as_inputs(found), None)


def _positional(function: Any, count: int) -> list[str]:
    found = inspect.signature(function.python_function).parameters.values()
    names = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = names[1:] if len(names) > count and names[0] == "self" else names
    return (names + [f"input_{i}" for i in range(len(names), count)])[:count]


def _valid_name(name: str) -> str:
    """A valid TensorFlow argument name."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _unique(names: Sequence[str], others: Iterable[str] = ()) -> list[str]:
    """Unique names that are not in `others`."""
    used = set(others)
    return [unique_name(name, used) for name in names]
