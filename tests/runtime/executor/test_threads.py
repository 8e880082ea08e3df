"""The thread pool: results for any number of threads, late helper threads, and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from onnx import numpy_helper, parser

from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.array_layout import address
from onnxbridge.runtime.executor.kernels.compile import availability, kernel
from onnxbridge.runtime.executor.kernels.run import thread_pool
from onnxbridge.runtime.executor.kernels.run.call_table import DONE, OPEN, ROW, TICKET, Call
from onnxbridge.runtime.executor.kernels.run.thread_pool import Table

pytestmark = [
    pytest.mark.skipif(not availability.available(), reason="without numba there are no compiled kernels"),
    pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="kernels as Python run in one thread"),
]
rng = np.random.default_rng(5)
MODELS = {
    "image": """agraph (float[1,20,19,18] x) => (float[a,b] y) { u = Conv<pads = [1,1,1,1]>(x, w) v = HardSwish(u)
             p = MaxPool<kernel_shape = [3,3]>(v) q = Conv<group = 40>(p, g) s = Add(q, p) m = GlobalAveragePool(s) f = Flatten(m)
             y = Gemm(f, z) }""",
    "tokens": """agraph (float[1,60,40] x) => (float[a,b,c] y) { t = Transpose<perm = [0,2,1]>(x) s = MatMul(x, t) p = Softmax(s)
              u = MatMul(p, x) n = LayerNormalization(u, scale) m = MatMul(n, v) y = Gelu(m) }""",
    "sequence": "agraph (float[12,2,40] x) => (float[a,b,c,d] y) { y = LSTM<hidden_size = 48>(x, i, r) }",
}
WEIGHTS = {
    "image": {"w": (40, 20, 3, 3), "g": (40, 1, 1, 1), "z": (40, 33)},
    "tokens": {"scale": (40,), "v": (40, 70)},
    "sequence": {"i": (1, 192, 40), "r": (1, 192, 48)},
}
SHAPES = {"image": (1, 20, 19, 18), "tokens": (1, 60, 40), "sequence": (12, 2, 40)}


def draw(*shape):
    return (rng.standard_normal(shape) / 4).astype(np.float32)


def model(name):
    proto = parser.parse_model('<ir_version: 10, opset_import: ["" : 26]>' + MODELS[name])
    proto.graph.initializer.extend(numpy_helper.from_array(draw(*shape), key) for key, shape in WEIGHTS[name].items())
    return proto


@pytest.mark.parametrize("name", MODELS)
def test_results_are_the_same_bits_for_any_number_of_threads(name, small_work_items):
    proto, x, found = model(name), draw(*SHAPES[name]), []
    for count in (1, 2, 4):
        small_work_items(count)
        executor = Executor(proto)
        found += [executor.run(None, {"x": x})[0] for _ in range(20)]
    assert any(step.pieces > 1 for step in executor.explain({"x": x}))
    for y in found[1:]:
        np.testing.assert_array_equal(y, found[0])


def test_several_executors_in_several_threads(small_work_items):
    small_work_items(3)
    names, wrong = list(MODELS), []
    feeds = {name: {"x": draw(*SHAPES[name])} for name in names}
    executors = {name: Executor(model(name)) for name in names}
    expected = {name: executors[name].run(None, feeds[name])[0] for name in names}

    def run(name):
        for _ in range(100):
            if not np.array_equal(executors[name].run(None, feeds[name])[0], expected[name]):
                wrong.append(name)

    callers = [threading.Thread(target=run, args=(name,)) for name in names]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


FORK = """
import os, sys, threading
import numpy as np
from onnxbridge.runtime import Executor
from onnxbridge.runtime.executor.kernels.run import work_partition
work_partition.MIN_ELEMENTS = work_partition.MIN_MULTIPLICATIONS = 16
x = np.load(sys.argv[2])
executor = Executor(sys.argv[1])
before = executor.run(None, {"x": x})[0]
for _ in range(10):
    executor.run(None, {"x": x})
assert threading.active_count() == 3
child = os.fork()
assert threading.active_count() == (3 if child else 1)
right = all(np.array_equal(executor.run(None, {"x": x})[0], before) for _ in range(10))
if child == 0:
    os._exit(0 if right and threading.active_count() == 3 else 1)
assert right and threading.active_count() == 3
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_starts_its_own_threads(tmp_path):
    (tmp_path / "net.onnx").write_bytes(model("image").SerializeToString())
    np.save(tmp_path / "x.npy", draw(*SHAPES["image"]))
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "net.onnx"), str(tmp_path / "x.npy")]
    environment = {**os.environ, "ONNXBRIDGE_THREADS": "3", "ONNXBRIDGE_NATIVE": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


SHARES = 6


@pytest.fixture
def published():
    """A call of six pieces, each of which sets an element of y to one, and the state shared by leader and helpers."""
    x, y, state = np.zeros((SHARES, 1), np.float32), np.zeros((SHARES, 1), np.float32), np.zeros(thread_pool.STATE // 8, np.int64)
    table = Table([Call(kernel.load_kernel("rows", "softmax"), (address(x), address(y), SHARES, 1, 1), SHARES)])
    state[ROW // 8], state[OPEN // 8] = address(table.cells), 1
    yield state, y, table, x
    state[OPEN // 8] = 0


def ticket(number, shares, first, last):
    return number << 36 | shares << 24 | first << 12 | last


def start_helper(state):
    """Start a helper thread, which ends when the state is closed."""
    helper = threading.Thread(target=thread_pool.driver()[1], args=(address(state), 1))
    helper.start()
    return helper


def test_a_helper_runs_the_last_remaining_pieces(published):
    state, y, *_ = published
    state[TICKET // 8] = ticket(1, SHARES, 4, 0)
    helper = start_helper(state)
    until = time.monotonic() + 30
    while state[DONE // 8] < 2 and time.monotonic() < until:
        time.sleep(0.001)
    state[OPEN // 8] = 0
    helper.join()
    assert y[:, 0].tolist() == [0, 0, 0, 0, 1, 1]
    assert state[TICKET // 8] == ticket(1, SHARES, 4, 2)


def test_a_late_helper_runs_nothing(published):
    state, y, table, _ = published
    thread_pool.driver()[0](address(state), address(table.cells), 1, SHARES, 3, 0, 0)
    assert y[:, 0].tolist() == [1] * SHARES
    number = int(state[TICKET // 8]) >> 36
    assert number == 3  # each run of the call has a new number, so that no piece of an earlier run can be claimed
    y[...] = 0
    table.cells[:] = -1  # a helper that reads the table crashes
    helper = start_helper(state)
    time.sleep(0.05)
    state[OPEN // 8] = 0
    helper.join()
    assert not y.any()
    assert state[TICKET // 8] == ticket(number, SHARES, SHARES, 0)
