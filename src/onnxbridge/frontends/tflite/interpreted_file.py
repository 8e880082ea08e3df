"""The file that TensorFlow Lite's interpreter runs for a model: without variables, and with its own operators in place of
MediaPipe's."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError, Unsupported, first_line
from onnxbridge.formats.tflite import read_model
from onnxbridge.formats.tflite.schema import schema
from onnxbridge.frontends.tflite.custom_options import transposed_conv_options
from onnxbridge.frontends.tflite.states import Stateless
from onnxbridge.hub.io.safe_files import open_file

_TRANSPOSED_CONV = "Convolution2DTransposeBias"


def content(found: Stateless) -> bytes | None:
    """The content of the file, None for the model's own file.

    Raises:
        UnsafeFileError: for a damaged file.
    """
    transposed = any(o.name == _TRANSPOSED_CONV for graph in found.model.graphs for o in graph.operators)
    if not found.is_changed and not transposed:
        return None
    import flatbuffers  # type: ignore[import-untyped]  # it has no annotations

    path = found.model.path
    try:
        with os.fdopen(open_file(path), "rb") as file:
            made = schema().ModelT.InitFromPackedBuf(file.read(), 0)
        if found.is_changed:
            _without_variables(made, found)
        if transposed:
            _with_transpose_conv(made)
        builder = flatbuffers.Builder(os.path.getsize(path))
        builder.Finish(made.Pack(builder), file_identifier=b"TFL3")
    except read_model.DAMAGED as error:
        raise UnsafeFileError(f"{path}: is damaged ({first_line(error)}); get the file again.") from error
    return bytes(builder.Output())


def _without_variables(file: Any, found: Stateless) -> None:
    index, signature, variables = found.signature.graph, found.signature, found.variables
    graph, own = file.subgraphs[index], found.model.graphs[index]
    for tensor, (g, i) in found.constants.items():
        graph.tensors[tensor].buffer = file.subgraphs[g].tensors[i].buffer
    graph.operators = [graph.operators[position] for position in found.kept]
    for written, operator in zip(graph.operators, own.operators, strict=True):
        written.inputs = [variables.get(i, i) for i in operator.inputs]
    # variable tensors are not inputs and outputs of the file: their values are set and read as they are
    graph.inputs = [i for i in own.inputs if i not in variables.values()]
    graph.outputs = [i for i in own.outputs if i not in variables]
    for described in file.signatureDefs or ():
        if described.signatureKey == signature.key.encode():
            described.inputs, described.outputs = _named(signature.inputs), _named(signature.outputs)


def _named(ends: Any) -> list[Any]:
    made = []
    for name, index in ends:
        made.append(schema().TensorMapT())
        made[-1].name, made[-1].tensorIndex = name, index
    return made


def _with_transpose_conv(file: Any) -> None:
    """MediaPipe's transposed convolutions as TRANSPOSE_CONV with a bias, whose kernel they are a copy of."""
    s = schema()
    codes = {i for i, c in enumerate(file.operatorCodes) if c.customCode == _TRANSPOSED_CONV.encode()}
    code = s.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = s.BuiltinOperator.TRANSPOSE_CONV
    code.version = 3
    file.operatorCodes.append(code)
    for graph in file.subgraphs:
        for operator in graph.operators:
            sizes = graph.tensors[operator.outputs[0]].shape if operator.opcodeIndex in codes else None
            if sizes is None or len(sizes) != 4 or min(sizes) < 1:
                continue
            try:
                padding, stride_w, stride_h = transposed_conv_options(bytes(operator.customOptions))
            except Unsupported:
                continue
            x, weights, bias = operator.inputs
            operator.inputs = [_constant(file, graph, np.array(sizes, np.int32)), weights, x, bias]
            operator.opcodeIndex, operator.customOptions = len(file.operatorCodes) - 1, None
            options = operator.builtinOptions = s.TransposeConvOptionsT()
            operator.builtinOptionsType = s.BuiltinOptions.TransposeConvOptions
            options.padding, options.strideW, options.strideH = getattr(s.Padding, padding), stride_w, stride_h


def _constant(file: Any, graph: Any, array: Any) -> int:
    buffer, tensor = schema().BufferT(), schema().TensorT()
    buffer.data = array.view(np.uint8)
    file.buffers.append(buffer)
    tensor.shape, tensor.type, tensor.buffer = list(array.shape), schema().TensorType.INT32, len(file.buffers) - 1
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1
