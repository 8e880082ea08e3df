"""The executor as an `onnx.backend.base.Backend`.

Example::

    import onnxbridge.runtime.backend as backend
    y, = backend.prepare(model).run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.runtime.executor.executor import Executor


class ExecutorRep(BackendRep):
    """A prepared model."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model. Inputs are a sequence in the order of the graph inputs, or a mapping by name. Returns a namedtuple."""
        if not isinstance(inputs, Mapping):
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            inputs = dict(zip(self._executor.input_names, values, strict=False))
        names = self._executor.output_names
        outputs: tuple[Any, ...] = namedtupledict("Outputs", names)(*self._executor.run(None, inputs))
        return outputs


class ExecutorBackend(Backend):
    """Runs models with onnxbridge's executor, on the CPU."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the executor supports every operator of the model."""
        if not cls.supports_device(device):
            return False
        try:
            Executor(model)
        except ConversionError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> ExecutorRep:
        """Check and compile a model. Keywords are passed to `Executor`.

        Raises:
            UsageError: for a device other than the CPU.
            ConversionError: naming every unsupported operator.
        """
        if not cls.supports_device(device):
            raise UsageError(f"the executor supports only the CPU, not device {device!r}")
        super().prepare(model, device)
        return ExecutorRep(Executor(model, **kwargs))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Run a model once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node at `opset_version`, by default the newest opset. `inputs` has no entries for omitted inputs."""
        if not cls.supports_device(device):
            raise UsageError(f"the executor supports only the CPU, not device {device!r}")
        names = [name for name in node.input if name]
        values = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        graph = onnx.helper.make_graph(
            [node],
            node.op_type,
            [onnx.helper.make_value_info(name, _type_of(values[name])) for name in names],
            [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        domains = [onnx.helper.make_opsetid("", version)]
        if node.domain not in ("", "ai.onnx"):
            domains.append(onnx.helper.make_opsetid(node.domain, 1 if node.domain != "ai.onnx.ml" else 5))
        model = onnx.helper.make_model(graph, opset_imports=domains)
        return ExecutorRep(Executor(model)).run(values)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device string such as "CPU" or "CUDA:1" names the CPU."""
        try:
            return bool(Device(device).type == DeviceType.CPU)
        except (AttributeError, ValueError):
            return False


def _type_of(value: Any) -> onnx.TypeProto:
    """The ONNX type of an input value."""
    if isinstance(value, list):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0])) if value else onnx.TypeProto()
    array = np.asarray(value)
    elem_type = onnx.TensorProto.STRING if array.dtype.kind in "OUS" else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(elem_type, array.shape)


prepare = ExecutorBackend.prepare
run_model = ExecutorBackend.run_model
run_node = ExecutorBackend.run_node
supports_device = ExecutorBackend.supports_device
is_compatible = ExecutorBackend.is_compatible
