"""Lookup tables, whose contents are read when converting."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.values import cast, rank

D = ir.DataType


def _indices(op, keys, table_keys):
    """The index of each key among those of the table, -1 for others."""
    if keys.dtype == D.STRING:
        names = {"keys_strings": table_keys.tolist()}
    elif keys.dtype.is_integer():
        keys, names = cast(op, keys, D.INT64), {"keys_int64s": table_keys.tolist()}
    else:
        raise Unsupported(f"a table with keys of {keys.dtype.name.lower()}")
    numbers = list(range(len(table_keys)))
    return op.call("LabelEncoder", keys, domain="ai.onnx.ml", values_int64s=numbers, default_int64=-1, **names)


@rule("LookupTableFindV2", "LookupTableFind")
def lookup_table_find_v2(op, table_handle, keys, default_value):
    """Keys that the table does not have get the default value, which may be a row for values that are rows."""
    table_keys, table_values = table_handle.items(keys.dtype, default_value.dtype)
    if not len(table_keys):
        return op.Expand(default_value, op.Concat(op.Shape(keys), op.Shape(default_value), axis=0))
    index = _indices(op, keys, table_keys)
    missing = op.Less(index, np.int64(0))
    values = op.constant(table_values, f"{table_handle.name}.values")
    found = op.Gather(values, op.Where(missing, np.int64(0), index), axis=0)
    row = rank(values) - 1
    return op.Where(op.Unsqueeze(missing, [-1] * row) if row == 1 else missing, default_value, found)


@rule("LookupTableSizeV2", "LookupTableSize")
def lookup_table_size_v2(op, table_handle):
    return op.constant(np.int64(table_handle.size()))


@rule("LookupTableExportV2", "LookupTableExport")
def lookup_table_export_v2(op, table_handle, *, Tkeys, Tvalues):
    return tuple(op.constant(a) for a in table_handle.items(Tkeys, Tvalues))
