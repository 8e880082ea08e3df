"""Lookup tables, whose contents are constants of the graph that CALL_ONCE runs."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.lookup_tables import Table
from onnxbridge.frontends.tensorflow.ops import tables as tf
from onnxbridge.frontends.tflite.ops import rule


@rule("CALL_ONCE", limits="lookup tables, no variables")
def call_once(op, *, init_subgraph_index, initializes):
    """`initializes` are the operators of the graph that it runs; the contents of tables are read before."""
    if not initializes <= {"HASHTABLE", "HASHTABLE_IMPORT"}:
        raise Unsupported(
            "variables that are initialized when the model is loaded",
            "freeze the variables before the conversion to TensorFlow Lite",
        )
    return ()


@rule("HASHTABLE")
def hashtable(op, *, table_id, key_dtype, value_dtype, contents=None):
    """`contents` are the keys and values with which the file initializes the table."""
    if contents is None:
        raise Unsupported("a lookup table, whose contents are not in the file", "convert the SavedModel")
    return Table(f"table_{table_id}", contents=contents)


@rule("HASHTABLE_FIND")
def hashtable_find(op, table, keys, default_value):
    return tf.lookup_table_find_v2(op, table, keys, default_value)


@rule("HASHTABLE_SIZE")
def hashtable_size(op, table):
    return op.Reshape(tf.lookup_table_size_v2(op, table), [1])
