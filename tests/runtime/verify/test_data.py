"""The user's own samples: what is read, what is refused since it does not fit the model, and how failures are named."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.errors import OnnxbridgeError, UnsafeFileError, UsageError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.samples import samples_file
from onnxbridge.runtime.verify.samples.check_data import checked_samples
from onnxbridge.runtime.verify.samples.data import MOST_SAMPLES, read_data
from onnxbridge.runtime.verify.samples.samples_file import Sample
from onnxbridge.runtime.verify.verification import verify_runners


def images(count, *shape):
    return np.random.default_rng(count).standard_normal((count, *(shape or (3, 8, 8)))).astype(np.float32)


@pytest.fixture
def folder(tmp_path):
    """Two samples, of 1 and of 2 images."""
    found = tmp_path / "images"
    found.mkdir()
    for name, count in (("b", 2), ("a", 1)):
        np.savez(found / f"{name}.npz", x=images(count))
    (found / "readme.txt").write_text("not a sample")
    return found


def test_a_folder_is_read_in_order(folder):
    assert [(Path(s.name).name, len(s.inputs["x"])) for s in read_data(folder)] == [("a.npz", 1), ("b.npz", 2)]
    assert len(read_data(folder, most=1)) == 1


def test_verify_and_convert_run_the_data(cli, network_file, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_data.py").write_text(
        "import numpy as np\n\ndef batches():\n    for n in 1, 2, 3, 4:\n        yield {'x': np.ones((n, 3, 8, 8), 'f')}\n"
    )
    for data, count in (("images", 2), ("images/a.npz", 1), ("my_data:batches", 4)):
        ran = cli("convert", network_file, "--data", data, "-o", "out.onnx", "--force")
        assert ran.code == 0 and re.match(rf"(PASSED|WEAK).* {count} samples?, given inputs", ran.out), ran
        ran = cli("verify", network_file, "out.onnx", "--data", data, "--samples", 1)
        assert ran.code == 0 and " 1 sample, given inputs" in ran.out
    assert "0 samples" not in cli("verify", network_file, "out.onnx").out


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("nothing", "there are no samples in 'nothing'; data is an .npz file, a folder"),
        ("empty", r"'empty' has no .npz files. Each sample is a file"),
        ("others", r"'others' has no .npz files; it has a.jpg"),
        ("array.npy", "a single array has no input name"),
        ("text.npz", "text.npz: is not an .npz file"),
        ("others.npz", "others.npz: is an archive of other files than arrays"),
        ("objects.npz", "is not an .npz file of plain arrays .Python objects are not read"),
        ("feeds", "there are no samples in 'feeds'; .*, here feeds:FUNCTION"),
        ("feeds.py", "there are no samples in 'feeds.py'; .*, here feeds:FUNCTION"),
        ("no_module:batches", "no module 'no_module'"),
        ("feeds:nothing", "feeds has no 'nothing'; it has .*batches"),
        ("feeds:fails", "feeds:fails fails with ZeroDivisionError"),
        ("feeds:number", "gives a int; it must give dicts"),
        ("feeds:arrays", "sample 1 is a ndarray; it must be a dict"),
        ("feeds:none", "feeds:none has no samples"),
        ("feeds:endless", f"more than {MOST_SAMPLES} samples; --samples"),
    ],
)
def test_data_that_cannot_be_read(data, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "feeds", raising=False)
    for name in ("empty", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "others" / "a.jpg").write_bytes(b"")
    np.save("array.npy", np.ones(3))
    (tmp_path / "text.npz").write_text("x = 1")
    with zipfile.ZipFile("others.npz", "w") as archive:
        archive.writestr("data.pkl", b"")
    np.savez("objects.npz", x=np.array([{}], object))
    (tmp_path / "feeds.py").write_text(
        "import itertools, numpy\ndef batches(): yield {}\ndef fails(): yield {'x': 1 / 0}\ndef number(): return 1\n"
        "def arrays(): yield numpy.ones(3)\ndef none(): return []\ndef endless(): return itertools.repeat({})\n"
    )
    with pytest.raises(UsageError, match=message):
        read_data(data)


def model():
    op = Builder()
    x = op.input("image", ir.DataType.FLOAT, ["N", 3, 4, 5])
    ids = op.input("ids", ir.DataType.INT64, ["N"])
    names = op.input("names", ir.DataType.STRING, [2])
    return op.model([x, ids, names], [op.output(op.Relu(x), "y"), op.output(op.Identity(ids), "z"), op.output(names, "n")])


RIGHT = {"image": images(2, 3, 4, 5), "ids": np.array([1, 2]), "names": np.array(["a", "b"])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"imgae": 0, "image": None}, "the model has no input 'imgae'; did you mean 'image'?"),
        ({"a": 0, "b": 0}, "the model has no input 'a', 'b'; it has image, ids, names"),
        ({"ids": None}, "the input 'ids' is missing: int64[N]"),
        ({"image": np.ones((2, 3, 4, 5))}, "'image' has dtype float64; the model takes float32: array.astype('float32')"),
        ({"image": images(2, 4, 5, 3)}, "has shape [2, 4, 5, 3]; the model takes [N, 3, 4, 5]: array.transpose(0, 3, 1, 2) fits"),
        ({"image": images(3, 4, 5)}, "has shape [3, 4, 5]; the model takes [N, 3, 4, 5]: array[None] adds the first dimension"),
        ({"ids": np.array([[1, 2]])}, "has shape [1, 2]; the model takes [N]: array[0] removes the first dimension"),
        ({"names": np.array([1, 2])}, "'names' has dtype int64; the model takes string"),
        ({"ids": np.array(["a", "b"])}, "'ids' has dtype string; the model takes int64"),
        ({"image": "cat.jpg"}, "'image' has dtype"),
        ({"image": images(9, 3, 4, 5)}, "'image' has N=9, which --dynamic N=1..8 (dynamic=) excludes"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(change, message):
    given = {name: value for name, value in {**RIGHT, **change}.items() if value is not None}
    with pytest.raises(UsageError, match=re.escape(message)):
        checked_samples([Sample("s.npz", given)], model(), {"N": (1, 8)})


def test_samples_that_fit_come_in_the_order_of_the_inputs():
    (found,) = checked_samples([Sample("", dict(reversed(RIGHT.items())))], model(), {"N": (1, 8)})
    assert list(found.inputs) == ["image", "ids", "names"] and found.inputs["names"].tolist() == ["a", "b"]
    assert found.inputs["names"].dtype == object


def test_nothing_runs_on_data_that_does_not_fit(cli, network_file, tmp_path):
    np.savez(tmp_path / "d.npz", X=images(1))
    ran = cli("convert", network_file, "--data", tmp_path / "d.npz", "-o", tmp_path / "o.onnx")
    assert ran.code == 2 and "no input 'X'; did you mean 'x'?" in ran.err and not (tmp_path / "o.onnx").exists()
    ran = cli("verify", network_file, network_file, "--data", tmp_path / "d.npz")
    assert ran.code == 2 and "no input 'X'" in ran.err


def test_data_are_the_example_of_a_source_that_needs_one():
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 2)
    made = onnxbridge.convert(net, "onnx", data=[{"input": images(3, 4)}])
    assert made.report.agrees and made.report.samples == 1 and made.report.sizes[0]["input"] == (3, 4)
    of_two_sizes = [{"input": images(3, 4)}, {"input": images(5, 4)}]
    with pytest.raises(UsageError, match=r"sample 2: 'input' has shape \[5, 4\]; the model takes \[3, 4\].*--inputs"):
        onnxbridge.convert(net, "onnx", data=of_two_sizes)
    specs = "input:float32[N,4]"
    of_any_batch = onnxbridge.convert(net, "onnx", inputs=specs, data=of_two_sizes)
    report = onnxbridge.verify(net, of_any_batch.model, inputs=specs, data=of_two_sizes)
    assert of_any_batch.report.agrees and report.agrees and report.samples == 2


def test_a_failing_side_is_named_with_the_sample_which_is_saved(network):
    def refuses(feeds):
        if len(feeds["x"]) == 2:
            raise OnnxbridgeError("no memory")
        return {"probabilities": np.full((len(feeds["x"]), 5), 0.2, np.float32)}

    feeds = [{"x": images(1)}, {"x": images(2)}]
    broken = Runner("Broken", refuses)
    with pytest.raises(VerificationError, match=r"Broken cannot run .* this is sample 2, saved for repeating: --data ") as failed:
        verify_runners(network, broken, broken, feeds=feeds)
    (again,) = read_data(str(failed.value).rpartition(" ")[2])
    np.testing.assert_array_equal(again.inputs["x"], feeds[1]["x"])
    with pytest.raises(VerificationError, match=r"this is sample 2 \(images/b.npz\)"):
        verify_runners(network, broken, broken, feeds=feeds, sample_names=["images/a.npz", "images/b.npz"])


def test_the_worst_element_names_its_file(network_file, network, folder, tmp_path):
    weight = network.graph.initializers["fc.weight"]
    weight.const_value = ir.tensor(weight.const_value.numpy() * 1.1, name="fc.weight")
    onnx_files.write(network, tmp_path / "wrong.onnx")
    report = onnxbridge.verify(network_file, tmp_path / "wrong.onnx", data=folder)
    assert not report.agrees and re.search(r"worst: sample [12] \(.*images/[ab].npz\), element", str(report))


def test_a_file_of_samples_holds_every_dtype(tmp_path):
    inputs = {
        "half": np.arange(3).astype(ml_dtypes.bfloat16), "a/b:0": np.ones((0, 2)), "flags": np.array([True]), "none": None,
        "text": np.array(["a", "ü"], object), "list": [np.ones(2), np.ones((1, 3), np.int8)],
    }  # fmt: skip
    samples = [Sample("one", inputs, {"y": np.float32(1)}), Sample("two", {})]
    samples_file.write(tmp_path / "s.npz", samples, seed=3)
    found = samples_file.read(tmp_path / "s.npz")
    assert found.header["seed"] == 3 and [s.outputs for s in found.samples] == [{"y": np.float32(1)}, None]
    again = found.samples[0].inputs
    assert list(again) == list(inputs) and again["none"] is None and len(again["list"]) == 2
    for name in ("half", "a/b:0", "flags", "text"):
        assert again[name].dtype == inputs[name].dtype and np.array_equal(again[name], inputs[name])
    samples_file.write(tmp_path / "t.npz", samples, seed=3)
    assert (tmp_path / "s.npz").read_bytes() == (tmp_path / "t.npz").read_bytes()


def test_damaged_files_of_samples(tmp_path):
    path = tmp_path / "s.npz"
    samples_file.write(path, [Sample("", {"x": np.ones(1000)})])
    whole = path.read_bytes()
    path.write_bytes(whole.replace('"x"'.encode("utf-32-le"), '"y"'.encode("utf-32-le")))
    with pytest.raises((UsageError, UnsafeFileError), match="s.npz"):
        read_data(path)
    path.write_bytes(whole[:500])
    with pytest.raises((UsageError, UnsafeFileError), match="s.npz"):
        read_data(path)


def test_an_array_whose_header_has_a_key_of_bytes(tmp_path):
    """NumPy sorts the keys of a header to name those that it does not know."""
    path, array = tmp_path / "s.npz", tmp_path / "x.npy"
    np.save(array, np.ones(3, np.float32))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", array.read_bytes().replace(b" 'shape'", b"b'shape'"))
    with pytest.raises(UnsafeFileError, match="is damaged"):
        read_data(path)
