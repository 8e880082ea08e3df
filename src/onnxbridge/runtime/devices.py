"""ONNX Runtime sessions by device; model files are read and checked by onnxbridge, never by ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxbridge.errors import ConversionError, Problem, UsageError
from onnxbridge.plugin_protocols import NamedRun, Run
from onnxbridge.runtime import onnx_extensions
from onnxbridge.runtime.requested_threads import requested_threads

PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
# The order of preference for `auto`: fastest first, float32 only. TensorRT and Core ML are used only when named, because they
# take minutes to compile or compute in lower precision.
_AUTO = ("cuda", "rocm", "directml", "cpu")
# Pad_Fusion folds a zero Pad into a MaxPool, which pads with -inf; EliminateDropout removes Dropout also if its training_mode is
# true (onnxruntime 1.31).
_DISABLED_OPTIMIZERS = ["Pad_Fusion", "EliminateDropout"]
# MatMulScaleFusion stores the scale in float32 also for float64 matrices.
_DISABLED_FOR_FLOAT64 = ["MatMulScaleFusion"]
# The newest IR version that this ONNX Runtime loads; onnx's helpers may write newer ones by default.
_MAX_IR_VERSION = 13
_FULL_PRECISION: dict[str, Mapping[str, Any]] = {
    "CUDAExecutionProvider": {"use_tf32": 0}, "OpenVINOExecutionProvider": {"precision": "ACCURACY"},
}  # fmt: skip
"""Options of providers that would compute float32 in a lower precision by default."""
BIG = 1 << 30
"""Models with so many bytes of weights run without copies of them, which takes longer for each run and less to start."""
# The batch is split among threads, and each thread computes quantization parameters of its own.
_THREAD_DEPENDENT = frozenset({"DynamicQuantizeLSTM"})


def devices() -> list[str]:
    """The devices for which this onnxruntime has an execution provider."""
    available = onnxruntime.get_available_providers()
    return [device for device, provider in PROVIDERS.items() if provider in available]


def providers(device: str = "auto") -> list[str]:
    """The execution providers for a device; the CPU provider, which supports every operator, is last.

    Raises:
        UsageError: if the device is unknown or this onnxruntime has no provider for it.
    """
    available = onnxruntime.get_available_providers()
    if device == "auto":
        device = next(d for d in _AUTO if PROVIDERS[d] in available)
    if device not in PROVIDERS:
        raise UsageError(f"unknown device {device!r}; choose from auto, {', '.join(PROVIDERS)}")
    if PROVIDERS[device] not in available:
        raise UsageError(f"this onnxruntime has no execution provider for {device!r}, only for {', '.join(devices())}")
    return list(dict.fromkeys([PROVIDERS[device], PROVIDERS["cpu"]]))


def of_reference(device: str) -> str:
    """The device of the model that is compared with: a device that is named is that of the other model only."""
    return device if device in ("auto", "cpu") else "cpu"


class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
    """A session that keeps a reference to the arrays of its weights."""

    weights: tuple[np.ndarray[Any, Any], ...] = ()


def session(
    model: Any, device: str = "auto", threads: int | None = None, provider_options: Mapping[str, Any] | None = None, *,
    exact_qdq: bool = False,
) -> Session:  # fmt: skip
    """Create an ONNX Runtime session for a path, an `onnx.ModelProto`, bytes or an `onnx_ir.Model`.

    Paths are read and checked by onnxbridge, so that files with external data outside of their folder are rejected. Large weights
    are passed to the session by reference, without a copy or a size limit.

    Args:
        threads: number of intra-op threads. The default is 1 for models whose results depend on it, else ONNX Runtime's.
        provider_options: options of the device's provider, for example {"device_id": 1}.
        exact_qdq: compute between DequantizeLinear and QuantizeLinear in floating point, as the model specifies. The faster
            integer kernels that ONNX Runtime would use may differ by one quantization step.

    Raises:
        UsageError: if there is no provider for the device, or the provider of a device that is not "auto" fails to start.
    """
    from onnxbridge.hub.io import onnx_files

    if not isinstance(model, (bytes, onnx.ModelProto, ir.Model)):
        model = onnx_files.read(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised, the log would repeat them
    # Compute MatMulNBits in float32, as the model specifies, instead of int8, ONNX Runtime's default.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if exact_qdq:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if threads is None:
        threads = 1 if _depends_on_threads(model) else requested_threads()
    if threads is not None:
        options.intra_op_num_threads = threads
    onnx_extensions.register(options, model)
    chosen = providers(device)
    if device not in ("auto", "cpu"):
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    disabled = _DISABLED_OPTIMIZERS + (_DISABLED_FOR_FLOAT64 if _has_float64(model) else [])
    options_per_provider = [{k: str(v) for k, v in (provider_options or {}).items()}, {}][: len(chosen)]

    def create(message: bytes, exact_products: bool) -> Session:
        # Without it, processors without VNNI stop sums of two products of uint8 and int8 at 16 bits.
        options.add_session_config_entry("session.x64quantprecision", str(int(exact_products)))
        return Session(message, options, providers=chosen, provider_options=options_per_provider, disabled_optimizers=disabled)

    def start(message: bytes) -> Session:
        try:
            started = create(message, exact_products=True)
        except Exception as error:
            if "AddInitializedOrtValue" not in str(error):
                raise
            started = create(message, exact_products=False)  # onnxruntime 1.31 fails if two layers share a zero point
        if device != "auto" and chosen[0] not in started.get_providers():  # ONNX Runtime falls back to the CPU silently
            raise UsageError(
                f"{chosen[0]} failed to start, so device {device!r} is not available; check that its driver and libraries match "
                "this onnxruntime, or use device 'cpu'"
            )
        return started

    if isinstance(model, bytes):
        return start(model)
    if isinstance(model, onnx.ModelProto) and model.ByteSize() < 1 << 30:
        return start(model.SerializeToString())
    if isinstance(model, onnx.ModelProto):
        model = onnx_files.from_proto(model, keep_maps=True)
    big = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None) >= BIG
    folder = onnx_files.folder_of_weights(model) if big else None
    message, large = onnx_files.without_weights(model, folder)
    numpy_weights = {name: t for name, t in large.items() if t.dtype.numpy().kind in "biuf"}
    if len(numpy_weights) < len(large):  # ONNX Runtime takes no NumPy arrays of bfloat16 and other extension dtypes
        return start(onnx_files.to_proto(model).SerializeToString())
    # ONNX Runtime drops weights that no node reads, and then refuses arrays for them.
    used = {v.name for v in model.graph.initializers.values() if v.uses() or v.is_graph_output()}
    arrays = {name: np.ascontiguousarray(t.numpy()) for name, t in numpy_weights.items() if name in used}
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    options.add_external_initializers(list(values), list(values.values()))
    if big:  # no copies of the weights: each kernel would keep one in its own layout, and the session one of arrays in memory
        options.add_session_config_entry("session.disable_prepacking", "1")
        for name, value in values.items():
            options.add_initializer(name, value)
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    started = start(message)
    started.weights = tuple(arrays.values())
    return started


def _executor(model: ir.Model | onnx.ModelProto, reason: str) -> NamedRun:
    """Runs a model on onnxbridge's executor in place of ONNX Runtime, which reports say with the reason."""
    from onnxbridge.runtime.executor.executor import Executor

    executor = Executor(model)

    def run(feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        supplied = {name: feeds[name] for name in executor.input_names if name in feeds}
        return dict(zip(executor.output_names, executor.run(None, supplied), strict=True))

    return NamedRun(run, f"onnxbridge's executor, since {reason}")


def runner(model: Any, device: str = "auto") -> Run:
    """A function from feeds to outputs that runs a model, as `session` accepts it, on ONNX Runtime.

    If ONNX Runtime does not support an operator, a dtype or the opset of the model, it runs on onnxbridge's executor.
    """
    from onnxbridge.hub.io import onnx_files
    from onnxbridge.hub.ir.inference import dtype_of
    from onnxbridge.hub.ir.opset_version import OPSET

    if not isinstance(model, (ir.Model, onnx.ModelProto)):
        model = onnx_files.read(model)
    elif isinstance(model, onnx.ModelProto) and model.ir_version > _MAX_IR_VERSION:
        model = onnx_files.from_proto(model, keep_maps=True)  # is serialized at the IR version that it needs
    opset = _opset(model)
    if opset > OPSET and device == "auto":
        return _executor(model, f"ONNX Runtime does not support opset {opset}")
    reason = _not_in_python(_input_output_dtypes(model))
    if not reason and "Bernoulli" in _operators(model):  # its function of the standard compares the wrong way
        reason = "ONNX Runtime's Bernoulli draws 1 with the probability of 0"
    if reason and device == "auto":
        return _executor(model, reason)
    try:
        started = session(model, device, provider_options=_FULL_PRECISION.get(providers(device)[0]), exact_qdq=True)
    except _FailError as e:
        match = _UNKNOWN_OPERATOR.search(str(e))
        if match is None:
            raise
        return _decomposed(model, f"{match[1]}::{match[2]}")
    except _NotImplementedError as e:
        match = _NO_KERNEL.search(str(e))
        if match is None or device != "auto":
            raise
        return _executor(model, f"ONNX Runtime has no kernel for {match[1]} of this version with these dtypes")
    inferred = [dtype_of(v.type) for v in started.get_outputs()]  # a model need not declare them
    reason = _not_in_python(d for d in inferred if d is not None)
    if reason and device == "auto":
        return _executor(model, reason)
    if device in ("auto", "cpu"):
        return lambda feeds: run(started, feeds)
    engine, weak = _placed(started, device)
    return NamedRun(lambda feeds: run(started, feeds), engine, weak)


def _opset(model: ir.Model | onnx.ModelProto) -> int:
    """The version of the standard's operators that a model imports; 0 for none."""
    if isinstance(model, ir.Model):
        return model.opset_imports.get("", 0)
    return max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)


