"""Functions of the parts of ragged tensors are verified on valid parts."""

import pytest

import onnxbridge

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
