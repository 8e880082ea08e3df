"""Fixtures: compiled kernels are used from the first run, and work can be split into small items."""

from __future__ import annotations

import pytest

from onnxbridge.runtime.executor.kernels.run import thread_pool, work_partition


@pytest.fixture(autouse=True)
def kernels_from_first_run():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXBRIDGE_NATIVE", "1")
        yield


@pytest.fixture
def small_work_items(monkeypatch):
    """Sets the number of threads, and lowers the thresholds so that every kernel has several work items."""
    for name in ("MIN_ELEMENTS", "MIN_MULTIPLICATIONS", "STEP_MULTIPLICATIONS"):
        monkeypatch.setattr(work_partition, name, 16)

    def set_threads(count):
        monkeypatch.setenv("ONNXBRIDGE_THREADS", str(count))
        thread_pool.threads.cache_clear()

    yield set_threads
    monkeypatch.undo()
    thread_pool.threads.cache_clear()