def _placed(started: Session, device: str) -> tuple[str, str]:
    """The device with what ONNX Runtime left to the CPU, and why a comparison proves nothing, if that is all."""
    if not hasattr(started, "get_provider_graph_assignment_info"):  # before 1.24
        return device, ""
    on_cpu: list[str] = []
    count = 0
    for part in started.get_provider_graph_assignment_info():
        nodes = part.get_nodes()
        count += len(nodes)
        if part.ep_name == PROVIDERS["cpu"]:
            on_cpu += [n.op_type for n in nodes]
    if not on_cpu:
        return device, ""
    names = ", ".join(sorted(set(on_cpu))[:6])
    if len(on_cpu) == count:
        return "cpu", f"{device} computes none of its {count} nodes ({names}), so that all were computed on the CPU"
    return f"{device}, and {len(on_cpu)} of {count} nodes on the CPU: {names}", ""


def unsupported(model: ir.Model) -> list[Problem]:
    """The operators for which `runner` refuses a model: those that neither ONNX Runtime nor onnxbridge's executor supports.

    Neither the model nor a part of it is run.
    """
    known = {(s.domain, s.name) for s in onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()}
    known |= {(domain, name) for domain, name, _ in model.functions}
    extensions = {onnx_extensions.DOMAIN} if onnx_extensions.is_installed() else set()
    nodes = ((n.domain, n.op_type) for n in model.graph.all_nodes() if n.domain not in extensions)
    unknown = next((n for n in nodes if n not in known), None)
    if unknown is None:
        return []
    try:
        _decomposed(model, "::".join(unknown))
    except ConversionError as e:
        return e.problems
    return []


