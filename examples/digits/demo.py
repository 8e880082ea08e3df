"""Trains a small network, converts it to every target with verification, and compares the accuracies. Run by `make demo`.

Each conversion is a command line; each artifact is then loaded by its own framework.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
TARGETS = {
    "onnx": "digits.onnx",
    "coreml": "digits.mlpackage",
    "pytorch": "converted.pt2",
    "tensorflow": "digits_tf",
    "mxnet": "digits",
}
Predict = Callable[[np.ndarray], np.ndarray]


def by_onnx(path: Path) -> Predict:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return lambda x: session.run(None, {"image": x})[0]


def by_coreml(path: Path) -> Predict:
    """Core ML's own runtime needs a Mac; the bundled interpreter runs the same program anywhere."""
    from onnxbridge.runtime.mil import Interpreter

    interpreter = Interpreter(str(path))
    return lambda x: np.concatenate([next(iter(interpreter.run({"image": part}).values())) for part in np.array_split(x, 8)])


def by_pytorch(path: Path) -> Predict:
    import torch

    module = torch.export.load(path).module()
    return lambda x: module(torch.from_numpy(x)).detach().numpy()


def by_tensorflow(path: Path) -> Predict:
    from onnxbridge import frameworks

    tf = frameworks.tensorflow()
    loaded = tf.saved_model.load(str(path))
    return lambda x: next(iter(loaded.signatures["serving_default"](image=tf.constant(x)).values())).numpy()


def by_mxnet(path: Path) -> Predict:
    """MXNet is installed in its own environment, where onnxbridge runs it."""
    from onnxbridge.plugins import frontend

    run = frontend("mxnet").runner((f"{path}-symbol.json", f"{path}-0000.params"))
    return lambda x: next(iter(run({"image": x}).values()))


def command(*args: str, cwd: Path) -> None:
    """Show a command and its output; stop if it fails."""
    print("$ " + " ".join(["onnxbridge", *args]))
    result = subprocess.run([sys.executable, "-m", "onnxbridge", *args], cwd=cwd)
    print(flush=True)
    if result.returncode:
        sys.exit(result.returncode)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("training a small network on scikit-learn's digits in PyTorch", flush=True)
        for script, *args in (("data.py", "digits.npz"), ("torch_net.py", "digits.npz", "digits.pt2")):
            subprocess.run([sys.executable, HERE / script, *args], cwd=folder, check=True)
        print()
        for target, output in TARGETS.items():
            command("convert", "digits.pt2", "--to", target, "-o", output, cwd=folder)
        with np.load(folder / "digits.npz") as data:
            x, y = data["x_test"], data["y_test"]
        loaders = {"onnx": by_onnx, "coreml": by_coreml, "pytorch": by_pytorch, "tensorflow": by_tensorflow, "mxnet": by_mxnet}
        print(f"accuracy on the {len(x)} images of the test split")
        for label, predict in [
            ("PyTorch, the source", by_pytorch(folder / "digits.pt2")),
            *((target, loaders[target](folder / output)) for target, output in TARGETS.items()),
        ]:
            print(f"  {label:20} {np.mean(predict(x).argmax(1) == y):.4f}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
