"""One job: what its outcome says, that it is done once, and where its artifacts go."""

from __future__ import annotations

import json
import pickle

import fsspec
import onnx
import pytest

from onnxbridge.errors import UsageError
from onnxbridge.pipeline import run_job
from tests.pipeline.models import write_net


@pytest.fixture
def job(tmp_path):
    out = tmp_path / "out"
    return {"source": str(write_net(tmp_path / "net.onnx")), "to": ["onnx", "pytorch"], "output": str(out)}


CHANGING = ("seconds", "peak_memory", "finished", "targets")


def files(folder):
    return sorted(p.name for p in folder.iterdir() if p.name != ".onnxbridge")


def test_an_outcome_says_what_became_of_each_target(job, tmp_path):
    found = pickle.loads(pickle.dumps(run_job(job)))
    assert found["status"] == "done" and found["exit_code"] == 0 and found["verdict"] == "PASSED" and found["error"] is None
    assert found["to"] == ["onnx", "pytorch"] and [t["target"] for t in found["targets"]] == ["onnx", "pytorch"]
    assert files(tmp_path / "out") == sorted(o["path"] for o in found["outputs"]) == ["net.onnx", "net.pt2"]
    assert found["worst"]["name"] == "y" and found["worst"]["max_abs"] <= found["worst"]["atol"]
    assert found["seconds"] > 0 and found["peak_memory"] > 1 << 20 and found["versions"]["onnx"] == onnx.__version__
    assert json.loads(json.dumps(found)) == found


def test_the_same_job_is_done_once(job, tmp_path):
    first = run_job(job)
    written = (tmp_path / "out" / "net.onnx").stat().st_mtime_ns
    again = run_job(dict(reversed(job.items())))
    assert again == {**first, "reused": True}
    assert (tmp_path / "out" / "net.onnx").stat().st_mtime_ns == written


@pytest.mark.parametrize("change", ["source", "option", "artifact gone", "artifact changed", "killed before the record"])
def test_a_job_is_done_again_when_something_changed(job, tmp_path, change):
    first = run_job(job)
    if change == "source":
        write_net(tmp_path / "net.onnx", seed=1)
    elif change == "option":
        job["seed"] = 5
    elif change == "artifact gone":
        (tmp_path / "out" / "net.pt2").unlink()
    elif change == "artifact changed":
        (tmp_path / "out" / "net.onnx").write_bytes(b"other")
    else:
        record = tmp_path / "out" / ".onnxbridge" / f"{first['id']}.json"
        record.write_text(json.dumps({"id": first["id"], "status": "writing", "outputs": first["outputs"]}))
    again = run_job(job)
    assert again["status"] == "done" and not again["reused"]
    assert (again["id"] != first["id"]) == (change in ("source", "option"))
    assert run_job(job)["reused"]


def test_weights_beside_the_file_belong_to_the_source(job, tmp_path):
    model = onnx.load(job["source"])
    onnx.save(model, job["source"], save_as_external_data=True, location="weights.bin", size_threshold=0)
    first = run_job(job)
    assert first["status"] == "done"
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[3] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    assert run_job(job)["id"] != first["id"]


def test_a_target_that_fails_does_not_stop_the_others(job, tmp_path):
    strange = str(write_net(tmp_path / "net.onnx", op="Strange", domain="own"))
    found = run_job({**job, "to": ["coreml", "onnx"], "source": strange})
    assert found["status"] == "failed" and found["exit_code"] in (1, 3)
    assert len(found["targets"]) == 2 and "Strange" in found["targets"][0]["error"]["message"]
    assert found["error"] == found["targets"][0]["error"]
    assert found == {**run_job({**job, "to": ["coreml", "onnx"], "source": strange}), **{k: found[k] for k in CHANGING}}


def test_a_broken_source_is_an_outcome(job, tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\x08\x07 not a model")
    found = run_job(job)
    assert found["status"] == "failed" and found["exit_code"] == 4 and "net.onnx" in found["error"]["message"]
    assert not files(tmp_path / "out")


def test_nothing_of_others_is_replaced(job, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "net.onnx").write_text("of another")
    found = run_job(job)
    assert found["exit_code"] == 2 and "--force" in found["error"]["message"]
    assert (tmp_path / "out" / "net.onnx").read_text() == "of another"
    assert run_job({**job, "force": True})["status"] == "done"
    found = run_job({**job, "output": str(tmp_path), "force": True, "to": "onnx"})
    assert "belongs to the source" in found["error"]["message"] and onnx.load(tmp_path / "net.onnx").graph.name == "net"


def test_sources_and_results_on_urls(job, tmp_path):
    memory = fsspec.filesystem("memory")
    for name in ("net.onnx", "weights.bin"):
        memory.rm(f"/bucket/{name}") if memory.exists(f"/bucket/{name}") else None
    net = onnx.load(job["source"])
    onnx.save(net, tmp_path / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    for name in ("net.onnx", "weights.bin"):
        memory.put_file(str(tmp_path / name), f"/bucket/{name}")
    url = {**job, "source": "memory://bucket/net.onnx", "to": ["onnx", "coreml"], "output": "memory://results/today"}
    found = run_job(url)
    assert found["status"] == "done" and {o["path"] for o in found["outputs"]} == {"net.onnx", "net.mlpackage"}
    assert memory.exists("/results/today/net.onnx") and memory.isdir("/results/today/net.mlpackage")
    assert run_job(url)["reused"]
    memory.pipe("/results/today/net.onnx", b"changed")
    assert not run_job(url)["reused"]
    local = run_job({**url, "output": f"file://{tmp_path}/local"})
    assert local["status"] == "done" and (tmp_path / "local" / "net.mlpackage").is_dir()
    missing = run_job({**url, "source": "memory://bucket/none.onnx"})
    assert missing["exit_code"] == 2 and "no such file" in missing["error"]["message"]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"source": ""}, "needs a 'source'"), ({"tos": "x"}, "did you mean 'to'"), ({"output": "none/such"}, "there is no folder")],
)
def test_a_wrong_job(job, change, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        run_job({**job, **change})
