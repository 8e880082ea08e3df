"""Compressed weights are checked against the original ones: an error in one palette entry or scale is found."""

import shutil

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.backends.coreml import backend, program
from onnxbridge.errors import VerificationError
from onnxbridge.frameworks import coremltools
from onnxbridge.hub.builder.builder import Builder

ct = coremltools()
METHODS = [
    ("linear8", "iOS17", "fp32"), ("linear8", "iOS18", "fp16"), ("linear4", "iOS18", "fp32"), ("palettize8", "iOS17", "fp16"),
    ("palettize4", "iOS18", "fp32"), ("palettize2", "iOS16", "fp16"), ("sparse50", "iOS17", "fp16"),
    ("sparse75", "iOS18", "fp32"),
]  # fmt: skip
CHANGED_OPERANDS = ("scale", "lut", "nonzero_data")
"""The operands of compressed weights, of which one element is changed."""


def model(write, shape):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, shape)
    return op.model([x], [op.output(write(op, x), "y")])


def network(seed=4):
    rng = np.random.default_rng(seed)
    kernel, weights = (rng.standard_normal(s).astype(np.float32) / 8 for s in ((32, 32, 3, 3), (512, 64)))
    return model(
        lambda op, x: op.MatMul(op.Reshape(op.Relu(op.Conv(x, kernel, pads=[1, 1, 1, 1])), [1, 512]), weights), [1, 32, 4, 4]
    )


def corrupt(package, to, change):
    """Copy a package, and change the second element of a scale, a palette or the nonzero data."""
    shutil.copytree(package, to)
    blob = next(to.glob("Data/*/weights/weight.bin"))
    content = bytearray(blob.read_bytes())
    spec = ct.models.utils.load_spec(str(to))
    block = next(iter(spec.mlProgram.functions["main"].block_specializations.values()))
    stored = {op.outputs[0].name: op.attributes["val"] for op in block.operations if op.type == "const"}
    for op in block.operations:
        for part in CHANGED_OPERANDS if op.type.startswith("constexpr_") else ():
            value = op.attributes.get(part)
            if part in op.inputs:
                (bound,) = op.inputs[part].arguments
                value = bound.value if bound.WhichOneof("binding") == "value" else stored[bound.name]
            if value is None:
                continue
            dtype = {10: np.float16, 11: np.float32}[value.type.tensorType.dataType]
            if value.WhichOneof("value") == "blobFileValue":
                at = int.from_bytes(content[value.blobFileValue.offset + 16 : value.blobFileValue.offset + 24], "little")
                numbers = np.frombuffer(bytes(content[at : at + 2 * dtype().nbytes]), dtype).copy()
                numbers[1] = change(numbers[1])
                content[at : at + numbers.nbytes] = numbers.tobytes()
                blob.write_bytes(content)
            else:  # a small palette is stored in the program itself
                held = value.immediateValue.tensor.bytes
                numbers = np.frombuffer(held.values, dtype).copy()
                numbers[1] = change(numbers[1])
                held.values = numbers.tobytes()
                next(to.glob("Data/*/model.mlmodel")).write_bytes(spec.SerializeToString())
            return op.outputs[0].name
    raise AssertionError("nothing to change")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "target", "precision"), METHODS)
def test_five_percent_error_in_one_scale_or_entry_is_found(method, target, precision, tmp_path):
    """Outputs are compared up to rounding, and weights by the error bound of their compression; also for a saved package."""
    source = onnxbridge.opset.convert(network(), to=18)
    options = {"compress": method, "minimum_deployment_target": target, "compute_precision": precision}
    result = onnxbridge.convert(source, "coreml", samples=1, max_drift=0.5, **options)
    (output,) = result.report.outputs
    plain = backend.from_hub(result.hub, **{**options, "compress": None})
    other = onnxbridge.convert(source, "coreml", samples=1, **{**options, "compress": None}).report.outputs[0]
    assert output.tolerance == other.tolerance and plain.unit_roundoff == result.artifact.unit_roundoff
    assert any("was checked against its error bound" in note for note in result.notes)
    assert 0 < output.drift < 0.5
    feed = {"x": np.random.default_rng(1).standard_normal((1, 32, 4, 4)).astype(np.float32)}
    difference = np.abs(next(iter(result.artifact.run(feed).values())) - next(iter(plain.run(feed).values()))).max()
    assert difference > output.tolerance.atol  # run() uses the compressed weights
    package = tmp_path / "net.mlpackage"
    result.save(package)
    assert onnxbridge.verify(source, package, samples=1, max_drift=0.5).passed
    corrupt(package, tmp_path / "bad.mlpackage", lambda v: v * 1.05)
    with pytest.raises(VerificationError, match="wrong weight compression"):
        onnxbridge.verify(source, tmp_path / "bad.mlpackage", samples=1)


@pytest.mark.parametrize(("method", "target", "precision"), METHODS[::2])
def test_wrong_compression_fails_the_conversion(method, target, precision, tmp_path, monkeypatch):
    compressed = program.compress

    def wrong(made, way):
        compressed(made, way).save(str(tmp_path / "good.mlpackage"))
        corrupt(tmp_path / "good.mlpackage", tmp_path / "bad.mlpackage", lambda v: v * 0.9)
        return ct.models.MLModel(str(tmp_path / "bad.mlpackage"), skip_model_load=True)

    monkeypatch.setattr(program, "compress", wrong)
    with pytest.raises(VerificationError, match="wrong weight compression"):
        backend.from_hub(network(), compress=method, minimum_deployment_target=target, compute_precision=precision)


def test_weights_of_another_model_fail(tmp_path):
    """A package is verified against the same network with other weights."""
    result = onnxbridge.convert(onnxbridge.opset.convert(network(), to=18), "coreml", compress="palettize4", verify=False)
    result.save(tmp_path / "net.mlpackage")
    with pytest.raises(VerificationError, match="the weight of"):
        onnxbridge.verify(onnxbridge.opset.convert(network(seed=5), to=18), tmp_path / "net.mlpackage", samples=1)


@pytest.mark.parametrize("draw", [
    lambda r: r.standard_t(2, 4096), lambda r: np.where(np.abs(v := r.standard_normal(4096)) < 0.5, 0, v),
    lambda r: np.repeat(r.standard_normal(4), 1024),
])  # fmt: skip
@pytest.mark.parametrize("method", ["linear4", "palettize8", "palettize2", "sparse50"])
def test_correct_compression_passes(method, draw):
    weights = draw(np.random.default_rng(6)).reshape(64, 64).astype(np.float32)
    made = model(lambda op, x: op.MatMul(x, weights), [1, 64])
    artifact = backend.from_hub(made, compress=method, minimum_deployment_target="iOS18")
    assert any("1 of the 1 weights" in note for note in artifact.notes)


@pytest.mark.parametrize("method", ["linear8", "linear4", "palettize4", "sparse50"])
def test_weights_that_the_source_quantized_stay_as_they_are(method):
    rng = np.random.default_rng(8)
    quantized, weights = rng.integers(-127, 128, (64, 64)).astype(np.int8), rng.standard_normal((64, 64)).astype(np.float32)

    def write(op, x):
        return op.MatMul(op.MatMul(x, op.DequantizeLinear(quantized, np.float32(0.01), np.int8(0))), weights)

    artifact = backend.from_hub(model(write, [1, 64]), compress=method, minimum_deployment_target="iOS18")
    assert any("1 of the 2 weights" in note for note in artifact.notes)
