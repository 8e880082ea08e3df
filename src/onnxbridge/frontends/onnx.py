"""The ONNX frontend: a file, a `ModelProto` or an `onnx_ir.Model` at any opset."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.hub import passes
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.hub.ir import inference, provenance
from onnxbridge.hub.ir.values import dtype_name, shape_text
from onnxbridge.hub.opset import opset_conversion
from onnxbridge.plugin_protocols import Arrays, Frontend, Run
from onnxbridge.runtime.verify.samples.random_inputs import dtype_named

_PLACEHOLDERS = frozenset({"?", "None", "none", "-1", "unk", "unknown", ""})
_EXPORTED = "pkg.torch.export.graph_signature.InputSpec."
KINDS = frozenset({"onnx", "onnx-text", "onnx-json"})


class OnnxFrontend(Frontend):
    """Reads ONNX through the opset adapters into the hub."""

    name = "onnx"
    title = "ONNX"

    def accepts(self, source: Any) -> bool:
        if isinstance(source, (str, os.PathLike)):
            return os.path.exists(source) and detect_format(source) in KINDS
        return isinstance(source, (onnx.ModelProto, ir.Model))

    def to_hub(self, source: Any, inputs: Any, dynamic: Any) -> ir.Model:
        if isinstance(source, ir.Model):
            model = source.clone()
        elif isinstance(source, onnx.ModelProto):
            model = onnx_files.from_proto(source)
        else:
            model = onnx_files.read(source)
        own = model.opset_imports.get("")
        _read_states(model.graph)
        model = opset_conversion.to_hub(passes.inline(model))
        model.meta[opset_conversion.SOURCE_OPSET] = own
        _take_weights_from_inputs(model.graph)
        _forget_placeholders(model.graph)
        _set_shapes(model, inputs)
        try:
            passes.infer(model)
        except inference.Contradiction as e:
            if inputs is None:
                raise UnsafeFileError(f"the model contradicts itself: {e}") from e
            raise UsageError(f"the model does not take inputs of these sizes: {e}") from e
        return model

    def as_written(self, source: Any) -> ir.Model:
        if isinstance(source, ir.Model):
            return source
        return onnx_files.from_proto(source) if isinstance(source, onnx.ModelProto) else onnx_files.read(source)

    def origin(self, source: Any) -> dict[str, str]:
        model = self.as_written(source)
        producer = " ".join(part for part in (model.producer_name, model.producer_version) if part)
        opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in model.opset_imports.items())
        found = {
            "producer": producer, "ir_version": str(model.ir_version), "opsets": opsets, "domain": model.domain,
            "model_version": str(model.model_version or ""), "doc_string": model.doc_string or model.graph.doc_string,
            "graph": model.graph.name,
        }  # fmt: skip
        return {key: value for key, value in found.items() if value}

    def runs_here(self) -> bool:
        return True

    def runner(self, source: Any, device: str = "auto") -> Run:
        from onnxbridge.runtime import devices

        return devices.runner(source, device)

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        """Runs the graph with intermediate values as further outputs, in ceil(log2(n)) + 1 runs of a part of them each."""
        from onnxbridge.runtime import devices

        model = self.to_hub(source, None, None)
        named = [v for node in model.graph for v in node.outputs if v.name and v.type is not None and not v.is_graph_output()]
        outputs = list(model.graph.outputs)
        step = math.ceil(len(named) / math.ceil(math.log2(len(named) + 2)))
        for start in range(0, len(named), step):
            model.graph.outputs[:] = [*outputs, *named[start : start + step]]
            for name, value in devices.runner(model, device)(feeds).items():
                see(name, value)
        return True


def _read_states(graph: ir.Graph) -> None:
    """What torch.onnx writes of initializers: which are parameters, buffers and constants of the exported program."""
    for value in graph.initializers.values():
        kind = value.metadata_props.get(_EXPORTED + "kind", "")
        if value.const_value is None or not kind or provenance.state_of(value.const_value):
            continue
        saved = kind == "BUFFER" and value.metadata_props.get(_EXPORTED + "persistent") != "False"
        provenance.set_state(value.const_value, "parameter" if kind == "PARAMETER" else "buffer" if saved else "constant")


def _take_weights_from_inputs(graph: ir.Graph) -> None:
    """Old files list their weights among the inputs, as defaults; here a weight is a weight."""
    graph.inputs[:] = [v for v in graph.inputs if v.const_value is None]


def _forget_placeholders(graph: ir.Graph) -> None:
    """Dimensions that exporters call "?" or "None" have no name: two of them need not be the same."""
    for value in (*graph.inputs, *graph.outputs, *(o for node in graph.all_nodes() for o in node.outputs)):
        if value.shape is not None and any(getattr(d, "value", None) in _PLACEHOLDERS for d in value.shape):
            value.shape = ir.Shape([None if getattr(d, "value", None) in _PLACEHOLDERS else d for d in value.shape])


def _set_shapes(model: ir.Model, inputs: Any) -> None:
    """Give the graph's inputs the shapes that the user states; a fixed size that the model declares cannot be changed."""
    if not isinstance(inputs, Mapping):
        if inputs is not None:
            inputs = dict(zip((v.name for v in model.graph.inputs), inputs, strict=False))
        else:
            return
    by_name = {v.name: v for v in model.graph.inputs}
    for name, given in inputs.items():
        if name not in by_name:
            raise UsageError(f"the model has no input {name!r}; it has {', '.join(map(str, by_name))}")
        described = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str)
        shape = given[0] if described else np.shape(given)
        value = by_name[name]
        dtype = dtype_named(given[1]) if described else None
        if dtype is not None and value.dtype is not None and dtype != value.dtype:
            raise UsageError(f"the input {name!r} is {dtype_name(value.dtype)}, not {given[1]}")
        if value.shape is not None:
            if len(value.shape) != len(shape):
                raise UsageError(f"the input {name!r} has {len(value.shape)} dimensions, {list(shape)} has {len(shape)}")
            for declared, wanted in zip(value.shape, shape, strict=True):
                if isinstance(declared, int) and isinstance(wanted, int) and declared != wanted:
                    raise UsageError(f"the input {name!r} has the shape {shape_text(value.shape)}; {list(shape)} does not fit")
        value.shape = ir.Shape(list(shape))


frontend = OnnxFrontend()
