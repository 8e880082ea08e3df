"""ONNX Runtime, with the provider picked for a device, always fed with bytes that we have read and checked ourselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from onnxbridge.errors import ConversionError, Problem, UsageError
from onnxbridge.plugin_protocols import NamedRun, Run

PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
# In the order in which `auto` takes them: the fastest that gives float32 results first. TensorRT and Core ML compile for
# minutes or compute in lower precision, so they are taken only when named.
_AUTO = ("cuda", "rocm", "directml", "cpu")
# This fusion folds a zero Pad into a MaxPool, which pads with -inf: wrong values (onnxruntime 1.31).
# Another takes Dropout away from between two nodes also where its training_mode is true.
_WRONG = ["Pad_Fusion", "EliminateDropout"]
# And one keeps the factor of a product in float32, also between matrices of float64.
_WRONG_IN_DOUBLE = ["MatMulScaleFusion"]
# What onnx's helpers write by default may be newer than what this ONNX Runtime loads.
_NEWEST_IR = 13
# Their rows are shared among the threads, and each thread quantizes its own.
_BY_THREAD = frozenset({"DynamicQuantizeLSTM"})


def devices() -> list[str]:
    """The devices that this onnxruntime has a provider for."""
    there = onnxruntime.get_available_providers()
    return [device for device, provider in PROVIDERS.items() if provider in there]


def providers(device: str = "auto") -> list[str]:
    """The execution providers for a device, the CPU's last, since it has every operator.

    Raises:
        UsageError: for a device that this onnxruntime has no provider for.
    """
    there = onnxruntime.get_available_providers()
    if device == "auto":
        device = next(d for d in _AUTO if PROVIDERS[d] in there)
    if device not in PROVIDERS:
        raise UsageError(f"there is no device {device!r}; known are auto, {', '.join(PROVIDERS)}")
    if PROVIDERS[device] not in there:
        raise UsageError(f"this onnxruntime has no provider for {device!r}, only for {', '.join(devices())}")
    return list(dict.fromkeys([PROVIDERS[device], PROVIDERS["cpu"]]))


class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
    """A session that keeps the arrays that it computes with."""

    weights: tuple[np.ndarray[Any, Any], ...] = ()


def session(
    model: Any, device: str = "auto", threads: int | None = None, provider_options: Mapping[str, Any] | None = None, *,
    as_written: bool = False,
) -> Session:  # fmt: skip
    """An ONNX Runtime session of a path, an `onnx.ModelProto`, bytes or an `onnx_ir.Model`.

    A path is read by onnxbridge first, so a file that reaches outside its folder is refused; the session never opens one. Large
    weights are handed over where they lie in memory, so they are not copied, and may be of any size.

    A model whose results hang on the number of threads is run by one, unless told. `provider_options` are the device's own,
    as {"device_id": 1}. `as_written` computes between quantizing and dequantizing nodes in floating point, as the model says:
    the integer kernels that ONNX Runtime puts in their place, which are faster, are a step off now and then.

    Raises:
        UsageError: for a device without a provider here, or one that was asked for by its name and does not start.
    """
    from onnxbridge.hub.io import onnx_files

    if not isinstance(model, (bytes, onnx.ModelProto, ir.Model)):
        model = onnx_files.read(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised; the log would only repeat them
    # Products with weights in few bits are computed in float32 as the model says, not in 8 bits as it does by default.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if as_written:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if threads is None and _hangs_on_threads(model):
        threads = 1
    if threads is not None:
        options.intra_op_num_threads = threads
    chosen = providers(device)
    wrong = _WRONG + (_WRONG_IN_DOUBLE if _in_double(model) else [])
    own = [{k: str(v) for k, v in (provider_options or {}).items()}, {}][: len(chosen)]

    def start(message: bytes) -> Session:
        started = Session(message, options, providers=chosen, provider_options=own, disabled_optimizers=wrong)
        if device != "auto" and chosen[0] not in started.get_providers():  # it goes on with the CPU and says nothing
            raise UsageError(
                f"{chosen[0]} does not start on this machine, so {device!r} is not there; its libraries and its driver must fit "
                "this onnxruntime. The device 'cpu' is"
            )
        return started

    if isinstance(model, bytes):
        return start(model)
    if isinstance(model, onnx.ModelProto) and model.ByteSize() < 1 << 30:
        return start(model.SerializeToString())
    if isinstance(model, onnx.ModelProto):
        model = onnx_files.from_proto(model, keep_maps=True)
    message, large = onnx_files.detached(model)
    native = {name: t for name, t in large.items() if t.dtype.numpy().kind in "biuf"}
    if len(native) < len(large):  # bfloat16 and its like have no array of their own that ONNX Runtime takes
        return start(onnx_files.to_proto(model).SerializeToString())
    arrays = {name: np.ascontiguousarray(t.numpy()) for name, t in native.items()}
    options.add_external_initializers(list(arrays), [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in arrays.values()])
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
    """What runs a model that `session` takes: ONNX Runtime, or where it lacks a kernel, a way to take or give a dtype, or the
    model's opset, onnxbridge's executor."""
    from onnxbridge.hub.io import onnx_files
    from onnxbridge.hub.ir.opset_version import OPSET

    if not isinstance(model, (ir.Model, onnx.ModelProto)):
        model = onnx_files.read(model)
    elif isinstance(model, onnx.ModelProto) and model.ir_version > _NEWEST_IR:
        model = onnx_files.from_proto(model, keep_maps=True)  # which is written in the IR version that it needs
    if isinstance(model, ir.Model) and model.opset_imports.get("", OPSET) > OPSET and device == "auto":
        return _executor(model, f"ONNX Runtime loads no opset {model.opset_imports['']}")
    foreign = sorted({d.name.lower() for d in _ends(model) if d != ir.DataType.STRING and d.numpy().kind == "V"})
    if foreign and device == "auto":
        return _executor(model, f"ONNX Runtime's Python interface has no {', '.join(foreign)}")
    try:
        started = session(model, device, as_written=True)
    except _Fail as e:
        unknown = _UNKNOWN.search(str(e))
        if unknown is None:
            raise
        return _decomposed(model, f"{unknown[1]}::{unknown[2]}")
    except _Missing as e:
        found = _KERNEL.search(str(e))
        if found is None or device != "auto":
            raise
        return _executor(model, f"ONNX Runtime has no kernel here for {found[1]} in its dtypes")
    return lambda feeds: run(started, feeds)


def _ends(model: ir.Model | onnx.ModelProto) -> list[ir.DataType]:
    """The dtypes of what goes into a model and comes out."""
    if isinstance(model, ir.Model):
        return [v.dtype for v in (*model.graph.inputs, *model.graph.outputs) if v.dtype is not None]
    types = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    return [ir.DataType(t) for t in types if t]


def _in_double(model: Any) -> bool:
    """Whether a model takes or holds numbers of float64; of bytes, which are given on as they are, that is not asked."""
    if isinstance(model, onnx.ModelProto):
        return any(t.data_type == onnx.TensorProto.DOUBLE for t in model.graph.initializer) or ir.DataType.DOUBLE in _ends(model)
    if isinstance(model, ir.Model):
        held = [v.dtype for v in model.graph.initializers.values()]
        return ir.DataType.DOUBLE in (*held, *_ends(model))
    return False


def _decomposed(model: ir.Model | onnx.ModelProto, name: str) -> NamedRun:
    """A model with an operator that ONNX Runtime does not know, by onnxbridge's executor.

    Raises:
        ConversionError: where nothing here can run it.
    """
    try:
        return _executor(model, f"ONNX Runtime does not know {name}")
    except ConversionError as e:
        hint = (
            "a decomposition into standard operators makes it known: --import MODULE that registers it with "
            f'@expand("{name}"); --no-verify writes ONNX without running it'
        )
        problems = [Problem(p.op, "neither ONNX Runtime nor onnxbridge can run it", hint, p.places) for p in e.problems]
        raise ConversionError("ONNX", problems) from e


_Fail = onnxruntime.capi.onnxruntime_pybind11_state.Fail
_UNKNOWN = re.compile(r"([\w.]+):(\w+)\(-?\d+\) is not a registered function/op")
_Missing = onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented
_KERNEL = re.compile(r"Could not find an implementation for (\w+)")


def _hangs_on_threads(model: Any) -> bool:
    """Whether ONNX Runtime quantizes what each of its threads computes by a scale of its own."""
    if isinstance(model, onnx.ModelProto):
        return any(node.op_type in _BY_THREAD for node in model.graph.node)
    return isinstance(model, ir.Model) and any(node.op_type in _BY_THREAD for node in model.graph)


def run(started: onnxruntime.InferenceSession, feeds: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The session's outputs by name, in order; feeds that the session does not take are left out."""
    names = [o.name for o in started.get_outputs()]
    taken = {i.name for i in started.get_inputs()}
    return dict(zip(names, started.run(None, {k: v for k, v in feeds.items() if k in taken}), strict=True))
