"""Recordings kept on disk: a later executor of the same file gives the same bits without compiling it, or compiles it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import external_data_helper, numpy_helper, parser

from onnxbridge.errors import LimitError, UsageError
from onnxbridge.hub.limits import Budget, Limits
from onnxbridge.runtime import Executor
from onnxbridge.runtime.kept import entry, identity, store, write
from onnxbridge.runtime.native import drive, placed, presence

HEAD = '<ir_version: 10, opset_import: ["" : 26]>'
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
rng = np.random.default_rng(5)
pytestmark = pytest.mark.skipif(not presence.available() or not placed.possible(), reason="nothing is kept here")


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def drawn(name, shape):
    return rng.integers(-6, 6, shape) if name == "at" else draw(*shape)


CONVOLUTIONS = """agraph (float[n,3,20,20] x) => (float[n,12] y, float[n,20,20,20] b, int64[4] s) {
    a = Conv<pads = [1,1,1,1]>(x, w1) b = Relu(a) m = ReduceMean(b, axes) q = Conv(m, w2) t = HardSigmoid(q) c = Mul(b, t)
    d = GlobalAveragePool(c) one = Shape<start = 0, end = 1>(x) whole = Concat<axis = 0>(one, rest)
    e = Reshape(d, whole) y = Gemm(e, w3) s = Shape(b) }"""
WEIGHTS = {
    "w1": draw(20, 3, 3, 3), "w2": draw(20, 20, 1, 1), "w3": draw(20, 12), "axes": np.array([2, 3]), "rest": np.array([20]),
}  # fmt: skip
RECURRENT = """agraph (float[7,2,10] x, float[2,2,12] h) => (float[7,2,2,12] y, float[2,2,12] last) {
    y, last, cell = LSTM<hidden_size = 12, direction = "bidirectional">(x, w, r, b, , h) }"""
ATTENTION = """agraph (float[2,6,12] x) => (float[2,6,12] y) {
    m = MatMul(x, w) q, k, v = Split<axis = 2, num_outputs = 3>(m) t = Transpose<perm = [0,2,1]>(k) s = MatMul(q, t)
    p = Softmax(s) a = MatMul(p, v) r = Add(a, x) y = LayerNormalization(r, scale, shift) }"""
BYTES = """agraph (float[1,8,9,9] x) => (float[1,16,9,9] y) {
    a = QuantizeLinear(x, sx, zx) b = DequantizeLinear(a, sx, zx) u = DequantizeLinear(w, sw, zw)
    c = Conv<pads = [1,1,1,1]>(b, u) d = QuantizeLinear(c, sx, zx) y = DequantizeLinear(d, sx, zx) }"""
NETWORKS = {
    "convolutions": (CONVOLUTIONS, WEIGHTS, {"x": (2, 3, 20, 20)}),
    "recurrent": (
        RECURRENT, {"w": draw(2, 48, 10), "r": draw(2, 48, 12), "b": draw(2, 96)}, {"x": (7, 2, 10), "h": (2, 2, 12)},
    ),
    "attention": (ATTENTION, {"w": draw(12, 36), "scale": draw(12), "shift": draw(12)}, {"x": (2, 6, 12)}),
    "bytes": (
        BYTES, {"w": rng.integers(-90, 90, (16, 8, 3, 3)).astype(np.int8), "sx": np.float32(0.05), "zx": np.uint8(7),
                "sw": np.float32(0.02), "zw": np.int8(0)}, {"x": (1, 8, 9, 9)},
    ),
    "pools": (
        """agraph (float[1,6,15,15] x) => (float[1,6,7,7] y, float[1,12,15,15] z) {
        a = MaxPool<kernel_shape = [3,3], strides = [2,2]>(x) b = LRN<size = 3>(a) y = Sigmoid(b)
        c = Mul(x, g) e = Tanh(c) z = Concat<axis = 1>(c, e) }""",
        {"g": draw(6, 1, 1)}, {"x": (1, 6, 15, 15)},
    ),
    "what the shapes determine": (
        """agraph (float[n,3,40,40] x) => (float[n,3,40,40] y, float[n,3,40,40] c) {
        s = Shape(x) z = ConstantOfShape(s) c = Add(z, g) d = Exp(c) y = Mul(x, d) }""",
        {"g": draw(3, 1, 1)}, {"x": (2, 3, 40, 40)},
    ),
    "steps that Python runs": (
        """agraph (float[2,6,12] x, int64[5] at) => (float[2,5,9] y, float[2,6,12] z, int64[2,6] most) {
        c = Cos(x) t = Tanh(c) z = CumSum<exclusive = 1>(t, one) a = MatMul(z, w) u = Relu(a) y = Gather<axis = 1>(u, at)
        s = Sigmoid(z) most = ArgMax<axis = 2, keepdims = 0>(s) }""",
        {"w": draw(12, 9), "one": np.int64(1)}, {"x": (2, 6, 12), "at": (5,)},
    ),
    "one input seen in two ways": (
        """agraph (float[3,40] x) => (float[40,7] y, float[40,3] z) {
        t = Transpose<perm = [1,0]>(x) y = MatMul(t, w) z = Add(t, g) }""",
        {"w": draw(3, 7), "g": draw(3)}, {"x": (3, 40)},
    ),
}  # fmt: skip


def proto(text, **weights):
    made = parser.parse_model(HEAD + text)
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items())
    return made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    place = tmp_path / "runs"
    place.mkdir()
    monkeypatch.setattr(store, "folder", lambda: place)
    return place


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(proto(CONVOLUTIONS, **WEIGHTS), path)
    return path


def ran(path, feeds, **options):
    """The answers of a new executor; what it keeps is there afterwards."""
    executor = Executor(path, **options)
    found = executor.run(None, feeds)
    write.finish()
    return found, executor._compiled_model is None


def equal(a, b):
    for x, y in zip(a, b, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_array_equal(x, y)


def agree(path, draws):
    first = Executor(path)
    expected = [first.run(None, feeds) for feeds in draws]
    write.finish()
    second = Executor(path)
    assert (second.input_names, second.output_names) == (first.input_names, first.output_names)
    for feeds, y in zip(draws, expected, strict=True):
        equal(second.run(None, feeds), y)
    assert second._compiled_model is None
    again = second.run(None, draws[0])
    for a in again:
        a[...] = 1  # results are the caller's
    equal(second.run(None, draws[0]), expected[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_without_compiling(name, folder, tmp_path):
    text, weights, shapes = NETWORKS[name]
    onnx.save(proto(text, **weights), tmp_path / "net.onnx")
    agree(tmp_path / "net.onnx", [{k: drawn(k, s) for k, s in shapes.items()} for _ in range(3)])


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_the_same_bits_of_known_networks(name, folder):
    graph = onnx.load(LIGHT / f"light_{name}.onnx").graph
    (given,) = {v.name for v in graph.input} - {v.name for v in graph.initializer}
    agree(LIGHT / f"light_{name}.onnx", [{given: draw(1, 3, 224, 224)} for _ in range(2)])


def test_other_shapes_have_entries_of_their_own(net, folder):
    feeds = {n: {"x": draw(n, 3, 20, 20)} for n in (1, 2)}
    expected = {n: Executor(onnx.load(net)).run(None, feeds[n]) for n in (1, 2)}
    for n, kept in ((1, False), (2, False), (1, True), (2, True)):
        found, without = ran(net, feeds[n])
        equal(found, expected[n])
        assert without is kept
    assert len(list(folder.iterdir())) == 2
    executor = Executor(net)
    for n in (1, 2, 1, 2, 2, 1):
        equal(executor.run(None, feeds[n]), expected[n])


def test_an_input_that_lies_otherwise_is_not_taken_for_the_recorded(net, folder):
    x = draw(2, 20, 20, 3)
    ran(net, {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})
    found, without = ran(net, {"x": x.transpose(0, 3, 1, 2)})
    assert not without
    np.testing.assert_allclose(found[0], ran(net, {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})[0][0], rtol=1e-5)


def test_what_is_asked_beyond_the_outputs_compiles_the_file(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    expected, _ = ran(net, feeds)
    executor = Executor(net)
    (a,) = executor.run(["a"], feeds)
    np.testing.assert_allclose(np.maximum(a, 0), expected[1], rtol=1e-3, atol=1e-5)
    assert executor.explain(feeds)
    assert Executor(net, precision="float64").run(None, feeds)[0].dtype == np.float64


def test_mistakes_are_told_as_always(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    ran(net, feeds)
    wrong = [{}, {"x": feeds["x"].astype(np.float64)}, {"x": draw(1, 4, 20, 20)}, {**feeds, "z": feeds["x"]}, {"z": feeds["x"]}]
    for given in wrong:
        told = []
        for model in (net, onnx.load(net)):
            with pytest.raises(UsageError) as problem:
                Executor(model).run(None, given)
            told.append(str(problem.value))
        assert told[0] == told[1]


def test_a_mistake_that_a_step_meets_is_told_as_always(tmp_path, folder):
    text, weights, shapes = NETWORKS["steps that Python runs"]
    path = tmp_path / "net.onnx"
    onnx.save(proto(text, **weights), path)
    feeds = {k: drawn(k, s) for k, s in shapes.items()}
    expected, _ = ran(path, feeds)
    executor = Executor(path)
    equal(executor.run(None, feeds), expected)
    with pytest.raises(IndexError) as problem:
        executor.run(None, {**feeds, "at": np.array([0, 1, 2, 3, 6])})
    assert "Gather" in problem.value.__notes__[0]
    equal(executor.run(None, feeds), expected)


def test_a_step_that_gives_another_shape_is_compiled(tmp_path, folder):
    path = tmp_path / "net.onnx"
    text = "agraph (float[20] x) => (float[1,n] y, int64[1,n] z) { t = Tanh(x) z = NonZero(t) f = Cast<to = 1>(z) y = Relu(f) }"
    onnx.save(proto(text), path)
    few, many = draw(20), draw(20)
    few[3:] = 0
    first = Executor(path)
    expected = [first.run(None, {"x": x}) for x in (few, few, many)]
    write.finish()
    executor = Executor(path)
    for x, y in zip((few, many, few), (expected[0], expected[2], expected[0]), strict=True):
        equal(executor.run(None, {"x": x}), y)


def test_limits_hold_for_what_is_kept(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    ran(net, feeds)
    assert ran(net, feeds, limits=Limits(tensor_bytes=4 * 20 * 400))[1]
    for limits in (Limits(tensor_bytes=4 * 20 * 400 - 1), Limits(total_bytes=1000), Limits(rank=3), Limits(seconds=0)):
        with pytest.raises(LimitError):
            Executor(net, limits=limits).run(None, feeds)


def test_damaged_entries_are_left_aside(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    expected, _ = ran(net, feeds)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    known = identity.of(net, store.most())
    places = np.random.default_rng(1).integers(0, 8 * len(whole), 200).tolist()
    refused = 0
    for bit in [*places, *range(0, 8 * entry.HEAD.size, 5)]:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found = entry.find(known)
        made = found and found.recording()
        refused += made is None
        if made is not None:  # the bit lies between the parts
            equal(made.play({0: feeds["x"]}, Budget(), None), expected)
    assert refused > 200
    for damaged in (b"", whole[:20], whole[: len(whole) // 2], whole + b"x", os.urandom(len(whole))):
        path.write_bytes(damaged)
        found, without = ran(net, feeds)
        equal(found, expected)
        assert not without
        assert ran(net, feeds)[1]  # written again


def test_a_damaged_payload_is_met_in_the_middle_of_a_run(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    expected, _ = ran(net, feeds)
    (path,) = folder.iterdir()
    executor = Executor(net)
    damaged = bytearray(path.read_bytes())
    damaged[-4000] ^= 255
    path.write_bytes(damaged)
    equal(executor.run(None, feeds), expected)
    assert executor._compiled_model is not None


def test_another_model_or_machine_has_no_entry(net, folder, monkeypatch):
    feeds = {"x": draw(1, 3, 20, 20)}
    ran(net, feeds)
    known = identity.of(net, store.most())
    assert entry.find(known) is not None
    monkeypatch.setattr(drive, "threads", lambda: 7)
    assert identity.of(net, store.most()).key != known.key
    monkeypatch.undo()
    monkeypatch.setattr(presence, "identity", lambda: "another processor")
    assert identity.of(net, store.most()).key != known.key
    monkeypatch.undo()
    monkeypatch.setenv("ONNXBRIDGE_SOMETHING", "1")
    assert identity.of(net, store.most()).key != known.key


def test_entries_hang_on_the_sources_that_made_them(net, folder, monkeypatch):
    ran(net, {"x": draw(1, 3, 20, 20)})
    monkeypatch.setattr(store, "folder", lambda: folder)
    known = identity.of(net, store.most())
    found = entry.find(known)
    files = {Path(f).name for f, _, _ in found._header["sources"]}
    assert {"plan.py", "convolutions.py", "io.py"} <= files
    real = os.stat

    def newer(path, *args, **options):
        facts = real(path, *args, **options)
        if str(path).endswith("fusion/convolutions.py"):
            return os.stat_result((*facts[:8], facts[8] + 1, facts[9]), {"st_mtime_ns": facts.st_mtime_ns + 1})
        return facts

    monkeypatch.setattr(os, "stat", newer)
    assert entry.find(known) is None


def test_changed_weights_change_the_answer(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    before, _ = ran(net, feeds)
    facts = os.stat(net)
    content = net.read_bytes()
    at = content.index(WEIGHTS["w3"].tobytes())
    with open(net, "r+b") as file:  # in place, of the same size, with the old date
        file.seek(at)
        file.write((2 * WEIGHTS["w3"]).tobytes())
    os.utime(net, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    found, without = ran(net, feeds)
    assert not without
    np.testing.assert_allclose(found[0], 2 * before[0], rtol=1e-5)


def test_a_file_that_changes_while_it_is_read_is_not_kept(net, folder):
    executor = Executor(net)
    os.utime(net)
    executor.run(None, {"x": draw(1, 3, 20, 20)})
    write.finish()
    assert not list(folder.iterdir())


def test_a_file_that_changed_meanwhile_is_not_compiled_for_an_older_executor(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    ran(net, feeds)
    executor = Executor(net)
    os.utime(net)  # that is no change
    assert executor.run(["a"], feeds)
    executor = Executor(net)
    onnx.save(proto(CONVOLUTIONS, **{**WEIGHTS, "w3": draw(20, 12)}), net)
    executor.run(None, feeds)
    with pytest.raises(UsageError, match="changed"):
        executor.run(["a"], feeds)


def test_changed_external_data_change_the_answer(tmp_path, folder):
    feeds, path, data = {"x": draw(1, 3, 20, 20)}, tmp_path / "net.onnx", tmp_path / "net.data"
    made = proto(CONVOLUTIONS, **WEIGHTS)
    external_data_helper.convert_model_to_external_data(made, location="net.data", size_threshold=0)
    onnx.save(made, path)
    before, _ = ran(path, feeds)
    assert not list(folder.iterdir())  # the data is too new to be sure that it does not change any more
    time.sleep(2.1)
    ran(path, feeds)
    assert ran(path, feeds)[1]
    content = data.read_bytes()
    data.write_bytes(content.replace(WEIGHTS["w3"].tobytes(), (2 * WEIGHTS["w3"]).tobytes()))
    found, without = ran(path, feeds)
    assert not without
    np.testing.assert_allclose(found[0], 2 * before[0], rtol=1e-5)
    data.unlink()
    with pytest.raises(Exception, match=r"net\.data"):
        Executor(path)


def test_nothing_is_kept_where_nothing_can_be_written(net, folder, monkeypatch):
    feeds = {"x": draw(1, 3, 20, 20)}

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    expected, _ = ran(net, feeds)
    assert not list(folder.iterdir())
    monkeypatch.undo()
    monkeypatch.setattr(store, "folder", lambda: None)
    equal(ran(net, feeds)[0], expected)
    monkeypatch.setattr(store, "folder", lambda: folder / "missing")
    equal(ran(net, feeds)[0], expected)


def test_keeping_can_be_turned_off(net, monkeypatch):
    monkeypatch.setenv("ONNXBRIDGE_KEEP", "0")
    assert store.folder() is None
    executor = Executor(net)
    assert executor._entry is None
    assert executor._known is None


def test_entries_that_others_may_write_are_left_aside(net, folder):
    feeds = {"x": draw(1, 3, 20, 20)}
    ran(net, feeds)
    (path,) = folder.iterdir()
    path.chmod(0o666)
    assert not ran(net, feeds)[1]
    assert ran(net, feeds)[1]
    target = folder / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    assert not ran(net, feeds)[1]


def test_the_entry_that_was_not_used_for_longest_goes_first(tmp_path, folder, monkeypatch):
    feeds, paths = {"x": draw(1, 3, 20, 20)}, []
    for k in range(3):
        paths.append(tmp_path / f"{k}.onnx")
        onnx.save(proto(CONVOLUTIONS, **{**WEIGHTS, "w3": draw(20, 12)}), paths[-1])
        if k == 2:
            each = max(file.stat().st_size for file in folder.iterdir())
            monkeypatch.setattr(store, "bound", lambda each=each: 2 * each + each // 2)
            monkeypatch.setattr(store, "most", lambda each=each: 2 * each)
            ran(paths[0], feeds)  # used again
        ran(paths[k], feeds)
    assert [Executor(path)._entry is not None for path in paths] == [True, False, True]
    monkeypatch.setattr(store, "most", lambda: 1000)
    onnx.save(proto(CONVOLUTIONS, **{**WEIGHTS, "w3": draw(20, 12)}), paths[1])
    ran(paths[1], feeds)
    assert len(list(folder.iterdir())) == 2


PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
from onnxbridge.runtime.kept import store
store.folder = lambda: Path(sys.argv[1])
from onnxbridge.runtime import Executor
y = Executor(sys.argv[2]).run(None, {"x": np.load(sys.argv[3])})
heavy = [m for m in sys.modules if m.partition(".")[0] in ("onnx", "onnx_ir", "llvmlite")]
ours = [m for m in sys.modules if m.startswith(("onnxbridge.hub.", "onnxbridge.runtime.numpy", "onnxbridge.lowering"))]
print(json.dumps([[a.sum(dtype=np.float64).item() for a in y], heavy, sorted(ours)]))
"""


def started(net, folder, tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(folder), str(net), str(tmp_path / "x.npy")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_at_once_and_later_ones(net, folder, tmp_path):
    x = draw(1, 3, 20, 20)
    np.save(tmp_path / "x.npy", x)
    expected = [a.sum(dtype=np.float64).item() for a in Executor(onnx.load(net)).run(None, {"x": x})]
    for process in [started(net, folder, tmp_path) for _ in range(2)]:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert json.loads(out)[0] == expected
    assert [file.suffix for file in folder.iterdir()] == [store.SUFFIX]
    out, _ = started(net, folder, tmp_path).communicate(timeout=120)
    assert json.loads(out) == [expected, [], ["onnxbridge.hub.bounds"]]  # a light way


def test_threads_share_an_executor(net, folder):
    feeds = [{"x": draw(1, 3, 20, 20)} for _ in range(4)]
    first = Executor(net)
    expected = [first.run(None, f) for f in feeds]
    write.finish()
    executor, found = Executor(net), {}

    def work(k):
        for _ in range(20):
            found[k] = executor.run(None, feeds[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        for a, b in zip(found[k], expected[k], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
