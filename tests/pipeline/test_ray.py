"""A batch on a real Ray cluster of this machine, one of whose workers is killed in mid-run."""

from __future__ import annotations

import contextlib
import threading
import time

import psutil
import pytest

from onnxbridge.errors import UsageError
from onnxbridge.pipeline import run_batch
from tests.pipeline.models import BAD
from tests.pipeline.test_batch import nets, outcomes

ray = pytest.importorskip("ray", reason="pip install 'onnxbridge[ray]'")


@pytest.fixture(scope="module")
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def kill_a_worker(done, out):
    """Kill a process of Ray that runs a job, once some are finished."""
    while not (out / "outcomes.jsonl").exists():
        time.sleep(0.05)
    while not done:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, IndexError):
                if process.cmdline()[0].startswith("ray::run_isolated"):
                    process.kill()
                    done.append(process.pid)
                    return
        time.sleep(0.01)


@pytest.mark.slow
def test_nothing_is_lost_or_done_twice_when_a_worker_is_killed(cluster, tmp_path):
    out = tmp_path / "out"
    jobs = [*nets(tmp_path / "m", 12), {"source": f"{BAD}:crash"}, {"source": f"{BAD}:hang", "timeout": 4}]
    killed = []
    thread = threading.Thread(target=kill_a_worker, args=(killed, out))
    thread.start()
    found = run_batch(jobs, out, executor="ray")
    thread.join()
    assert killed and len(found.outcomes) == 14
    status = {o["name"]: o["status"] for o in found.outcomes}
    assert status.pop("crash") == "crashed" and status.pop("hang") == "timeout" and set(status.values()) == {"done"}
    assert len({o["name"] for o in found.outcomes}) == 14
    assert len({o["id"] for o in outcomes(out) if o["id"]}) == 12 and len(list(out.glob("*.onnx"))) == 12


@pytest.mark.slow
def test_a_cluster_that_is_not_there(tmp_path):
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(UsageError, match="no Ray cluster"):
        run_batch(nets(tmp_path / "m", 1), tmp_path / "out", executor="ray", address="127.0.0.1:1")
