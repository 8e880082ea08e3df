"""What users hand in (Keras models and layers, files, SavedModels, modules and functions) as one traced function."""

from __future__ import annotations

import inspect
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onnxbridge import frameworks
from onnxbridge.errors import UnsafeFileError, UsageError, main_line
from onnxbridge.frontends.tensorflow import input_specs
from onnxbridge.frontends.tensorflow.convert import Traced
from onnxbridge.frontends.tensorflow.graph.graph_reader import plain_name
from onnxbridge.frontends.tensorflow.input_specs import Spec
from onnxbridge.frontends.tensorflow.saved_model import hdf5_checks, operator_checks
from onnxbridge.hub.io.detect_format import recognise
from onnxbridge.hub.io.zip_archives import open_archive

# how Keras words what it refuses for security
_REFUSED = re.compile(r"safe_mode|unsafe|not allowed|disallowed|security|KerasSaveable", re.IGNORECASE)
_MODULE = re.compile(r"'module': '(\w+)")


def trace(source: Any, inputs: Any = None, dynamic: Any = None, signature: str | None = None) -> Traced:
    """The source as one traced function.

    Raises:
        UsageError: if the inputs do not fit, or have to be given.
        UnsafeFileError: if a file holds what must not run.
    """
    if isinstance(source, (str, os.PathLike)):
        loaded = load(source)
        try:
            with frameworks.quiet():
                traced = trace(loaded, inputs, dynamic, signature)
        except (ValueError, TypeError) as e:
            raise UsageError(f"{os.fspath(source)}: cannot take these inputs: {main_line(e)}") from e
        operator_checks.check_graph(traced.graph, os.fspath(source))
        return traced
    tf = frameworks.tensorflow()
    if is_keras(source):
        return _keras(source, inputs, dynamic)
    if hasattr(source, "structured_input_signature") and hasattr(source, "graph"):
        return _concrete(source, inputs, dynamic)
    if hasattr(source, "get_concrete_function"):
        return _function(source, inputs, dynamic)
    signatures = getattr(source, "signatures", None)
    if signatures:
        return _concrete(_signature(signatures, signature), inputs, dynamic)
    if callable(source):
        own = source.__call__
        own = own if hasattr(own, "get_concrete_function") else tf.function(own, autograph=False)
        return _function(own, inputs, dynamic)
    raise UsageError(
        f"a {type(source).__module__}.{type(source).__qualname__} has no function to convert; give the tf.function itself"
    )


