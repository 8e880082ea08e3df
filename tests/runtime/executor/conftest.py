"""What is tested here are the compiled kernels too, from the first run on."""

from __future__ import annotations

import pytest

from onnxbridge.runtime.executor.kernels.run import thread_pool, work_partition


@pytest.fixture(autouse=True)
def kernels_at_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXBRIDGE_NATIVE", "1")
        yield


@pytest.fixture
def small_pieces(monkeypatch):
    """A setter of the number of threads; the pieces of work are so small that every kernel has several."""
    for name in ("MIN_ELEMENTS", "MIN_MULTIPLICATIONS", "STEP_MULTIPLICATIONS"):
        monkeypatch.setattr(work_partition, name, 16)

    def set_threads(count):
        monkeypatch.setenv("ONNXBRIDGE_THREADS", str(count))
        thread_pool.threads.cache_clear()

    yield set_threads
    monkeypatch.undo()
    thread_pool.threads.cache_clear()
