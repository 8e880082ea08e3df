"""ONNX's own test cases of operators, which come with the onnx package, rebuilt in another framework."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

_RANDOM = ("bernoulli", "random", "training_dropout", "multinomial")
_PLAIN = frozenset({"float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool"})


@dataclass
class Case:
    """A model with inputs and the outputs that the specification has."""

    model: onnx.ModelProto
    inputs: list
    expected: list


def prepare(folder: Path, match: str):
    """Write the cases on tensors of the usual dtypes that have `match` in their names; returns the names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = {c.name: c for c in collect_testcases(None)}
    names = []
    for name, case in sorted(found.items()):
        if match not in name:
            continue
        inputs, outputs = ([_array(x) for x in side] for side in case.data_sets[0])
        if any(word in name for word in _RANDOM) or any(a is None or a.dtype.name not in _PLAIN for a in (*inputs, *outputs)):
            continue
        onnx.save(case.model, folder / f"{name}.onnx")
        np.savez(folder / f"{name}.npz", *inputs, **{f"out{i}": a for i, a in enumerate(outputs)})
        names.append(name)
    return names


def _array(x):
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else None


def case(name, folder):
    with np.load(Path(folder) / f"{name}.npz") as arrays:
        inputs = [arrays[f"arr_{i}"] for i in range(sum(k.startswith("arr_") for k in arrays))]
        outputs = [arrays[f"out{i}"] for i in range(sum(k.startswith("out") for k in arrays))]
    return Case(onnx.load(str(Path(folder) / f"{name}.onnx")), inputs, outputs)


def _in_torch(module):
    import torch

    def run(inputs):
        with torch.no_grad():
            found = module.eval()(*[torch.from_numpy(np.array(x)) for x in inputs])
        return [np.asarray(y) for y in (found if isinstance(found, (tuple, list)) else [found])]

    return run


def onnxbridge_to_pytorch(one):
    import onnxbridge

    return _in_torch(onnxbridge.convert(one.model, to="pytorch", verify=False).model)


def onnx2torch(one):
    import onnx2torch

    return _in_torch(onnx2torch.convert(one.model))


def onnxbridge_to_tensorflow(one):
    import tensorflow as tf

    import onnxbridge

    model = onnxbridge.convert(one.model, to="tensorflow", verify=False).model

    def run(inputs):
        found = model(*[tf.constant(x) for x in inputs])
        return [np.asarray(y) for y in (found if isinstance(found, (tuple, list)) else [found])]

    return run


def onnx2tf(one):
    """With the options that give it its best result: inputs in ONNX's layout, and outputs turned back to the declared one."""
    import tensorflow as tf
    from onnx2tf import convert

    names = [i.name for i in one.model.graph.input]
    keras_model = convert(
        onnx_graph=one.model, output_folder_path=tempfile.mkdtemp(), keep_shape_absolutely_input_names=names or None,
        not_use_onnxsim=True, disable_strict_mode=True, disable_model_save=True, non_verbose=True, verbosity="error",
    )  # fmt: skip
    declared = [[d.dim_value for d in o.type.tensor_type.shape.dim] for o in one.model.graph.output]

    def run(inputs):
        given = dict(zip([_keras_name(n) for n in names], inputs, strict=False))
        ordered = [tf.constant(given[t.name.split(":")[0]]) for t in keras_model.inputs]
        found = keras_model(ordered if len(ordered) != 1 else ordered[0])
        found = list(found.values()) if isinstance(found, dict) else found if isinstance(found, (tuple, list)) else [found]
        return [_turned_back(np.asarray(y), shape) for y, shape in zip(found, declared, strict=False)]

    return run


def _keras_name(name):
    return name.replace(":", "__").replace("/", "_").strip("_")


def _turned_back(y, shape):
    """An output in the declared layout, if only its channels are last."""
    order = [0, y.ndim - 1, *range(1, y.ndim - 1)]
    if y.ndim == len(shape) >= 3 and list(y.shape) != shape and [y.shape[i] for i in order] == shape:
        return y.transpose(order)
    return y


ENGINES = {
    "onnxbridge-pytorch": onnxbridge_to_pytorch, "onnx2torch": onnx2torch, "onnxbridge-tensorflow": onnxbridge_to_tensorflow,
    "onnx2tf": onnx2tf,
}  # fmt: skip
