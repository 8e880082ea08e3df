"""The readers of files, each with small honest files to start from."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Reader:
    """How a kind of file is read.

    Attributes:
        seeds: writes honest files into a folder; each is damaged in place of itself, or the file in it that `part` names is.
        read: reads a file or folder.
    """

    seeds: Callable[[Path], Sequence[Path]]
    read: Callable[[Path], Any]
    part: str = ""


def read_with(frontend: str, **given: Any) -> Callable[[Path], Any]:
    """Read with a frontend, as `load` does."""

    def read(path: Path) -> Any:
        from onnxbridge import api

        return api.load(path, frontend=frontend, isolate=False, **given)

    return read


TEXT = """<ir_version: 10, opset_import: ["" : 21]> g (float[N,3,8,8] x, int64[1] k) => (float[N,a] y, float z)
<float[4,3,3,3] w, float[4] b = {1,2,3,4}> {
  c = Conv<pads = [1,1,1,1]>(x, w, b) r = Relu(c) f = Flatten(r) s, i = TopK(f, k) t = Constant<value_int = 2>()
  e = Constant<value = bool {1}>() start = Constant<value_float = 1.0>()
  z = Loop(t, e, start) <body = l (int64 j, bool g, float p) => (bool h, float q) { h = Identity(g) q = Add(p, p) }>
  y = Softmax<axis = 1>(s) }"""


PLAIN = """<ir_version: 10, opset_import: ["" : 21]> g (float[2,3,8,8] x) => (float[2,a] y)
<float[4,3,3,3] w, float[4] b = {1,2,3,4}> {
  c = Conv<pads = [1,1,1,1]>(x, w, b) r = Relu(c) f = Flatten(r) y = Softmax<axis = 1>(f) }"""


def onnx_seeds(folder: Path, text: str = TEXT) -> list[Path]:
    import onnx

    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, folder / "net.onnx")
    onnx.save(model, folder / "data.onnx", save_as_external_data=True, location="data.bin", size_threshold=0)
    return [folder / "net.onnx", folder / "data.onnx"]


def text_seeds(folder: Path) -> list[Path]:
    import onnx
    from google.protobuf import json_format, text_format

    text = TEXT.replace("float[4,3,3,3] w, ", "").replace("Conv<pads = [1,1,1,1]>(x, w, b)", "Add(x, x)")
    model = onnx.parser.parse_model(text)
    (folder / "a.onnxtxt").write_text(onnx.printer.to_text(model))
    (folder / "b.pbtxt").write_text(text_format.MessageToString(model))
    (folder / "c.json").write_text(json_format.MessageToJson(model))
    return [folder / name for name in ("a.onnxtxt", "b.pbtxt", "c.json")]


def mxnet_seeds(folder: Path) -> list[Path]:
    import onnxbridge

    onnxbridge.convert(onnx_seeds(folder, PLAIN)[0], "mxnet", output=folder / "net", verify=False)
    return [folder / "net-symbol.json"]


def mxnet_params_seeds(folder: Path) -> list[Path]:
    mxnet_seeds(folder)
    return [folder / "net-0000.params"]


def mxnet_archive_seeds(folder: Path) -> list[Path]:
    """The parameters as MXNet 2 writes them."""
    from onnxbridge.formats.mxnet import read_params

    (params,) = mxnet_params_seeds(folder)
    arrays = read_params.read(params)
    with open(folder / "archive", "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # names of arrays are no parameters of savez
    (folder / "archive").replace(params)
    return [params]


def mxnet_pair(path: Path) -> Any:
    pair: Any = path.with_name("net-symbol.json"), path.with_name("net-0000.params")
    return read_with("mxnet", inputs="x:float32[2,3,8,8]")(pair)


def torch_module() -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.conv(x)).mean([2, 3])
            if y.shape[0] > 100:
                y = y + 1
            return self.linear(y)

    return Net().eval()


def pt2_seeds(folder: Path) -> list[Path]:
    import torch

    example = torch.randn(2, 3, 8, 8)
    torch.export.save(torch.export.export(torch_module(), (example,)), folder / "net.pt2")
    return [folder / "net.pt2"]


def older_pt2_seeds(folder: Path) -> list[Path]:
    """The layout of PyTorch 2.7 and before."""
    import zipfile

    import torch
    from torch._export.serde.serialize import serialize

    made = serialize(torch.export.export(torch_module(), (torch.randn(2, 3, 8, 8),)))
    with zipfile.ZipFile(folder / "net.pt2", "w") as archive:
        archive.writestr("serialized_exported_program.json", made.exported_program)
        archive.writestr("serialized_state_dict.pt", made.state_dict)
        archive.writestr("serialized_constants.pt", made.constants)
        archive.writestr("version", "8.8")
    return [folder / "net.pt2"]


def torchscript_seeds(folder: Path) -> list[Path]:
    import torch

    torch.jit.trace(torch_module(), torch.randn(2, 3, 8, 8)).save(str(folder / "net.pt"))
    return [folder / "net.pt"]


def load_torch(path: Path) -> Any:
    from onnxbridge.frontends.pytorch.capture.load import load

    return load(path)


def state_dict_seeds(folder: Path) -> list[Path]:
    import torch
    from safetensors.torch import save_file

    torch.save(torch_module().state_dict(), folder / "net.pth")
    save_file(torch_module().state_dict(), folder / "net.safetensors")
    return [folder / "net.pth", folder / "net.safetensors"]


def load_state_dict(path: Path) -> Any:
    from onnxbridge.frontends.pytorch.capture.state_dicts import load_state_dict as read_state_dict

    return read_state_dict(path)


@functools.cache
def keras_model() -> Any:
    import keras

    layers = [keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(2)]
    return keras.Sequential(layers)


def keras_seeds(folder: Path) -> list[Path]:
    keras_model().save(folder / "net.keras")
    return [folder / "net.keras"]


def hdf5_seeds(folder: Path) -> list[Path]:
    keras_model().save(folder / "net.h5")
    return [folder / "net.h5"]


def saved_model_seeds(folder: Path) -> list[Path]:
    keras_model().export(str(folder / "net"), verbose=False)
    return [folder / "net"]


def load_tensorflow(path: Path) -> Any:
    from onnxbridge.frontends.tensorflow.load_files import load

    return load(path)


def graphdef_seeds(folder: Path) -> list[Path]:
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        tf.nn.relu(tf.matmul(x, tf.constant(np.ones((4, 3), np.float32))), name="y")
    (folder / "net.pb").write_bytes(graph.as_graph_def().SerializeToString())
    (folder / "net.pbtxt").write_text(str(graph.as_graph_def()))
    return [folder / "net.pb", folder / "net.pbtxt"]


def tflite_seeds(folder: Path) -> list[Path]:
    import tensorflow as tf

    path = saved_model_seeds(folder)[0]
    (folder / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(path)).convert())
    (folder / "loop.tflite").write_bytes(_tflite_loop_with_a_table())
    (folder / "state.tflite").write_bytes(_tflite_state())
    return [folder / f"{name}.tflite" for name in ("net", "loop", "state")]


def read_tflite(path: Path) -> None:
    """Make the file that the interpreter would run, and read it."""
    from onnxbridge.errors import OnnxbridgeError
    from onnxbridge.frontends.tflite import interpreted_file, states

    try:
        interpreted_file.content(states.read(path, None))
    except OnnxbridgeError as error:
        if error.exit_code == OnnxbridgeError.exit_code:
            raise
    read_with("tflite")(path)


def _tflite_state() -> bytes:
    """Variables that keep their values between runs."""
    import tensorflow as tf

    class Sum(tf.Module):
        def __init__(self) -> None:
            self.total, self.weight = tf.Variable(tf.zeros([2, 8])), tf.Variable(tf.ones([8]))

        @tf.function(input_signature=[tf.TensorSpec([2, 8], name="x")])
        def __call__(self, x: Any) -> Any:
            self.total.assign_add(x)
            return self.total * self.weight

    module = Sum()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([module.__call__.get_concrete_function()], module)
    converter.experimental_enable_resource_variables = True
    return bytes(converter.convert())


def _tflite_loop_with_a_table() -> bytes:
    """Several graphs: a loop, a lookup table and its contents, and complex numbers."""
    import tensorflow as tf

    class Steps(tf.Module):
        def __init__(self) -> None:
            contents = tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
            self.table = tf.lookup.StaticHashTable(contents, -1)

        @tf.function
        def __call__(self, words: Any, x: Any) -> tuple[Any, Any]:
            _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))
            return self.table.lookup(words), tf.abs(tf.signal.rfft(y))

    module = Steps()
    specs = tf.TensorSpec([2], tf.string, name="words"), tf.TensorSpec([2, 8], name="x")
    traced = module.__call__.get_concrete_function(*specs)
    return bytes(tf.lite.TFLiteConverter.from_concrete_functions([traced], module).convert())


def coreml_seeds(folder: Path) -> list[Path]:
    import onnxbridge

    onnxbridge.convert(onnx_seeds(folder, PLAIN)[0], "coreml", output=folder / "net.mlpackage", verify=False)
    return [folder / "net.mlpackage"]


def samples_seeds(folder: Path) -> list[Path]:
    np.savez(folder / "a.npz", x=np.ones((2, 3), np.float32), s=np.array(["a", "b"]))
    np.savez_compressed(folder / "b.npz", x=np.ones((2, 3), np.float32))
    return [folder / "a.npz", folder / "b.npz"]


def load_samples(path: Path) -> Any:
    from onnxbridge.runtime.verify.samples.data import read_data

    return read_data(str(path), None)


def manifest_seeds(folder: Path) -> list[Path]:
    (folder / "net.onnx").write_bytes(b"")
    source = str(folder / "net.onnx")
    (folder / "a.yaml").write_text(f"defaults:\n  to: [onnx]\njobs:\n  - source: {source}\n    timeout: 5\n    memory: 1GiB\n")
    (folder / "b.json").write_text(f'{{"defaults": {{"to": "onnx"}}, "jobs": [{{"source": "{source}", "strict": true}}]}}')
    (folder / "c.toml").write_text(f'[defaults]\nto = "onnx"\n[[jobs]]\nsource = "{source}"\nrtol = 0.1\n')
    (folder / "d.jsonl").write_text(f'{{"source": "{source}"}}\n{{"source": "{source}", "to": ["onnx"]}}\n')
    (folder / "e.csv").write_text(f"source,to\n{source},onnx;coreml\n")
    return [folder / name for name in ("a.yaml", "b.json", "c.toml", "d.jsonl", "e.csv")]


def load_manifest(path: Path) -> Any:
    from onnxbridge.pipeline import read_manifest

    return list(read_manifest(str(path), {}))


READERS = {
    "onnx": Reader(onnx_seeds, read_with("onnx")),
    "onnx-text": Reader(text_seeds, read_with("onnx")),
    "mxnet": Reader(mxnet_seeds, mxnet_pair),
    "mxnet-params": Reader(mxnet_params_seeds, mxnet_pair),
    "mxnet-archive": Reader(mxnet_archive_seeds, mxnet_pair),
    "pt2": Reader(pt2_seeds, load_torch),
    "pt2-older": Reader(older_pt2_seeds, load_torch),
    "torchscript": Reader(torchscript_seeds, load_torch),
    "state-dict": Reader(state_dict_seeds, load_state_dict),
    "keras": Reader(keras_seeds, load_tensorflow),
    "hdf5": Reader(hdf5_seeds, load_tensorflow),
    "saved-model": Reader(saved_model_seeds, load_tensorflow, part="saved_model.pb"),
    "graphdef": Reader(graphdef_seeds, read_with("tensorflow")),
    "tflite": Reader(tflite_seeds, read_tflite),
    "coreml": Reader(coreml_seeds, read_with("coreml"), part="*.mlmodel"),
    "coreml-weights": Reader(coreml_seeds, read_with("coreml"), part="weight.bin"),
    "samples": Reader(samples_seeds, load_samples),
    "manifest": Reader(manifest_seeds, load_manifest),
}


def damaged_file(path: Path, part: str) -> Path:
    """The file that is damaged of a seed."""
    return next(path.rglob(part)) if part else path


def copied(seed: Path, folder: Path) -> Path:
    """A copy of a seed, with what stands beside it."""
    shutil.copytree(seed.parent, folder, dirs_exist_ok=True)
    return folder / seed.name