def _not_in_python(dtypes: Iterable[ir.DataType]) -> str:
    """What to say of dtypes that ONNX Runtime's Python API does not support; empty if there are none."""
    names = sorted({d.name.lower() for d in dtypes if d != ir.DataType.STRING and d.numpy().isbuiltin == 2})
    return f"ONNX Runtime's Python API does not support {', '.join(names)}" if names else ""


def _input_output_dtypes(model: ir.Model | onnx.ModelProto) -> list[ir.DataType]:
    """The dtypes of the inputs and outputs of a model."""
    if isinstance(model, ir.Model):
        return [v.dtype for v in (*model.graph.inputs, *model.graph.outputs) if v.dtype is not None]
    types = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    return [ir.DataType(t) for t in types if t]


def _has_float64(model: Any) -> bool:
    """Whether a model has float64 inputs, outputs or initializers; False for a model as bytes."""
    if isinstance(model, onnx.ModelProto):
        return any(
            t.data_type == onnx.TensorProto.DOUBLE for t in model.graph.initializer
        ) or ir.DataType.DOUBLE in _input_output_dtypes(model)
    if isinstance(model, ir.Model):
        initializers = [v.dtype for v in model.graph.initializers.values()]
        return ir.DataType.DOUBLE in (*initializers, *_input_output_dtypes(model))
    return False


