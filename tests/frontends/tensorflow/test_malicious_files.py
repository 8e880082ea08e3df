"""TensorFlow and Keras files that refer to other files are rejected before anything is read, written or run."""

from __future__ import annotations

import json
import os
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf import saved_model_pb2

import onnxbridge
from onnxbridge.errors import UnsafeFileError
from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.frontends.tensorflow.saved_model import operator_checks
from tests.frontends.tensorflow.compare import hub_of


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones([3]), name="w")

    @tf.function(input_signature=[tf.TensorSpec([3], name="x")])
    def __call__(self, x):
        return x * self.w


@pytest.fixture
def saved(tmp_path):
    tf.saved_model.save(net := Net(), str(tmp_path / "net"), signatures=net.__call__)
    return tmp_path / "net"


def _check_rejected(source, match):
    for use in (hub_of, frontend.runner):
        with pytest.raises(UnsafeFileError, match=match) as raised:
            use(source)
        assert raised.value.exit_code == 4


FILES = ["saved_model.pb", "fingerprint.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "named pipe"])
def test_every_file_of_a_saved_model_must_be_regular(saved, tmp_path, name, kind):
    outside = tmp_path / "outside"
    os.rename(saved / name, outside)
    if kind == "symbolic link":
        (saved / name).symlink_to(outside)
    elif kind == "hard link":
        (saved / name).hardlink_to(outside)
    else:
        os.mkfifo(saved / name)
    _check_rejected(saved, f"which is a {kind}")


def test_variables_may_not_be_a_linked_folder(saved, tmp_path):
    os.rename(saved / "variables", tmp_path / "elsewhere")
    (saved / "variables").symlink_to(tmp_path / "elsewhere")
    _check_rejected(saved, "'variables', which is a symbolic link")


def test_a_link_to_the_folder_is_allowed(saved, tmp_path):
    (tmp_path / "link").symlink_to(saved)
    assert len(hub_of(tmp_path / "link").graph) == 1


def _edit(folder, change):
    path = folder / "saved_model.pb"
    content = saved_model_pb2.SavedModel()
    content.ParseFromString(path.read_bytes())
    change(content.meta_graphs[0])
    path.write_bytes(content.SerializeToString())


def _saving(meta):
    return next(f for f in meta.graph_def.library.function if "_traced_save" in f.signature.name)


def _restoring(meta):
    return next(f for f in meta.graph_def.library.function if "_traced_restore" in f.signature.name)


def _of_a_signature(meta):
    """A function with a saver's name that the signature calls."""
    wrapper = next(f for f in meta.graph_def.library.function if "signature_wrapper" in f.signature.name)
    node = wrapper.node_def.add(name="extra", op="StatefulPartitionedCall")
    node.attr["f"].func.name = _saving(meta).signature.name
    node.attr["Tin"].list.SetInParent()
    node.attr["Tout"].list.SetInParent()


def _by_its_operator(meta):
    """As in TensorFlow 1, a function called by an operator of its name."""
    wrapper = next(f for f in meta.graph_def.library.function if "signature_wrapper" in f.signature.name)
    wrapper.node_def.add(name="extra", op=_saving(meta).signature.name)


def _of_the_objects(meta):
    meta.object_graph_def.concrete_functions[_saving(meta).signature.name].SetInParent()


def _of_the_initializer(meta):
    meta.collection_def["saved_model_main_op"].node_list.value.append(meta.saver_def.save_tensor_name)


def _unused(meta):
    copy = meta.graph_def.library.function.add()
    copy.CopyFrom(_saving(meta))
    copy.signature.name = "__inference__traced_save_9999"


def _another_file(meta):
    function = _restoring(meta)
    prefix = function.node_def.add(name="prefix", op="Const")
    prefix.attr["dtype"].type = tf.string.as_datatype_enum
    prefix.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/etc/other"))
    node = next(n for n in function.node_def if n.op == "RestoreV2")
    node.input[0] = "prefix:output:0"


def _another_argument(meta):
    """The function takes the file name from its caller, which passes another than the loader's."""
    meta.graph_def.node.add(name="other", op="Const").attr["dtype"].type = tf.string.as_datatype_enum
    name = meta.saver_def.restore_op_name
    node = next(n for n in meta.graph_def.node if n.name == name)
    node.input[0] = "other"


def _saves_when_restoring(meta):
    meta.saver_def.restore_op_name = meta.saver_def.save_tensor_name.split(":")[0]


def _exchangeable(meta):
    _saving(meta).attr["api_implements"].s = b"lstm"


CHANGES = [
    _of_a_signature, _by_its_operator, _of_the_objects, _of_the_initializer, _unused, _another_file, _another_argument,
    _saves_when_restoring, _exchangeable,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__.strip("_"))
def test_only_the_loader_may_save_and_restore(saved, change):
    operator_checks.check(saved)
    _edit(saved, change)
    _check_rejected(saved, r"access resources outside the model: (MergeV2Checkpoints|RestoreV2|SaveV2)")


def test_regular_savers_are_allowed(tmp_path):
    loaded = tf.saved_model.load(str(_saved_with(tmp_path / "first", Net())))
    outer = tf.Module()
    outer.inner = loaded
    outer.f = tf.function(lambda x: loaded(x) + 1.0, input_signature=[tf.TensorSpec([3], name="x")])
    outer.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    operator_checks.check(_saved_with(tmp_path / "second", outer, signatures=outer.f))
    assert len(hub_of(tmp_path / "second").graph) == 2
    model = keras.Sequential([layers.Input((3, 2)), layers.LSTM(2), layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(np.zeros((2, 3, 2)), np.zeros((2, 2)), verbose=0)
    model.export(tmp_path / "keras", verbose=False)
    operator_checks.check(tmp_path / "keras")


def _saved_with(path, module, **options):
    tf.saved_model.save(module, str(path), **options)
    return path


def test_a_tensorflow_1_saver_is_allowed(tmp_path):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        y = x @ v1.get_variable("w", [3, 2])
        v1.train.Saver(name="left_over")
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "net"), {"x": x}, {"y": y})
    assert len(hub_of(tmp_path / "net").graph) == 1

    def hostile(meta):
        meta.signature_def["serving_default"].outputs["y"].name = meta.saver_def.save_tensor_name

    _edit(tmp_path / "net", hostile)
    _check_rejected(tmp_path / "net", "SaveV2")


def _keras(path):
    keras.Sequential([layers.Input((4,)), layers.Dense(2, name="d")]).save(path)
    return path


def _weights(file):
    """The names of the datasets in a weights file."""
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) and item.size else None)
    return found


