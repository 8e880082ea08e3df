"""The cost of a conversion to ONNX: CPU time and memory, compared with the framework's own export.

    python benchmarks/cost.py pytorch [NAME ...]   PyTorch to ONNX, compared with torch.export.export: three networks, or those
                                                   of architectures.py whose names contain one of these
    python benchmarks/cost.py keras [NAME ...]     networks of keras.applications (ResNet50) to ONNX, with memory relative to
                                                   their weights

Times are the median process CPU time of five runs after a warm-up.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnxbridge
from onnxbridge import frameworks


def seconds(function: Callable[[], object], runs: int = 5) -> float:
    """The median CPU time."""
    function()
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times)


def resident(field: str) -> float:
    """Resident memory in MB from /proc: "VmRSS" for the current, "VmHWM" for the peak since `reset_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


def reset_peak() -> float:
    """Resets the peak of resident memory to the current value, which is returned."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def pytorch(*names: str) -> None:
    import torch
    import torchvision_operators
    from families import families

    torchvision_operators.ensure()

    def convert(module: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> onnxbridge.Conversion:
        return onnxbridge.convert(module, "onnx", inputs=inputs, verify=False)

    selected = [name.lower() for name in names or ("ResNet-50", "ViT-B/16", "MiniLM")]
    for family in families():
        if not any(name in family.name.lower() for name in selected):
            continue
        module, inputs = family.build()
        with torch.no_grad():
            export_seconds = seconds(partial(torch.export.export, module, (), inputs, strict=False))
            convert_seconds = seconds(partial(convert, module, inputs))
            model_seconds = seconds(lambda module=module, inputs=inputs: convert(module, inputs).model)
        ratio = f"{convert_seconds:.2f} s = {convert_seconds / export_seconds:.2f}x"
        cost = f"torch.export {export_seconds:.2f} s, convert {ratio}, with serialization to ModelProto {model_seconds:.2f} s"
        print(f"{family.name:10} {cost}", flush=True)


def keras(*names: str) -> None:
    frameworks.tensorflow()
    import keras

    # what a conversion imports is no part of its memory
    onnxbridge.convert(keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)]), "onnx", verify=False)
    for name in names or ("ResNet50",):
        keras.backend.clear_session()
        model = getattr(keras.applications, name)(weights=None)
        weights = sum(w.numpy().nbytes for w in model.weights) / 1e6
        before = reset_peak()
        start = time.process_time()
        conversion = onnxbridge.convert(model, "onnx", verify=False)
        first = time.process_time() - start
        converting = resident("VmHWM") - before
        before = reset_peak()
        with tempfile.TemporaryDirectory() as folder:
            conversion.save(f"{folder}/net.onnx")
        saving = resident("VmHWM") - before
        memory = f"{converting:.0f} MB more at the peak, {saving:.0f} MB to save it, for {weights:.0f} MB of weights"
        again = seconds(lambda model=model: onnxbridge.convert(model, "onnx", verify=False))
        times = f"{first:.2f} s the first time, {again:.2f} s after that"
        print(f"{name}: {times}; {memory}: {converting / weights:.2f}x", flush=True)


if __name__ == "__main__":
    {"pytorch": pytorch, "keras": keras}[sys.argv[1]](*sys.argv[2:])