def _decomposed(model: ir.Model | onnx.ModelProto, name: str) -> NamedRun:
    """Runs a model with an operator unknown to ONNX Runtime on onnxbridge's executor, by decomposition.

    Raises:
        ConversionError: if the executor does not support it either.
    """
    try:
        return _executor(model, f"ONNX Runtime does not support {name}")
    except ConversionError as e:
        hint = (
            "define a decomposition into standard operators in a module for --import MODULE, registered with "
            '@decompose("{}"); or write ONNX without running it: --no-verify'
        )
        reason = "not supported by ONNX Runtime or onnxbridge's executor"
        extensions = f"{onnx_extensions.DOMAIN}::"
        install = "pip install onnxruntime-extensions, which runs it; or write ONNX without running it: --no-verify"
        problems = [
            Problem(p.op, reason, install if p.op.startswith(extensions) else hint.format(p.op), p.locations)
            for p in e.problems
        ]
        raise ConversionError("ONNX", problems) from e


_FailError = onnxruntime.capi.onnxruntime_pybind11_state.Fail
_UNKNOWN_OPERATOR = re.compile(r"([\w.]+):(\w+)\(-?\d+\) is not a registered function/op")
_NotImplementedError = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
_NO_KERNEL = re.compile(r"(?:Could not find an implementation|Failed to find kernel) for (\w+)")


def _depends_on_threads(model: Any) -> bool:
    """Whether the model has an operator for which each thread of ONNX Runtime computes its own quantization parameters."""
    return not _THREAD_DEPENDENT.isdisjoint(_operators(model))


def _operators(model: Any) -> Iterator[str]:
    """The types of the model's operators, those of its functions and subgraphs included; none of bytes."""
    if isinstance(model, ir.Model):
        yield from (node.op_type for node in model.graph.all_nodes())
        for function in model.functions.values():
            yield from (node.op_type for node in function.all_nodes())
    elif isinstance(model, onnx.ModelProto):
        parts = [model.graph.node, *(function.node for function in model.functions)]
        while parts:
            for node in parts.pop():
                yield node.op_type
                parts += [graph.node for a in node.attribute for graph in (a.g, *a.graphs) if graph.node]


def run(started: onnxruntime.InferenceSession, feeds: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Run a session. Returns the outputs by name, in order; feeds that are not inputs of the session are ignored."""
    names = [o.name for o in started.get_outputs()]
    selected = {i.name for i in started.get_inputs()}
    return dict(zip(names, started.run(None, {k: v for k, v in feeds.items() if k in selected}), strict=True))
