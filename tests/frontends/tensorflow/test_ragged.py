"""Functions of ragged tensors, which are verified on valid parts of them."""

import numpy as np
import pytest

import onnxbridge
from onnxbridge.errors import ConversionError
from tests.frontends.tensorflow.compare import agree

tf = pytest.importorskip("tensorflow")
Ragged, Spec = tf.RaggedTensor, tf.TensorSpec
VALUES, INTS = Spec([None, 3], name="values"), Spec([None], tf.int32, name="rows")
FUNCTIONS = {
    "splits": lambda v, s: Ragged.from_row_splits(v, s, validate=False).to_tensor(),
    "checked splits": lambda v, s: Ragged.from_row_splits(v, s).to_tensor(),
    "row ids": lambda v, s: Ragged.from_value_rowids(v, s, validate=False).to_tensor(),
    "lengths": lambda v, s: Ragged.from_row_lengths(v, s, validate=False).to_tensor(),
    "sums": lambda v, s: tf.reduce_sum(Ragged.from_row_splits(v, s, validate=False), 1),
    "checked lengths": lambda v, s: tf.reduce_max(Ragged.from_row_lengths(v, s), 1),
    "gather": lambda v, s: tf.gather(Ragged.from_row_splits(v, s, validate=False), [1, 0]).flat_values,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts_of_ragged_tensors(name):
    report = onnxbridge.convert(tf.function(FUNCTIONS[name], input_signature=[VALUES, INTS]), "onnx").report
    assert report.agrees
    for feed in report.feeds:
        rows, count = feed["rows"], len(feed["values"])
        if "lengths" in name:
            assert rows.sum() == count
        elif name != "row ids":
            assert rows[0] == 0 and rows[-1] == count


def test_nested_row_splits():
    def nested(values, outer, inner):
        return Ragged.from_nested_row_splits(values, [outer, inner], validate=False).to_tensor()

    specs = [VALUES, Spec([None], tf.int64), Spec([None], tf.int64)]
    assert onnxbridge.convert(tf.function(nested, input_signature=specs), "onnx").report.agrees


@pytest.mark.parametrize("each", [lambda row: row * row + 1.0, lambda row: row[1:], lambda row: tf.concat([row, row], 0)])
@pytest.mark.parametrize("splits", [[0, 2, 2, 5], [0, 5], [0, 0, 5, 5]])
def test_a_function_of_each_row(each, splits):
    @tf.function(input_signature=[VALUES, INTS])
    def mapped(values, rows):
        ragged = tf.map_fn(each, Ragged.from_row_splits(values, rows, validate=False))
        return ragged.row_splits, ragged.flat_values, tf.map_fn(tf.reduce_sum, ragged, fn_output_signature=tf.float32)

    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    agree(mapped, feeds={"values": values, "rows": np.array(splits, np.int32)})


def test_rows_of_rows_are_refused():
    def nested(values, outer, inner):
        ragged = Ragged.from_nested_row_splits(values, [outer, inner], validate=False)
        return tf.map_fn(lambda rows: rows * 2.0, ragged).flat_values

    with pytest.raises(ConversionError, match="2 levels of rows"):
        onnxbridge.convert(tf.function(nested, input_signature=[VALUES, INTS, INTS]), "onnx")


@pytest.mark.parametrize("levels", [1, 2])
def test_ragged_inputs_and_outputs(levels):
    """Each is the values and the row splits of its levels."""

    def call(rows, factor):
        return {"scaled": rows * factor, "padded": rows.to_tensor(), "sums": tf.reduce_sum(rows, -1)}

    signature = [tf.RaggedTensorSpec([None] * (levels + 1), tf.float32), Spec([], name="factor")]
    result = onnxbridge.convert(tf.function(call, input_signature=signature), "onnx")
    splits = ["row_splits"] if levels == 1 else ["row_splits_0", "row_splits_1"]
    assert [i.name for i in result.model.graph.input] == ["rows/values", *(f"rows/{s}" for s in splits), "factor"]
    names = [o.name for o in result.model.graph.output]
    assert {"padded", "scaled/values", *(f"scaled/{s}" for s in splits)} <= set(names)
    assert result.report.agrees
    for feed in result.report.feeds:
        assert feed[f"rows/{splits[-1]}"][-1] == len(feed["rows/values"])


@pytest.mark.parametrize("target", ["pytorch", "tensorflow", "coreml"])
def test_ragged_rows_to_other_frameworks(target):
    @tf.function(input_signature=[tf.TensorSpec([None, None, 3]), tf.TensorSpec([None], tf.int32)])
    def filled(x, lengths):
        return tf.RaggedTensor.from_tensor(x, lengths=lengths).to_tensor()

    assert onnxbridge.convert(filled, to=target, seed=0).report.agrees
