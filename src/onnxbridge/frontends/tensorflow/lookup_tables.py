"""Reads the contents of lookup tables when converting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxbridge.frontends.tensorflow.graph import op_schemas

OPERATORS = frozenset({
    "HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensorsV2",
    "MutableDenseHashTableV2",
})  # fmt: skip
_INITIALIZERS = frozenset({"InitializeTable", "InitializeTableV2", "LookupTableImport", "LookupTableImportV2"})
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Table:
    """A lookup table: the handle of a live one, or the keys and values with which a graph initializes it."""

    name: str
    handle: Any = None
    contents: tuple[Array, Array] | None = None

    def size(self) -> int:
        if self.contents is not None:
            return len(self.contents[0])
        import tensorflow as tf

        return int(tf.raw_ops.LookupTableSizeV2(table_handle=self.handle))

    def items(self, keys: Any, values: Any) -> tuple[Array, Array]:
        """Keys, in ascending order, and values of these hub dtypes."""
        found = self.contents
        if found is None:
            import tensorflow as tf

            exported = tf.raw_ops.LookupTableExportV2(
                table_handle=self.handle, Tkeys=_framework_dtype(keys), Tvalues=_framework_dtype(values)
            )
            found = op_schemas.eager_array(exported.keys), op_schemas.eager_array(exported.values)
        order = np.argsort(found[0].reshape(-1), kind="stable")
        return found[0].reshape(-1)[order], found[1][order]


def _framework_dtype(dtype: Any) -> Any:
    import tensorflow as tf

    return {"FLOAT": tf.float32, "DOUBLE": tf.float64}.get(dtype.name) or tf.as_dtype(dtype.name.lower())


def of_operator(op: Any) -> Table:
    """The table that an operator of a graph makes: as the graph initializes it with constants, or the live one of its name."""
    import tensorflow as tf

    for consumer in op.outputs[0].consumers():
        if consumer.type in _INITIALIZERS and all(t.op.type == "Const" for t in consumer.inputs[1:]):
            keys, values = (op_schemas.array(t.op.get_attr("value")) for t in consumer.inputs[1:])
            return Table(op.name, contents=(keys, values))
    named = {k: op.get_attr(k) for k in ("container", "shared_name", "key_dtype", "value_dtype")}
    make = getattr(tf.raw_ops, op.type if op.type.endswith("V2") else f"{op.type}V2")
    return Table(op.name, make(**named))
