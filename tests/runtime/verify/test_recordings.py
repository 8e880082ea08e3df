"""Samples and outputs in files: saved, loaded in place of a reference, and recorded for comparison with later versions."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.errors import UsageError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime.verify.recordings import record
from onnxbridge.runtime.verify.samples import samples_file


@pytest.fixture
def wrong_file(network, tmp_path):
    """The network with a weight that is 1% too large."""
    weight = network.graph.initializers["fc.weight"]
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.01), name="fc.weight")
    onnx_files.write(network, tmp_path / "wrong.onnx")
    return tmp_path / "wrong.onnx"


def test_saved_inputs_are_data(cli, network_file, tmp_path):
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx", "--save-inputs", tmp_path / "inputs")
    assert ran.code == 0 and sorted(p.name for p in (tmp_path / "inputs").iterdir()) == [f"sample_{i}.npz" for i in (1, 2, 3)]
    first = samples_file.read(tmp_path / "inputs" / "sample_1.npz")
    assert first.samples[0].outputs is None and first.header["seed"] == 0
    report = onnxbridge.verify(network_file, tmp_path / "o.onnx", data=tmp_path / "inputs")
    assert report.agrees and report.samples == 3


def test_stored_outputs_stand_for_a_reference(cli, network_file, wrong_file, tmp_path):
    expected = tmp_path / "expected"
    report = onnxbridge.verify(network_file, network_file, save_outputs=expected, save_inputs=expected)
    ran = cli("verify", network_file, "--load-outputs", expected)
    assert ran.code == 0 and "ONNX as recorded in" in ran.out and "derived when recorded" in ran.out
    again = onnxbridge.verify(network_file, load_outputs=expected)
    assert again.agrees and again.outputs[0].tolerance.atol == report.outputs[0].tolerance.atol
    ran = cli("verify", wrong_file, "--load-outputs", expected)
    assert ran.code == 1 and ran.out.startswith("FAILED")


def test_stored_outputs_are_paired_with_other_names(network_file, tmp_path):
    coreml = pytest.importorskip("coremltools")
    assert coreml
    made = onnxbridge.convert(network_file, "coreml", output=tmp_path / "net.mlpackage", save_outputs=tmp_path / "expected")
    assert made.report.agrees
    report = onnxbridge.verify(tmp_path / "net.mlpackage", load_outputs=tmp_path / "expected")
    assert report.agrees and report.samples == made.report.samples


def test_golden_records_first_and_compares_then(cli, network_file, wrong_file, tmp_path):
    golden = tmp_path / "golden.npz"
    ran = cli("verify", network_file, "--golden", golden, "--samples", 2)
    assert ran.code == 0 and ran.out.startswith("WEAK") and "was recorded now" in ran.out and golden.exists()
    before = golden.read_bytes()
    ran = cli("verify", network_file, "--golden", golden)
    assert ran.code == 0 and ran.out.startswith("PASSED") and "2 samples" in ran.out
    assert cli("verify", wrong_file, "--golden", golden).code == 1
    assert golden.read_bytes() == before
    header = samples_file.read(golden).header
    assert header["versions"]["numpy"] == np.__version__ and header["tolerances"]["probabilities"]["atol"] > 0


def test_the_report_says_which_versions_changed(network_file, tmp_path):
    golden = tmp_path / "golden.npz"
    onnxbridge.verify(network_file, golden=golden)
    found = samples_file.read(golden)
    header = {**found.header, "versions": {**found.header["versions"], "numpy": "1.0"}}
    samples_file.write(golden, found.samples, **{k: v for k, v in header.items() if k not in ("format", "version", "samples")})
    notes = onnxbridge.verify(network_file, golden=golden).notes
    assert f"recorded with other versions: numpy 1.0 then, {np.__version__} now" in notes


def test_random_outputs_are_not_recorded_as_exact(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4])
    y = op.Add(x, op.RandomNormal(shape=[4]))
    onnx_files.write(op.model([x], [op.output(y, "y")]), tmp_path / "r.onnx")
    for _ in "recorded", "compared":
        report = onnxbridge.verify(tmp_path / "r.onnx", golden=tmp_path / "g.npz")
        assert report.agrees and "random output" in str(report)


def test_models_that_choose_are_measured_anew(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [2, 8])
    model = op.model([x], [op.output(op.ArgMax(x, axis=1), "best")])
    onnx_files.write(model, tmp_path / "m.onnx")
    onnxbridge.verify(tmp_path / "m.onnx", golden=tmp_path / "g.npz")
    report = onnxbridge.verify(tmp_path / "m.onnx", golden=tmp_path / "g.npz")
    assert report.agrees and "the tolerance is derived from the candidate, not from the reference" in report.notes


def test_wrong_arguments(network_file, tmp_path):
    golden = tmp_path / "g.npz"
    with pytest.raises(UsageError, match="nothing to compare the model with: give a second model, or golden"):
        onnxbridge.verify(network_file)
    with pytest.raises(UsageError, match=r"cannot be compared with candidate and golden \(--golden\) at once"):
        onnxbridge.verify(network_file, network_file, golden=golden)
    with pytest.raises(UsageError, match="there is no file or folder"):
        onnxbridge.verify(network_file, load_outputs=tmp_path / "nothing")
    with pytest.raises(UsageError, match="there is no folder"):
        onnxbridge.verify(network_file, golden=tmp_path / "nothing" / "g.npz")
    with pytest.raises(UsageError, match="need two models"):
        onnxbridge.verify(network_file, golden=golden, save_inputs=tmp_path / "i")
    onnxbridge.verify(network_file, golden=golden)
    with pytest.raises(UsageError, match="has the inputs of its outputs: leave out the data"):
        onnxbridge.verify(network_file, golden=golden, data={"x": np.ones((1, 3, 8, 8), np.float32)})
    np.savez(tmp_path / "plain.npz", x=np.ones((1, 3, 8, 8), np.float32))
    with pytest.raises(UsageError, match="no outputs of a reference; --save-outputs"):
        onnxbridge.verify(network_file, load_outputs=tmp_path / "plain.npz")


def test_folders_are_not_overwritten(network_file, tmp_path):
    folder = tmp_path / "inputs"
    onnxbridge.verify(network_file, network_file, save_inputs=folder)
    with pytest.raises(UsageError, match="is not empty; --force"):
        onnxbridge.convert(network_file, "onnx", save_inputs=folder)
    onnxbridge.verify(network_file, network_file, save_inputs=folder, samples=1, force=True)
    assert [p.name for p in folder.iterdir()] == ["sample_1.npz"]
    with pytest.raises(UsageError, match="where the model or the data is"):
        onnxbridge.verify(network_file, network_file, data=folder, save_outputs=folder, force=True)
    with pytest.raises(UsageError, match="where the model or the data is"):
        onnxbridge.verify(network_file, network_file, data=folder / "sample_1.npz", save_outputs=folder, force=True)
    with pytest.raises(UsageError, match="is where the model is written: save the samples elsewhere"):
        onnxbridge.convert(network_file, "tensorflow", output=tmp_path / "out", save_inputs=tmp_path / "out")
    with pytest.raises(UsageError, match="samples are saved by the verification"):
        onnxbridge.convert(network_file, "onnx", verify=False, save_inputs=tmp_path / "new")
    (folder / "mine.txt").write_text("")
    assert "it holds other files" in record.folder_obstacle(folder, force=True)


def test_a_file_of_samples_can_be_read_with_numpy_alone(network_file, tmp_path):
    onnxbridge.verify(network_file, golden=tmp_path / "g.npz")
    with np.load(tmp_path / "g.npz") as archive:
        header = json.loads(str(archive["onnxbridge.json"]))
        assert archive["inputs/0/x"].shape == (2, 3, 8, 8) and archive["outputs/0/probabilities"].dtype == np.float32
    assert header["samples"][0]["inputs"] == {"x": "float32"}