def _link(file, name, outside):
    del file[name]
    file[name] = h5py.ExternalLink(outside, "secret")


def _group_link(file, name, outside):
    group = name.split("/")[0]
    del file[group]
    file[group] = h5py.ExternalLink(outside, "/")


def _external(file, name, outside):
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    file.create_dataset(name, shape, dtype, external=[(outside, 0, h5py.h5f.UNLIMITED)])


def _virtual(file, name, outside):
    shape, dtype = file[name].shape, file[name].dtype
    del file[name]
    layout = h5py.VirtualLayout(shape, dtype)
    layout[...] = h5py.VirtualSource(outside, "secret", shape)
    file.create_virtual_dataset(name, layout)


@pytest.mark.parametrize("ending", ["keras", "deflated.keras", "h5"])
@pytest.mark.parametrize("change", [_link, _group_link, _external, _virtual], ids=lambda f: f.__name__.strip("_"))
def test_weights_in_another_file_are_rejected(tmp_path, ending, change):
    outside = str(tmp_path / "outside.h5")
    with h5py.File(outside, "w") as file:
        file["secret"] = np.ones((4, 2), np.float32)
    path = _keras(tmp_path / f"net.{ending}")
    archived = ending.endswith("keras")
    inner = tmp_path / "model.weights.h5" if archived else path
    if archived:
        with zipfile.ZipFile(path) as archive:
            others = {n: archive.read(n) for n in archive.namelist() if n != "model.weights.h5"}
            archive.extract("model.weights.h5", tmp_path)
    with h5py.File(inner, "a") as file:
        change(file, _weights(file)[0], outside)
    if archived:
        compression = zipfile.ZIP_DEFLATED if ending.startswith("deflated") else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in others.items():
                archive.writestr(name, content)
            archive.write(inner, "model.weights.h5")
    _check_rejected(path, "which is not followed")


def _configured(path, change):
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    config = json.loads(parts["config.json"])
    change(config["config"]["layers"][1])
    parts["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(("module", "name"), [("os", "system"), ("keras.utils", "get_file"), ("keras.src.saving", "load_model")])
def test_a_config_that_is_no_layer_is_unsafe(tmp_path, module, name):
    path = _configured(_keras(tmp_path / "net.keras"), lambda c: c.update(module=module, class_name=name, registered_name=name))
    _check_rejected(path, "Keras rejects it as unsafe")


def test_an_external_vocabulary_is_unsafe(tmp_path):
    model = keras.Sequential([layers.Input((1,), dtype="string"), layers.StringLookup(vocabulary=["a"])])
    model.save(tmp_path / "net.keras")
    path = _configured(tmp_path / "net.keras", lambda c: c["config"].update(vocabulary="/etc/hostname"))
    _check_rejected(path, "Keras rejects it as unsafe")


def test_the_error_reaches_the_user(saved):
    (saved / "variables" / "more").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeFileError, match=r"holds 'variables/more', which is a symbolic link; copy the file itself"):
        onnxbridge.convert(saved, to="onnx")