def load(path: str | os.PathLike[str]) -> Any:
    """The model in a file or folder: a Keras model, or a loaded SavedModel. Nothing of it runs."""
    tf = frameworks.tensorflow()
    kind = recognise(path)
    if kind == "savedmodel":
        operator_checks.check(path)
        try:
            with frameworks.quiet():  # it logs a traceback about a fingerprint that it cannot read, and goes on
                return tf.saved_model.load(os.fspath(path))
        except (AttributeError, ValueError, KeyError) as e:
            return _by_signatures(tf, os.fspath(path), e)
        except (OSError, IndexError, tf.errors.OpError) as e:
            reason = f"its variables are missing or damaged ({main_line(e)})"
            raise UnsafeFileError(f"{os.fspath(path)}: {reason}; save the model again.") from e
    import keras

    if kind == "keras":
        open_archive(path, "save the model again with model.save")
    try:
        hdf5_checks.check(path, kind)
        with frameworks.quiet():
            return keras.saving.load_model(os.fspath(path), compile=False, safe_mode=True)
    except (ValueError, TypeError) as e:
        text = str(e).split("Exception encountered: ")[-1]  # what went wrong in an inner layer
        if _REFUSED.search(text) and "lambda" in text.lower():
            raise UnsafeFileError(
                f"{os.fspath(path)}: holds Python code (a Lambda layer or the like), which is not run; load the model "
                "where you trust it and convert the live model."
            ) from e
        if _REFUSED.search(text) or _names_python(text):
            reason = main_line(text or repr(e)).split(". ")[0].removesuffix(".")
            raise UnsafeFileError(f"{os.fspath(path)}: Keras refuses it for security ({reason}); save the model again.") from e
        if "No model config" in text:
            raise UsageError(
                f"{os.fspath(path)}: holds weights only; build the model in Python, load_weights, and convert the live model"
            ) from e
        raise UsageError(f"{os.fspath(path)}: Keras cannot load it: {main_line(text or repr(e))}") from e
    except (OSError, KeyError, IndexError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as e:
        reason = main_line(e)
        raise UnsafeFileError(f"{os.fspath(path)}: is damaged ({reason}); get the file again or save the model again.") from e


def _names_python(text: str) -> bool:
    """Whether what Keras could not find is part of Python itself, which no model is made of."""
    found = _MODULE.search(text)
    return found is not None and found[1] in sys.stdlib_module_names - {"builtins"}


def _by_signatures(tf: Any, path: str, cause: Exception) -> Any:
    """A SavedModel whose objects cannot be restored (old optimizers), through its signatures alone."""
    from tensorflow.python.saved_model import load_v1_in_v2

    try:
        with frameworks.quiet():
            return load_v1_in_v2.load(path, tags=None)
    except Exception as e:
        raise UsageError(f"{path}: TensorFlow cannot load it: {main_line(cause)}") from e


def is_keras(source: Any) -> bool:
    return any(c.__module__.split(".")[0] in ("keras", "tf_keras") and c.__name__ == "Layer" for c in type(source).__mro__)


def declares_inputs(source: Any) -> bool:
    """Whether a source has inputs of its own; a subclassed Keras model only has the sizes that it was called with first."""
    return not is_keras(source) or bool(getattr(source, "inputs", None))


def _signature(signatures: Mapping[str, Any], name: str | None) -> Any:
    wanted = name or ("serving_default" if "serving_default" in signatures else next(iter(signatures)))
    if wanted not in signatures:
        raise UsageError(f"there is no signature {wanted!r}; the model has {', '.join(signatures)}")
    if name is None and wanted != "serving_default" and len(signatures) > 1:
        raise UsageError(f"the model has no signature 'serving_default'; choose one of {', '.join(signatures)}")
    return signatures[wanted]


def _keras(model: Any, inputs: Any, dynamic: Any) -> Traced:
    """A Keras model or layer, called with training=False."""
    import tensorflow as tf

    root = type(model).__mro__[-2].__module__.split(".")[0]
    if root != "tf_keras":
        import keras

        if keras.backend.backend() != "tensorflow":
            raise UsageError(
                f"Keras runs on {keras.backend.backend()} here; set KERAS_BACKEND=tensorflow, or save the model and give the file"
            )
    symbolic = list(getattr(model, "inputs", None) or [])
    if symbolic:
        names = _unique(_input_names(model, symbolic))
        declared = {n: input_specs.spec_of(t) for n, t in zip(names, symbolic, strict=True)}
        found = input_specs.merged(declared, inputs, dynamic)
    else:
        found = _described(model, inputs, dynamic)
    options = {"training": False} if _takes_training(model) else {}
    own_names = getattr(getattr(model, "_functional", None) or model, "output_names", None) or []

    def call(*tensors: Any) -> list[Any]:
        if symbolic:
            result = model(_packed(tensors, getattr(model, "_inputs_struct", None)), **options)
        else:
            args, named = _arguments(model, dict(zip(found, tensors, strict=True)), isinstance(inputs, Mapping))
            result = model(*args, **named, **options)
        outputs[:] = _output_names(result, list(own_names))  # a model that builds itself now is called twice
        return [t for _, t in _flat(result)]

    outputs: list[str] = []
    function = tf.function(call, autograph=False).get_concrete_function(*(s.tensor_spec(_legal(n)) for n, s in found.items()))
    weights = {id(v.value.handle if hasattr(v, "path") else v.handle): getattr(v, "path", v.name) for v in model.variables}
    flat = function.inputs[: len(found)]
    return Traced(
        function.graph, list(zip(found, flat, strict=True)), input_specs.labelled(found, batched=True),
        list(zip(_unique(outputs, found), function.outputs, strict=True)), list(function.graph.captures), weights,
        lambda arrays: list(function(*arrays)), _trainable(function.graph),
    )  # fmt: skip


def _input_names(model: Any, symbolic: Sequence[Any]) -> list[str]:
    """The names by which Keras' users know the inputs: keys of a dict, else the input layers' names."""
    structure = getattr(model, "_inputs_struct", None)
    if isinstance(structure, dict):
        by_id = {id(v): str(k) for k, v in structure.items()}
        return [by_id.get(id(t), t.name) for t in symbolic]
    own = getattr(model, "input_names", None)
    return list(own) if own and len(own) == len(symbolic) else [str(t.name).removesuffix(":0") for t in symbolic]


def _described(model: Any, inputs: Any, dynamic: Any) -> dict[str, Spec]:
    """The inputs of a model without symbolic inputs (a subclass, a layer), as the user gives them or as it was built with."""
    if inputs is None:
        shape = getattr(model, "_build_input_shape", None) or _built_with(model)
        if shape is None:
            raise UsageError(f"the model {model.name!r} does not say the shape of its inputs; give them as inputs=...")
        inputs = {"input": (shape, model.input_dtype if hasattr(model, "input_dtype") else model.compute_dtype)}
    if isinstance(inputs, Mapping):
        names = list(inputs)
    else:
        inputs = [inputs] if input_specs.is_single(inputs) else list(inputs)
        names = unnamed(len(inputs))
    return input_specs.merged(input_specs.given(inputs, names), None, dynamic)


def unnamed(count: int) -> list[str]:
    """The names of inputs that the user gives in order, of a model that has no names for them."""
    return ["input"] if count == 1 else [f"input_{i}" for i in range(count)]


def _arguments(model: Any, tensors: Mapping[str, Any], named: bool) -> tuple[list[Any], dict[str, Any]]:
    """The tensors as the `call` of a model without symbolic inputs takes them: one each, or all in one dict or list."""
    if len(tensors) == 1:
        return list(tensors.values()), {}
    known = parameters(model.call) or {}
    if named:
        return ([], dict(tensors)) if set(tensors) <= set(known) else ([dict(tensors)], {})
    required = [name for name, default in known.items() if default is inspect.Parameter.empty]
    return (list(tensors.values()), {}) if len(required) == len(tensors) else ([list(tensors.values())], {})


def parameters(function: Any) -> dict[str, Any] | None:
    """The names by which a function takes single arguments, with their defaults; None where that is not known."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None
    return {name: p.default for name, p in found.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def _built_with(model: Any) -> Any:
    shapes = getattr(model, "_build_shapes_dict", None)
    found = list(shapes.values())[0] if shapes and len(shapes) == 1 else None
    return found if isinstance(found, (tuple, list)) and all(s is None or isinstance(s, int) for s in found) else None


def _takes_training(model: Any) -> bool:
    known = parameters(model.call)
    return known is not None and ("training" in known or hasattr(model, "inputs"))


def _packed(tensors: Sequence[Any], structure: Any) -> Any:
    """The tensors in the structure that the model takes."""
    if structure is None:
        return tensors[0] if len(tensors) == 1 else list(tensors)
    import keras

    return keras.tree.pack_sequence_as(structure, list(tensors))


def _flat(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors of a structure with the keys that lead to them, dicts in the order of their keys, as tf.nest has it."""
    if isinstance(result, Mapping):
        for key in sorted(result):
            yield from _flat(result[key], f"{path}/{key}" if path else str(key))
    elif isinstance(result, (list, tuple)):
        for i, item in enumerate(result):
            yield from _flat(item, f"{path}/{i}" if path else f"output_{i}")
    elif result is not None:
        yield path or "output_0", result


def _output_names(result: Any, own: list[str]) -> list[str]:
    """Names of the outputs: a dict's keys, else the model's own, else output_0, output_1, ..."""
    flat = [name for name, _ in _flat(result)]
    return own if len(own) == len(flat) and not isinstance(result, Mapping) else flat


def _concrete(function: Any, inputs: Any, dynamic: Any) -> Traced:
    """A ConcreteFunction, traced again where the user gives sizes that it leaves open."""
    import tensorflow as tf

    tensors = [t for t in function.inputs[: len(function.inputs) - len(function.captured_inputs)] if t.dtype != tf.resource]
    args, kwargs = function.structured_input_signature or _flat_signature(tensors)
    flat = tf.nest.flatten((args, kwargs))
    wanted = [s for s in flat if isinstance(s, tf.TensorSpec)]
    if len(wanted) != len(tensors):
        raise UsageError("the function takes what is no tensor (a sparse or ragged one); give one that takes tensors only")
    names = _unique([_input_name(kwargs, s, t) for s, t in zip(wanted, tensors, strict=True)])
    declared = {n: Spec(input_specs.spec_of(s).shape, s.dtype) for n, s in zip(names, wanted, strict=True)}
    found = input_specs.merged(declared, inputs, dynamic)

    def call(*given: Any) -> Any:
        rest = iter(given)
        packed = [next(rest) if isinstance(s, tf.TensorSpec) else s for s in flat]
        a, k = tf.nest.pack_sequence_as((args, kwargs), packed)
        return function(*a, **k)

    own = function
    if any(_fixes(found[n], declared[n]) for n in found):
        own = tf.function(call, autograph=False).get_concrete_function(*(s.tensor_spec(_legal(n)) for n, s in found.items()))
        tensors = own.inputs[: len(found)]
    results = _result_names(function)
    outputs = [t for t in own.outputs if t is not None]
    if not outputs:
        raise UsageError("the function has no outputs; name tensors of its graph: function.prune(feeds=[...], fetches=[...])")
    if len(results) != len(outputs):
        raise UsageError("the function returns what is no tensor (a sparse or ragged one); return tensors only")
    return Traced(
        own.graph, list(zip(names, tensors, strict=True)), input_specs.labelled(found, batched=False),
        list(zip(_unique(results, names), outputs, strict=True)), list(own.graph.captures),
        {id(v.handle): plain_name(v) for v in own.graph.variables},
        lambda arrays: [t for _, t in _flat(call(*arrays))], _trainable(own.graph),
    )  # fmt: skip


def _flat_signature(tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The signature of a function that is a piece of a graph (`prune`, a frozen one): its tensors in order, by their names."""
    import tensorflow as tf

    return tuple(tf.TensorSpec(t.shape, t.dtype, plain_name(t)) for t in tensors), {}


def _result_names(function: Any) -> list[str]:
    """The outputs' names: the keys of a structure, or in a piece of a graph without keys the tensors' own."""
    structure = function.structured_outputs
    if function.structured_input_signature is None and not isinstance(structure, Mapping):
        return [plain_name(t) for t in function.outputs if t is not None]
    return [name for name, _ in _flat(structure)]


def _trainable(graph: Any) -> dict[int, bool]:
    """Whether each variable of a graph is trained, by the id of its handle; a layer that is frozen for now has parameters too."""
    return {id(v.handle): bool(v.trainable) for v in graph.variables}


def _input_name(kwargs: Mapping[str, Any], spec: Any, tensor: Any) -> str:
    """An input's name: its keyword, else the name that its spec has, else its placeholder's."""
    return next((k for k, v in kwargs.items() if v is spec), None) or spec.name or plain_name(tensor)


def _fixes(spec: Spec, own: Spec) -> bool:
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
            raise UsageError("the function does not say the shape of its inputs; give them as inputs=...") from e
    if isinstance(inputs, Mapping):
        found = input_specs.merged(input_specs.given(inputs, list(inputs)), None, dynamic)
        concrete = function.get_concrete_function(**{n: s.tensor_spec(n) for n, s in found.items()})
    else:
        items = [input_specs.spec_of(i) for i in ([inputs] if input_specs.is_single(inputs) else inputs)]
        names = _positional(function, len(items))
        found = input_specs.merged(dict(zip(names, items, strict=True)), None, dynamic)
        concrete = function.get_concrete_function(*(s.tensor_spec(n) for n, s in found.items()))
    return _concrete(concrete, found_inputs(found), None)


def found_inputs(found: Mapping[str, Spec]) -> dict[str, tuple[Any, Any]]:
    """Specs as `inputs`, so that the names of sizes are kept."""
    return {n: (s.shape, s.dtype) for n, s in found.items()}


def _positional(function: Any, count: int) -> list[str]:
    found = inspect.signature(function.python_function).parameters.values()
    names = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = names[1:] if len(names) > count and names[0] == "self" else names
    return (names + [f"input_{i}" for i in range(len(names), count)])[:count]


def _legal(name: str) -> str:
    """A name as TensorFlow allows it for an argument."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _unique(names: Sequence[str], others: Iterable[str] = ()) -> list[str]:
    """Names each once, and none of the others."""
    used = set(others)
    found = []
    for name in names:
        label, n = name, 0
        while label in used:
            n += 1
            label = f"{name}_{n}"
        used.add(label)
        found.append(label)
    return found
