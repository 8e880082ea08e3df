"""What a conversion costs: CPU seconds and memory of reading a model into ONNX, beside the framework's own work.

    python benchmarks/cost.py pytorch [NAME ...]   PyTorch to ONNX, beside torch.export.export alone: the usual three networks,
                                                   or those of architectures.py whose names hold one of these
    python benchmarks/cost.py keras                Keras ResNet50 to ONNX, with the memory it takes beside its weights

Each figure is the median of five runs after one warm-up, of process CPU time; conversions end with the ModelProto in memory.
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


def seconds(work: Callable[[], object], runs: int = 5) -> float:
    """The median CPU time."""
    work()
    found = []
    for _ in range(runs):
        gc.collect()
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return statistics.median(found)


def resident(what: str) -> float:
    """Resident memory in MB, as Linux counts it: "VmRSS" now, "VmHWM" at its largest since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def forget_peak() -> float:
    """Let the largest resident memory be today's, which is returned."""
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

    wanted = [name.lower() for name in names or ("ResNet-50", "ViT-B/16", "MiniLM")]
    for family in families():
        if not any(name in family.name.lower() for name in wanted):
            continue
        module, inputs = family.build()
        with torch.no_grad():
            alone = seconds(partial(torch.export.export, module, (), inputs, strict=False))
            ours = seconds(partial(convert, module, inputs))
            whole = seconds(lambda module=module, inputs=inputs: convert(module, inputs).model)
        cost = f"torch.export {alone:.2f} s, convert {ours:.2f} s = {ours / alone:.2f}x, with the message {whole:.2f} s"
        print(f"{family.name:10} {cost}", flush=True)


def keras() -> None:
    frameworks.tensorflow()
    import keras

    model = keras.applications.ResNet50(weights=None)
    model(keras.ops.zeros((1, 224, 224, 3)))
    weights = sum(w.numpy().nbytes for w in model.weights) / 1e6
    before = forget_peak()
    start = time.process_time()
    made = onnxbridge.convert(model, "onnx", verify=False)
    first = time.process_time() - start
    more = resident("VmHWM") - before
    print(f"Keras ResNet50: {first:.2f} s the first time, {more:.0f} MB more at the peak, for {weights:.0f} MB of weights")
    before = forget_peak()
    with tempfile.TemporaryDirectory() as folder:
        made.save(f"{folder}/resnet50.onnx")
        print(f"saving it: {resident('VmHWM') - before:.0f} MB more at the peak")
    print(f"Keras ResNet50: {seconds(lambda: onnxbridge.convert(model, 'onnx', verify=False)):.2f} s after that")


if __name__ == "__main__":
    {"pytorch": pytorch, "keras": keras}[sys.argv[1]](*sys.argv[2:])
