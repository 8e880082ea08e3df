"""Every rule of the TensorFlow Lite frontend on samples, compared in ONNX Runtime with TensorFlow Lite's interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

from onnxbridge.frontends.tflite.ops import rule
from tests.frontends.tflite.build import G, Op, T, model
from tests.frontends.tflite.compare import agree, kinds, saved
from tests.frontends.tflite.samples import SAMPLES, Sample

# operators with tests of their own, in this or another file
TESTED_ELSEWHERE = {
    "BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "CALL_ONCE", "Convolution2DTransposeBias", "DENSIFY",
    "DEQUANTIZE", "DILATE", "HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_SIZE", "IF", "LSTM", "Landmarks2TransformMatrix",
    "MULTINOMIAL", "QUANTIZE", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "REDUCE_WINDOW", "RNN", "STABLEHLO_ADD",
    "STABLEHLO_AND",
    "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_GATHER", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM", "STABLEHLO_MULTIPLY",
    "STABLEHLO_PAD", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_RNG_BIT_GENERATOR", "STABLEHLO_SCATTER", "STABLEHLO_SHIFT_LEFT",
    "SVDF", "TFLite_Detection_PostProcess", "TransformLandmarks", "TransformTensorBilinear", "WHILE", "basic::LSTM",
}  # fmt: skip
# operators whose quantized result must have the parameters of the input
SAME_PARAMETERS = {
    "RELU", "TRANSPOSE", "RESHAPE", "SLICE", "PAD", "MAX_POOL_2D", "AVERAGE_POOL_2D", "CONCATENATION"
}  # fmt: skip


def _file(sample: Sample, quantized: bool) -> tuple[bytes, dict[str, np.ndarray]]:
    inputs = [replace(t, name=f"x{i}") if t is not None else None for i, t in enumerate(sample.inputs)]
    if quantized:
        inputs = [_quantized(t, i, inputs) for i, t in enumerate(inputs)]
    first = next(t for t in inputs if t is not None)
    kinds = sample.outputs or (first.kind,)
    scale = {"scale": sample.out_scale, "zero_point": -7} if quantized else {}
    if quantized and sample.op in SAME_PARAMETERS:
        scale = {"scale": first.scale, "zero_point": first.zero_point}
    elif quantized and sample.out_scale in (1 / 256, 1 / 128):
        scale["zero_point"] = -128 if sample.out_scale == 1 / 256 else 0
    outputs = [T(type=k, name=f"y{i}", **scale) for i, k in enumerate(kinds)]
    fed = [t for t in inputs if t is not None and not t.constant and not t.variable]
    made = Op(sample.op, inputs, outputs, sample.options, sample.values, sample.custom, version=sample.version)
    return model(G(fed, outputs, [made])), {t.name: _fed(np.asarray(t.value)) for t in fed}


def _fed(value: np.ndarray) -> np.ndarray:
    """Complex numbers are fed as real and imaginary parts."""
    return np.stack([value.real, value.imag], axis=-1) if np.iscomplexobj(value) else value


def _quantized(t: T | None, position: int, inputs: list[T | None]) -> T | None:
    """A float tensor in int8, a bias in int32, filters per channel."""
    if t is None or np.asarray(t.value).dtype != np.float32:
        return t
    value = np.asarray(t.value)
    if t.constant and position == 2:  # a bias: its scale is the product of those of input and filter
        scale = inputs[0].scale * np.asarray(inputs[1].scale)
        return replace(t, value=np.round(value / scale).astype(np.int32), scale=scale, axis=0)
    if t.constant:
        axis = value.ndim - 1 if value.shape[0] == 1 else 0
        scale = np.abs(value).max(tuple(i for i in range(value.ndim) if i != axis)) / 127
        along = scale.reshape([-1 if i == axis else 1 for i in range(value.ndim)])
        made = replace(t, value=np.round(value / along).astype(np.int8), scale=scale.astype(np.float32), axis=axis)
    else:
        made = replace(t, value=np.clip(np.round(value / 0.02) + 3, -128, 127).astype(np.int8), scale=0.02, zero_point=3)
    inputs[position] = made
    return made


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.op}-{s.label}" if s.label else s.op)
def test_operator(sample, tmp_path):
    content, feeds = _file(sample, quantized=False)
    agree(saved(tmp_path, content), feeds)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.q], ids=lambda s: f"{s.op}-{s.label}" if s.label else s.op)
def test_quantized_operator(sample, tmp_path):
    content, feeds = _file(sample, quantized=True)
    agree(saved(tmp_path, content), feeds, steps=1)


def test_every_rule_has_a_sample():
    assert set(rule) - {_rule_of(s) for s in SAMPLES} - TESTED_ELSEWHERE == set()


def _rule_of(sample: Sample) -> str:
    kinds = [*sample.outputs, *(t.kind for t in sample.inputs if t is not None)]
    return f"complex::{sample.op}" if "COMPLEX64" in kinds else sample.op


def test_sizes_of_a_spectrogram_of_a_file_are_known(tmp_path):
    """tf.signal.frame splits the shape of its input: in a file, this is SHAPE, SPLIT_V and arithmetic on the parts."""

    @tf.function(input_signature=[tf.TensorSpec([None, 300], tf.float32, name="x")])
    def spectrogram(x):
        return tf.abs(tf.signal.stft(x, 64, 16))

    converter = tf.lite.TFLiteConverter.from_concrete_functions([spectrogram.get_concrete_function()])
    model_of_it = agree(saved(tmp_path, converter.convert()))
    assert list(model_of_it.graph.outputs[0].shape)[1:] == [15, 33]
    assert not {"Shape", "Split", "Range"} & set(kinds(model_of_it))
