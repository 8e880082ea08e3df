"""Every rule of the TensorFlow frontend on samples, compared in ONNX Runtime with TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from onnxbridge.frontends.tensorflow.ops import rule
from tests.frontends.tensorflow import (  # noqa: F401  they add to SAMPLES
    cases_gradients,
    cases_images,
    cases_layers,
    cases_numbers,
    cases_random,
    cases_rows,
    cases_runtime_values,
    cases_small,
    cases_text,
)
from tests.frontends.tensorflow.compare import agree
from tests.frontends.tensorflow.samples import SAMPLES, Input, Sample

# operators with separate tests, in this or another file
TESTED_ELSEWHERE = {"ResourceGather", "ResourceGatherNd", "If", "Case", "While", "StatelessRandomGetAlg"}
TESTED_ELSEWHERE |= {"RaggedTensorToVariant", "RaggedTensorFromVariant"}  # test_ragged.py
TESTED_ELSEWHERE |= {"Dequantize", "QuantizeV2"}  # test_quantized_types.py
TESTED_ELSEWHERE |= {"StringStrip", "StringLength", "Substr"}  # of onnxruntime-extensions: test_text.py
TESTED_ELSEWHERE |= {o for o in rule if "TensorList" in o or "TensorArray" in o or "LookupTable" in o or rule[o].kind == "random"}


def operator(name: str):
    """An operator of tf.raw_ops, or one of XLA's, which are elsewhere and in lower case."""
    if not name.startswith("Xla"):
        return getattr(tf.raw_ops, name)
    return getattr(gen_xla_ops, "".join(f"_{c.lower()}" if c.isupper() else c for c in name).strip("_"))


def _function(sample: Sample):
    fed: list[Input] = []

    def assign(arg):
        if isinstance(arg, Input):
            fed.append(arg)
            return len(fed) - 1, None
        if isinstance(arg, list) and arg and isinstance(arg[0], Input):
            return None, [assign(a) for a in arg]
        return None, arg

    assigned = {name: assign(arg) for name, arg in sample.args.items()}

    def pick(item, tensors):
        index, rest = item
        if index is not None:
            return tensors[index]
        return [pick(r, tensors) for r in rest] if isinstance(rest, list) and rest and isinstance(rest[0], tuple) else rest

    def call(*tensors):
        made = operator(sample.op)(**{name: pick(item, tensors) for name, item in assigned.items()})
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        return made if sample.outputs is None else [made[i] for i in sample.outputs]

    specs = [
        tf.TensorSpec([None if i in f.dynamic else s for i, s in enumerate(f.value.shape)], f.value.dtype, name=f"x{n}")
        for n, f in enumerate(fed)
    ]
    feeds = {f"x{n}": _as_fed(f.value) for n, f in enumerate(fed)}
    return tf.function(call, autograph=False).get_concrete_function(*specs), feeds


def _as_fed(value):
    """A complex array as the hub takes it: real and imaginary parts along a last axis."""
    return np.stack([value.real, value.imag], axis=-1) if np.iscomplexobj(value) else value


def _rule_name(sample: Sample):
    values = [v for a in sample.args.values() for v in (a if isinstance(a, list) else [a])]
    arrays = [v.value for v in values if isinstance(v, Input)]
    is_complex = any(map(np.iscomplexobj, arrays)) or any(isinstance(v, str) and v.startswith("complex") for v in values)
    return f"complex::{sample.op}" if is_complex or sample.op == "Complex" or sample.op.startswith("RFFT") else sample.op


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.op}-{s.label or SAMPLES.index(s)}")
def test_operator(sample):
    function, feeds = _function(sample)
    try:
        agree(function, None, feeds)
    except tf.errors.UnimplementedError as error:
        if "does not support dilations" not in str(error):
            raise
        pytest.skip("TensorFlow's convolution of this processor takes no dilations")


def test_every_rule_has_a_sample():
    assert sorted(set(rule) - {_rule_name(s) for s in SAMPLES} - TESTED_ELSEWHERE) == []


def test_resource_gather():
    table = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def lookup(x):
        return table.sparse_read(x), table.gather_nd(x[:, None])

    model = agree(lookup, None, {"x": np.array([3, 0, 1], np.int32)})
    assert "table" in model.graph.initializers
