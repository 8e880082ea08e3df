"""Reads a `.tflite` file. It is memory-mapped, and weights are views of the mapping.

The generated classes read from any offset that a file names. Python keeps them inside of the file; here every count, index and
size is checked too, and all errors become `UnsafeFileError`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.tflite.dtypes import NOT_TENSORS, hub_dtype
from onnxbridge.formats.tflite.model import Array, Graph, Model, Operator, Quantization, Signature, Sparsity, Tensor
from onnxbridge.formats.tflite.schema import names, schema, snake_case
from onnxbridge.hub.io.mapped_tensors import MAX_RANK
from onnxbridge.hub.io.safe_files import checked_path, map_file, open_file, quoted

DAMAGED = (struct.error, IndexError, TypeError, ValueError, OverflowError, AttributeError, KeyError, AssertionError)
_MAX_BYTES = 1 << 62
_MAX_TEXT = 1 << 16
Item = TypeVar("Item")

# Options that are enumerations, by the schema's name of the field.
ENUMS = {
    "padding": "Padding", "fused_activation_function": "ActivationFunctionType", "mode": "MirrorPadMode",
    "weights_format": "FullyConnectedOptionsWeightsFormat", "kernel_type": "LSTMKernelType", "combiner": "CombinerType",
    "in_data_type": "TensorType", "out_data_type": "TensorType", "out_type": "TensorType", "output_type": "TensorType",
    "idx_out_type": "TensorType", "quantized_bias_type": "TensorType", "key_dtype": "TensorType", "value_dtype": "TensorType",
    "reduce_function": "ReduceWindowFunction", "comparison_direction": "StablehloComparisonDirection",
    "compare_type": "StablehloComparisonType", "algorithm": "RngAlgorithm",
}  # fmt: skip


def read(path: str | os.PathLike[str]) -> Model:
    """The model in a file.

    Raises:
        UnsafeFileError: for a damaged file.
        MissingFrameworkError: if the generated classes of the schema are not installed.
    """
    return parse(map_file(open_file(checked_path(path))), checked_path(path))


def parse(content: Any, path: str) -> Model:
    """The model in a buffer, which the tensors refer to; `path` is shown in messages."""
    schema()
    if len(content) < 8 or bytes(content[4:8]) != b"TFL3":
        raise UnsafeFileError(f"{path}: is not a TensorFlow Lite model; get the file again.")
    try:
        return _Reader(content, path).model()
    except DAMAGED as error:
        raise UnsafeFileError(f"{path}: is damaged ({type(error).__name__}: {error}); get the file again.") from error


class _Reader:
    """Reads the parts of one file, and counts what it reads: a file cannot list more items than it has bytes."""

    def __init__(self, content: Any, path: str) -> None:
        self._content, self._path = content, path
        self._bytes = np.frombuffer(content, np.uint8)
        self._start = self._bytes.__array_interface__["data"][0]
        self._left = len(content)
        self._root = schema().Model.GetRootAs(content, 0)

    def model(self) -> Model:
        root = self._root
        self._codes = [_code(c) for c in self._items(root.OperatorCodesLength(), root.OperatorCodes)]
        self._buffers = self._items(root.BuffersLength(), root.Buffers)
        graphs = [self._graph(g) for g in self._items(root.SubgraphsLength(), root.Subgraphs)]
        if not graphs:
            raise self._wrong("has no graph")
        signatures = [self._signature(s, graphs) for s in self._items(root.SignatureDefsLength(), root.SignatureDefs)]
        metadata: dict[str, str] = {}
        for entry in self._items(root.MetadataLength(), root.Metadata):
            data, _ = self._data(entry.Buffer())
            if data is not None and len(data) <= _MAX_TEXT:
                text = bytes(data).rstrip(b"\0")
                if text.isascii() and text.decode("ascii").isprintable():
                    metadata[_text(entry.Name())] = text.decode("ascii")
        return Model(self._path, root.Version(), _text(root.Description()), graphs, signatures, metadata)

    def _wrong(self, what: str) -> UnsafeFileError:
        return UnsafeFileError(f"{self._path}: {what}; get the file again.")

    def _count(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise self._wrong("is damaged: it lists more items than it has bytes")
        return count

    def _items(self, length: int, item: Callable[[int], Item]) -> list[Item]:
        return [item(i) for i in range(self._count(length))]

    def _numbers(self, values: Any) -> Array:
        """A vector of numbers, which is 0 where the file has none."""
        array = np.asarray(values).reshape(-1) if not isinstance(values, int) else np.zeros(0, np.int64)
        self._count(len(array))
        return array

    def _indices(self, values: Any, limit: int, what: str, optional: bool = False) -> tuple[int, ...]:
        found = tuple(int(v) for v in self._numbers(values))
        if any(not (-1 if optional else 0) <= v < limit for v in found):
            raise self._wrong(f"refers to {what} that it does not have")
        return found

    def _graph(self, graph: Any) -> Graph:
        tensors = [self._tensor(t) for t in self._items(graph.TensorsLength(), graph.Tensors)]
        return Graph(
            _text(graph.Name()), tensors, self._indices(graph.InputsAsNumpy(), len(tensors), "an input"),
            self._indices(graph.OutputsAsNumpy(), len(tensors), "an output"),
            [self._operator(o, len(tensors)) for o in self._items(graph.OperatorsLength(), graph.Operators)],
        )  # fmt: skip

    def _operator(self, operator: Any, tensors: int) -> Operator:
        index = operator.OpcodeIndex()
        if index >= len(self._codes):
            raise self._wrong("refers to an operator code that it does not have")
        name, is_custom = self._codes[index]
        custom = self._numbers(operator.CustomOptionsAsNumpy()).astype(np.uint8).tobytes()
        if operator.LargeCustomOptionsSize() > 1:
            data = self._region(operator.LargeCustomOptionsOffset(), operator.LargeCustomOptionsSize())
            custom = data[: self._count(len(data))].tobytes()
        return Operator(
            name, self._indices(operator.InputsAsNumpy(), tensors, "a tensor", optional=True),
            self._indices(operator.OutputsAsNumpy(), tensors, "a tensor", optional=True), _options(operator), custom, is_custom,
        )  # fmt: skip

    def _signature(self, signature: Any, graphs: list[Graph]) -> Signature:
        index = signature.SubgraphIndex()
        if index >= len(graphs):
            raise self._wrong("has a signature of a graph that it does not have")
        count = len(graphs[index].tensors)

        def ends(items: list[Any]) -> tuple[tuple[str, int], ...]:
            found = tuple((_text(i.Name()), int(i.TensorIndex())) for i in items)
            if any(not 0 <= t < count for _, t in found):
                raise self._wrong("has a signature of a tensor that it does not have")
            return found

        return Signature(
            _text(signature.SignatureKey()), index, ends(self._items(signature.InputsLength(), signature.Inputs)),
            ends(self._items(signature.OutputsLength(), signature.Outputs)),
        )  # fmt: skip

    def _tensor(self, tensor: Any) -> Tensor:
        name = _text(tensor.Name())
        kind = names("TensorType").get(tensor.Type())
        if kind is None:
            raise self._wrong(f"the tensor {quoted(name)} has the unknown type {tensor.Type()}")
        shape = [int(s) for s in self._numbers(tensor.ShapeAsNumpy())]
        signature = [int(s) for s in self._numbers(tensor.ShapeSignatureAsNumpy())]
        if len(shape) > MAX_RANK or any(s < 0 for s in shape) and not signature:
            raise self._wrong(f"the tensor {quoted(name)} has the shape {shape[: MAX_RANK + 1]}")
        data, offset = self._data(tensor.Buffer())
        sparsity = self._sparsity(tensor.Sparsity(), len(shape))
        if data is not None and sparsity is None:
            self._check_size(name, kind, shape, data)
        own: tuple[int | None, ...] | None = tuple(s if s >= 0 else None for s in shape)
        if len(signature) == len(shape) and data is None or signature and not shape:
            own = tuple(s if s >= 0 else None for s in signature)
        if data is None and not own and not tensor.HasRank():
            own = None  # a scalar and a tensor of unknown rank are written alike
        return Tensor(
            name, kind, own, data, offset, self._quantization(tensor.Quantization(), name, shape), sparsity, tensor.IsVariable()
        )

    def _check_size(self, name: str, kind: str, shape: list[int], data: Array) -> None:
        dtype = hub_dtype(kind)
        if dtype is None or kind in NOT_TENSORS or kind == "STRING":
            return
        count = 1
        for size in shape:
            count *= size
        wanted = (count * dtype.bitwidth + 7) // 8
        if wanted >= _MAX_BYTES or wanted != len(data):
            raise self._wrong(f"the tensor {quoted(name)} declares {shape} of {kind}, {wanted} bytes, but has {len(data)}")

    def _data(self, buffer: int) -> tuple[Array | None, int]:
        """The bytes of a buffer, None for an empty one, and the offset in the file at which they start."""
        if not 0 <= buffer < len(self._buffers):
            raise self._wrong("refers to a buffer that it does not have")
        found = self._buffers[buffer]
        data = found.DataAsNumpy()
        if isinstance(data, int):
            if found.Offset() <= 1:
                return None, 0
            data = self._region(found.Offset(), found.Size())
        if not len(data):
            return None, 0
        return data, int(data.__array_interface__["data"][0] - self._start)

    def _region(self, offset: int, size: int) -> Array:
        """Bytes that stand after the flatbuffer, in files beyond 2 GB."""
        if offset + size > len(self._bytes):
            raise self._wrong(f"refers to bytes up to {offset + size}, but has {len(self._bytes)}")
        return self._bytes[offset : offset + size]

    def _quantization(self, found: Any, name: str, shape: list[int]) -> Quantization | None:
        if found is None:
            return None
        if names("QuantizationDetails").get(found.DetailsType()) == "BlockwiseQuantization":
            return self._blockwise(found, name)
        scale = self._numbers(found.ScaleAsNumpy()).astype(np.float32)
        if not len(scale) or not scale.all():
            return None
        zero_point = self._numbers(found.ZeroPointAsNumpy()).astype(np.int64)
        zero_point = np.zeros(len(scale), np.int64) if not len(zero_point) else zero_point
        axis = int(found.QuantizedDimension())
        if len(zero_point) == 1:
            zero_point = np.repeat(zero_point, len(scale))
        sizes = shape[axis] if 0 <= axis < len(shape) else None
        if len(zero_point) != len(scale) or len(scale) > 1 and len(scale) != sizes:
            raise self._wrong(f"the tensor {quoted(name)} of shape {shape} has {len(scale)} scales along axis {axis}")
        return Quantization(scale, zero_point, axis if len(scale) > 1 else 0)

    def _blockwise(self, found: Any, name: str) -> Quantization:
        """Scales and zero points that are tensors of their own; their indices stand in the place of the numbers."""
        details = schema().BlockwiseQuantization()
        table = found.Details()
        details.Init(table.Bytes, table.Pos)
        if details.BlockSize() <= 0:
            raise self._wrong(f"the tensor {quoted(name)} has blocks of {details.BlockSize()} elements")
        return Quantization(np.array([details.Scales()]), np.array([details.ZeroPoints()]), 0, details.BlockSize())

    def _sparsity(self, found: Any, rank: int) -> Sparsity | None:
        if found is None:
            return None
        order = tuple(int(v) for v in self._numbers(found.TraversalOrderAsNumpy()))
        blocks = tuple(int(v) for v in self._numbers(found.BlockMapAsNumpy()))
        items = self._items(found.DimMetadataLength(), found.DimMetadata)
        if sorted(order) != list(range(rank + len(blocks))) or len(items) != len(order) or any(not 0 <= b < rank for b in blocks):
            raise self._wrong("has a sparse tensor whose dimensions do not match its shape")
        return Sparsity(order, blocks, tuple(self._dimension(d) for d in items))

    def _dimension(self, found: Any) -> int | tuple[Array, Array]:
        if names("DimensionType").get(found.Format()) == "DENSE":
            return int(found.DenseSize())

        def vector(kind: int, table: Any) -> Array:
            made = getattr(schema(), names("SparseIndexVector")[kind])()
            made.Init(table.Bytes, table.Pos)
            return self._numbers(made.ValuesAsNumpy()).astype(np.int64)

        return (
            vector(found.ArraySegmentsType(), found.ArraySegments()), vector(found.ArrayIndicesType(), found.ArrayIndices())
        )  # fmt: skip


def _code(code: Any) -> tuple[str, bool]:
    """The name of an operator, and whether it is custom. Old files have the number in a field of one byte."""
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = names("BuiltinOperator").get(number, f"operator {number}")
    return (_text(code.CustomCode()) or "custom", True) if name == "CUSTOM" else (name, False)


def _options(operator: Any) -> dict[str, Any]:
    """The options of an operator by the schema's names, with enumerations by name."""
    found: dict[str, Any] = {}
    for union, kind, table in (
        ("BuiltinOptions", operator.BuiltinOptionsType(), operator.BuiltinOptions()),
        ("BuiltinOptions2", operator.BuiltinOptions2Type(), operator.BuiltinOptions2()),
    ):
        name = names(union).get(kind, "NONE")
        if name == "NONE" or table is None:
            continue
        made = getattr(schema(), name)()
        made.Init(table.Bytes, table.Pos)
        values = vars(getattr(schema(), f"{name}T").InitFromObj(made))
        found |= {key: _value(key, value) for key, value in ((snake_case(k), v) for k, v in values.items())}
    return found


def _value(key: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return _text(value)
    if key in ENUMS and isinstance(value, int):
        return names(ENUMS[key]).get(value, str(value))
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def _text(value: bytes | None) -> str:
    return (value or b"")[:_MAX_TEXT].decode("utf-8", "replace")
