"""The versions and dates that TensorFlow and Keras write into their files."""

from __future__ import annotations

import json
import os
from typing import Any

from onnxbridge.frontends.tensorflow import graph_files
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.hub.io.safe_files import map_file, open_file
from onnxbridge.hub.io.zip_archives import content, open_archive

_MOST_TEXT = 1 << 20


def versions(path: str | os.PathLike[str]) -> dict[str, str]:
    """The versions in a SavedModel folder, a graph or a Keras file."""
    kind = detect_format(path)
    if kind == "savedmodel":
        return _of_saved_model(path)
    if kind == "keras":
        return _of_keras(path)
    if kind == "metagraph":
        return _of_meta_info(graph_files.read(path, kind).meta_info_def)
    if kind == "graphdef":
        return {"graph_def_version": str(graph_files.read(path, kind).versions.producer)}
    return _of_hdf5(path)


def _of_saved_model(path: str | os.PathLike[str]) -> dict[str, str]:
    from tensorflow.core.protobuf import saved_model_pb2

    found = saved_model_pb2.SavedModel()
    found.ParseFromString(bytes(map_file(open_file(os.path.join(os.fspath(path), "saved_model.pb")))))
    written: dict[str, str] = {}
    for meta in found.meta_graphs:
        written = _of_meta_info(meta.meta_info_def)
    return written


def _of_meta_info(info: Any) -> dict[str, str]:
    written = {
        "tensorflow_version": info.tensorflow_version, "tensorflow_git_version": info.tensorflow_git_version,
        "tags": ", ".join(info.tags),
    }  # fmt: skip
    return {key: value for key, value in written.items() if value}


def _of_keras(path: str | os.PathLike[str]) -> dict[str, str]:
    archive = open_archive(path, "save the model again with model.save")
    if "metadata.json" not in archive.members:
        return {}
    try:
        found = json.loads(content(archive, "metadata.json", _MOST_TEXT))
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _of_hdf5(path: str | os.PathLike[str]) -> dict[str, str]:
    import h5py

    with h5py.File(os.fspath(path), "r") as file:
        stored = {name: file.attrs.get(name) for name in ("keras_version", "backend")}
    return {name: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for name, v in stored.items() if v is not None}
